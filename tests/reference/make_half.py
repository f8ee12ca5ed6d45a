#!/usr/bin/env python3
"""Writes tests/reference/half_matmul.txt: products of f16 and of bf16 by PyTorch on the CPU, for test_half_matmul.c.

    tests/reference/make_half.py

Operands are pure functions of an index, exact in both types (see `operand`), so the file holds results only:

    bf16 3 4096 5    type, M, K, N
    0.0123 ...       M·N numbers, as PyTorch rounded them
"""
from pathlib import Path

import numpy as np
import torch

from make_torch import uniform

SHAPES = [(1, 1, 1), (3, 17, 5), (1, 300, 8), (7, 64, 1), (5, 257, 9), (16, 1024, 16), (4, 2048, 6), (3, 4096, 5)]


def operand(which, rows, columns):
    """Eight significant bits, four exponents, both signs."""
    q = np.floor(uniform(which, "half_matmul", rows * columns) * 1024).astype(np.int64)
    size = (128 + q % 128) * 2.0 ** -(7 + q // 128 % 4)
    return np.where(q // 512, -size, size).reshape(rows, columns)


def main():
    lines = [f"# products by PyTorch {torch.__version__.split('+')[0]}; written by make_half.py"]
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        for m, k, n in SHAPES:
            a = torch.tensor(operand(0, m, k), dtype=torch.float64)
            b = torch.tensor(operand(1, k, n), dtype=torch.float64)
            assert (a.to(dtype).double() == a).all() and (b.to(dtype).double() == b).all()
            y = (a.to(dtype) @ b.to(dtype)).double().flatten().tolist()
            lines.append(f"{name} {m} {k} {n}")
            for at in range(0, len(y), 12):
                lines.append(" ".join(f"{v:.9g}" for v in y[at:at + 12]))
    (Path(__file__).parent / "half_matmul.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
