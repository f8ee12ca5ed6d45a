#!/usr/bin/env python3
"""Writes tests/reference/fine_tuning: weights to start from and PyTorch's losses, for test_fine_tuning.c.

    tests/reference/make_fine_tuning.py HALFTONE

    sums.txt, products.txt   what the jobs read
    run/                     the run of pretrain.json, by the program given: what from_run.json starts from
    torch.safetensors        a model of PyTorch under names of its own, in f16, bf16, f32 and f64: from_torch.json's
    NAME.txt                 the loss of each step of the job NAME.json by PyTorch

The jobs have no random numbers: windows of text come in order, and there is no dropout. Models are those of
make_models.py; PyTorch trains them in float64, from weights rounded to float32.
"""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import make_models

FOLDER = Path(__file__).parent / "fine_tuning"


def write_texts():
    words = "zero one two three four five six seven eight nine ten eleven twelve".split()
    (FOLDER / "sums.txt").write_text("".join(
        f"{words[a]} and {words[b]} is {words[a + b]}\n" for a in range(7) for b in range(7)))
    products = "".join(f"{words[a]} and {words[b]} is {words[a * b]} so {words[a]}\n" for a in range(5) for b in range(4))
    (FOLDER / "products.txt").write_text(products[:2 * 16 * 16 + 1])  # two batches of 16 windows of 16


def pretrain(program):
    shutil.rmtree(FOLDER / "run", ignore_errors=True)
    subprocess.run([program, "train", "pretrain.json"], cwd=FOLDER, check=True)
    for path in (FOLDER / "run").iterdir():
        if path.name not in ("snapshots", "vocabulary.json"):
            path.unlink()


# ---- a model of PyTorch, under its own names ------------------------------------------------------------------------

def foreign_name(name):
    """The inverse of from_torch.json's map."""
    name = re.sub(r"^model\.layers\.(\d+)\.", r"net.block_\1.", name)
    name = re.sub(r"\.self_attn\.([qkvo])_proj\.", r".att.\1.", name)
    return re.sub(r"^model\.", "net.", name)


def write_torch(case):
    types = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    make_models.BUILD[case.kind](case)
    tensors = {foreign_name(name): p.detach().to(types[i % 4]).contiguous()
               for i, (name, p) in enumerate(case.params.items())}
    tensors["step"] = torch.tensor([7], dtype=torch.int64)
    save_file(tensors, FOLDER / "torch.safetensors")


# ---- training -------------------------------------------------------------------------------------------------------

class Job(make_models.Case):
    """A model whose tokens are those of a batch of the job's text."""

    def __init__(self, job, vocabulary):
        self.tokens = None
        super().__init__(job["model"]["type"], job["model"], batch=job["train"]["batch"],
                         length=job["data"]["length"], vocabulary=vocabulary)

    def ints(self, name, shape, top, low=0):
        return self.tokens


def parameter_groups(params, train):
    """PyTorch's groups: matrices decay, the first match counts."""
    groups = {}
    for name, p in params.items():
        p.requires_grad_(not any(re.search(f, name) for f in np.atleast_1d(train["freeze"])))
        if not p.requires_grad:
            continue
        own = next((g for g in train["groups"] if re.search(g["match"], name)), {})
        decay = own.get("weight_decay", train["weight_decay"]) if p.dim() >= 2 else 0.0
        groups.setdefault((train["lr"] * own.get("lr_scale", 1), decay), []).append(p)
    return [{"params": ps, "lr": lr, "weight_decay": decay} for (lr, decay), ps in groups.items()]


def tune(name, weights, ids):
    job = json.loads((FOLDER / f"{name}.json").read_text())
    train, length, batch = job["train"], job["data"]["length"], job["train"]["batch"]
    tokens = torch.tensor([ids[c] for c in (FOLDER / job["data"]["train"]).read_text()])
    windows = (len(tokens) - 1) // length
    assert windows % batch == 0 and (len(tokens) - 1) % length == 0, f"{len(tokens)} tokens"
    case = Job(job, max(ids.values()) + 1)
    case.params = {n: w.float().double().requires_grad_() for n, w in weights.items()}
    before = {n: p.detach().clone() for n, p in case.params.items()}
    optimizer = torch.optim.AdamW(parameter_groups(case.params, train))
    losses = []
    for step in range(train["steps"]):
        at = [(step * batch + i) % windows * length for i in range(batch)]
        case.tokens = torch.stack([tokens[i:i + length] for i in at])
        targets = torch.stack([tokens[i + 1:i + 1 + length] for i in at])
        loss = F.cross_entropy(make_models.BUILD[case.kind](case).reshape(-1, case.vocabulary), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert case.params.keys() == before.keys()
    (FOLDER / f"{name}.txt").write_text("".join(f"{v:.7g}\n" for v in losses))


def main():
    write_texts()
    pretrain(Path(sys.argv[1]).resolve())
    vocabulary = json.loads((FOLDER / "run" / "vocabulary.json").read_text())
    weights = load_file(next((FOLDER / "run").glob("snapshots/step-*")) / "weights.safetensors")
    tune("from_run", weights, {c: i for i, c in enumerate(vocabulary["tokens"])})

    job = json.loads((FOLDER / "from_torch.json").read_text())
    case = Job(job, 256)
    case.tokens = torch.zeros(case.batch, case.length, dtype=torch.int64)
    write_torch(case)
    written = load_file(FOLDER / "torch.safetensors")
    tune("from_torch", {n: written[foreign_name(n)] for n in case.params}, {chr(i): i for i in range(256)})


main()
