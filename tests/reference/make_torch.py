#!/usr/bin/env python3
"""Writes tests/reference/OP.txt: values and gradients of every op by PyTorch on the CPU, for test_ops_torch.c.

    build/halftone ops --samples | tests/reference/make_torch.py [FOLDER]

Reads lines "NAME SAMPLE". Inputs, and the weights of the loss that gradients are taken of, are the same pure functions
as in the tests (Philox4x32-10), so that the files hold results only:

    sample (f32[4,7] -3..3)
    y0 28 1          result 0: its number of elements, and every how many of them is written
    0.0123 ...
    dx0 28 1         gradient of sum(weight * y) by input 0
    ...

Every float operand counts as f32 here, whatever the sample says: inputs are rounded to it. PyTorch then computes in
float64, so that the whole tolerance is there for our kernels. Empty samples that PyTorch has no answer to are left out.
"""
import re
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

KEPT = 160  # numbers of an array that are written at most
FLOATS = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"}
INTS = {"i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool}
MASK = (1 << 64) - 1


# ---- random numbers, as in src/base/philox.c -----------------------------------------------------------------------

def hash_text(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def spread(x):
    x ^= x >> 30
    x = (x * 0xBF58476D1CE4E5B9) & MASK
    x ^= x >> 27
    x = (x * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed, site, count):
    """Numbers 0 .. count-1 of a stream, each in (0, 1)."""
    mixed = spread(hash_text(site) ^ spread((seed + 0x9E3779B97F4A7C15) & MASK))
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    c = [block & low, block >> half, np.zeros_like(block), np.zeros_like(block)]
    k0, k1 = mixed & 0xFFFFFFFF, mixed >> 32
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> half) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> half) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.stack(c, axis=1).reshape(-1)[:count].astype(np.float64)
    return (words + 0.5) * 2.0**-32


def weights(site, shape):
    u = 2 * uniform(7, site, int(np.prod(shape, dtype=np.int64))) - 1
    return torch.tensor(np.where(u < 0, 0.9 * u - 0.1, 0.9 * u + 0.1).reshape(shape), dtype=torch.float32).double()


# ---- samples, as in src/graph/sample.h -----------------------------------------------------------------------------

TYPE = re.compile(r"(\w+)\[([\d,]*)\]\s*(?:(-?[\d.]*\d(?:e-?\d+)?)\.\.(-?\d[\d.]*(?:e-?\d+)?))?\s*")


def read_type(text):
    match = TYPE.fullmatch(text.strip() + " ")
    dtype, dims, low, high = match.groups()
    dims = [int(d) for d in dims.split(",")] if dims else []
    if low is None:
        low, high = (-1, 1) if dtype in FLOATS else (0, 1)
    return dtype, dims, float(low), float(high)


def split_types(text):
    return re.split(r",\s*(?![^\[]*\])", text) if text.strip() else []


def read_value(text):
    if text.startswith('"'):
        return text[1:-1]
    if text.startswith("["):
        return [float(v) if re.search(r"[.en]", v) else int(v) for v in text[1:-1].split(",") if v.strip()]
    return float(text) if re.search(r"[.en]", text) else int(text)


class Sample:
    def __init__(self, op, line):
        match = re.fullmatch(r"\((.*?)\)(?:\s*->\s*((?:\w+\[[\d,]*\](?:,\s*)?)+))?\s*(.*)", line)
        inputs, results, attrs = match.groups()
        self.op, self.line = op, line
        self.x = []
        for i, text in enumerate(split_types(inputs)):
            self.x.append(None if text.strip() == "_" else self.draw(i, *read_type(text)))
        self.want = [read_type(t)[:2] for t in split_types(results or "")]
        self.attrs = {k: read_value(v) for k, v in re.findall(r'(\w+)=("[^"]*"|\[[^\]]*\]|\S+)', attrs)}

    def draw(self, i, dtype, dims, low, high):
        u = uniform(i, self.op, int(np.prod(dims, dtype=np.int64))).reshape(dims)
        if dtype in FLOATS:
            return torch.tensor(low + u * (high - low), dtype=torch.float32).double().requires_grad_()
        return torch.tensor(low + np.floor(u * (high - low + 1)), dtype=torch.float64).to(INTS[dtype])

    def get(self, key, default):
        return self.attrs.get(key, default)

    def opt(self, i):
        return self.x[i] if i < len(self.x) else None

    def want_dtype(self):
        return torch.float64 if self.want[0][0] in FLOATS else INTS[self.want[0][0]]


# ---- the ops: a function of the sample that gives the results, None for what PyTorch has no counterpart of ---------

def unary(f):
    return lambda s: [f(s.x[0])]


def binary(f):
    return lambda s: [f(s.x[0], s.x[1])]


def axes_of(s):
    return tuple(s.get("axes", [])) or tuple(range(s.x[0].dim()))


def reduction(f):
    return lambda s: [f(s.x[0], dim=axes_of(s), keepdim=bool(s.get("keep", 0))) if s.x[0].dim() else f(s.x[0])]


def clip(s):
    return [torch.clamp(s.x[0], s.get("low", -float("inf")), s.get("high", float("inf")))]


def cast(s):
    dtype = s.want_dtype()
    x = s.x[0]
    if dtype not in (torch.float64, torch.bool):  # saturates, where PyTorch would wrap
        info = torch.iinfo(dtype)
        x = x.clamp(max(info.min, -2**31), min(info.max, 2**31 - 1))
    return [x.to(dtype)]


def matmul(s):
    a, b = s.x
    return [(a.mT if s.get("ta", 0) else a) @ (b.mT if s.get("tb", 0) else b)]


def sum_squares_finite(s):
    x, before = s.x[0].detach(), [t.detach() for t in s.x[1:]]
    finite = torch.isfinite(x).all()
    if not before:
        return [(x * x).sum(), finite]
    return [before[0] + (x * x).sum(), before[1].bool() & finite]


def argmax(s):
    return [torch.argmax(s.x[0], dim=s.get("axis", -1), keepdim=bool(s.get("keep", 0)))]


def cumsum(s):
    axis = s.get("axis", -1)
    if s.get("reverse", 0):
        return [s.x[0].flip(axis).cumsum(axis).flip(axis)]
    return [s.x[0].cumsum(axis)]


def cross_entropy(s):
    logits, labels = s.x
    classes = logits.shape[-1]
    how = s.get("reduction", "mean")
    flat, ignore = labels.reshape(-1).long(), s.get("ignore_index", -100)
    loss = F.cross_entropy(logits.reshape(-1, classes), flat, ignore_index=ignore, reduction=how,
                           label_smoothing=s.get("label_smoothing", 0.0))
    if how == "none":
        loss = loss.reshape(labels.shape)
    if how == "mean" and bool((flat == ignore).all()):
        loss = 0 * logits.sum()
    return [loss, torch.logsumexp(logits, dim=-1)]


def layernorm(s):
    x, eps = s.x[0], s.get("eps", 1e-5)
    mean = x.mean(-1)
    rstd = torch.rsqrt(x.var(-1, unbiased=False) + eps)
    return [F.layer_norm(x, x.shape[-1:], s.opt(1), s.opt(2), eps), mean, rstd]


def rmsnorm(s):
    x, eps = s.x[0], s.get("eps", 1e-6)
    return [F.rms_norm(x, x.shape[-1:], s.opt(1), eps), torch.rsqrt((x * x).mean(-1) + eps)]


def batchnorm(s):
    x = s.x[0]
    over = [0] + list(range(2, x.dim()))
    y = F.batch_norm(x, None, None, s.opt(1), s.opt(2), training=True, eps=s.get("eps", 1e-5))
    return [y, x.mean(over), x.var(over, unbiased=False)]


def slices(s, dims):
    start, step = s.get("start", []) or [0] * len(dims), s.get("step", []) or [1] * len(dims)
    return tuple(slice(a, a + max((n - 1) * d + 1, 0) if n else a, d) for a, d, n in zip(start, step, dims))


def take(s):
    return [s.x[0][slices(s, s.want[0][1])] if s.want[0][1] else s.x[0].clone()]


def pad(s):
    rank = s.x[0].dim()
    before, after = s.get("before", []) or [0] * rank, s.get("after", []) or [0] * rank
    both = [n for axis in reversed(range(rank)) for n in (before[axis], after[axis])]
    return [F.pad(s.x[0], both, value=s.get("value", 0)) if both else s.x[0].clone()]


def gather(s):
    """An index outside gives zero."""
    x, index, axis = s.x[0], s.x[1].long(), s.get("axis", 0)
    inside = (index >= 0) & (index < x.shape[axis])
    return [torch.gather(x, axis, index * inside) * inside.to(x.dtype)]


def scatter_add(s):
    """An index outside is left out: it goes to one more place, which is cut off."""
    index, updates = s.x[0].long(), s.x[1]
    axis, size = s.get("axis", 0), s.get("size", 0)
    inside = (index >= 0) & (index < size)
    dims = list(updates.shape)
    dims[axis] = size + 1
    return [updates.new_zeros(dims).scatter_add(axis, torch.where(inside, index, size), updates).narrow(axis, 0, size)]


def embedding(s):
    table, index = s.x[0], s.x[1].long()
    inside = (index >= 0) & (index < table.shape[0])
    return [F.embedding(index * inside, table) * inside.unsqueeze(-1)]


def one_hot(s):
    depth, labels = s.want[0][1][-1], s.x[0].long()
    return [(labels.unsqueeze(-1) == torch.arange(depth)).to(s.want_dtype())]


def iota(s):
    dims, axis = s.want[0][1], s.get("axis", 0)
    shape = [1] * len(dims)
    shape[axis] = dims[axis]
    return [torch.arange(dims[axis]).reshape(shape).expand(dims).to(s.want_dtype())]


def visible_keys(s, q, k):
    tq, tk = q.shape[2], k.shape[2]
    seen = torch.ones(q.shape[0], 1, tq, tk, dtype=torch.bool)
    if s.get("causal", 0):
        seen &= torch.arange(tk) <= torch.arange(tq).unsqueeze(-1) + tk - tq
    if s.opt(3) is not None:
        seen &= torch.arange(tk) < s.x[3].reshape(-1, 1, 1, 1)
    if s.opt(4) is not None:
        seen &= s.x[4].reshape(-1, 1, tq, 1) == s.x[4].reshape(-1, 1, 1, tk)
    return seen


def attention(s):
    """A query that sees nothing gives zeros, where PyTorch has NaN."""
    q, k, v = s.x[:3]
    seen = visible_keys(s, q, k)
    blind = ~seen.any(-1, keepdim=True)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen | blind, scale=s.get("scale", 0) or None,
                                       enable_gqa=True)
    return [y.masked_fill(blind, 0), None]


def rotary(s):
    x, position = s.x
    half = x.shape[-1] // 2
    rate = s.get("base", 10000.0) ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = position.double().unsqueeze(-1) * rate * (-1 if s.get("inverse", 0) else 1)
    if position.dim() == 2:
        angle = angle.reshape(position.shape[0], *[1] * (x.dim() - 3), position.shape[1], half)
    sin, cos = angle.sin(), angle.cos()
    if s.get("interleaved", 0):
        a, b = x[..., 0::2], x[..., 1::2]
        return [torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)]
    a, b = x[..., :half], x[..., half:]
    return [torch.cat([a * cos - b * sin, a * sin + b * cos], -1)]


def lstm(s):
    """torch.lstm_cell step by step; beyond a sequence's length y is zero, h and c stay."""
    x, h, c, w_input, w_hidden = s.x[:5]
    bias = s.opt(5) if s.opt(5) is not None else w_input.new_zeros(w_input.shape[0])
    lengths = s.opt(6) if s.opt(6) is not None else torch.full((x.shape[1],), x.shape[0])
    y = []
    for t in range(x.shape[0]):
        alive = (t < lengths).unsqueeze(-1)
        h_next, c_next = torch.lstm_cell(x[t], (h, c), w_input, w_hidden, bias, torch.zeros_like(bias))
        h, c = torch.where(alive, h_next, h), torch.where(alive, c_next, c)
        y.append(torch.where(alive, h_next, 0))
    return [torch.stack(y), h, c, None]


def conv2d(s):
    return [F.conv2d(s.x[0], s.x[1], s.opt(2), s.get("stride", [1, 1]), s.get("padding", [0, 0]),
                     s.get("dilation", [1, 1]), s.get("groups", 1))]


def pool_attrs(s):
    window = s.get("window", None)
    stride = [n or w for n, w in zip(s.get("stride", [0, 0]), window)]
    return window, stride, s.get("padding", [0, 0])


def max_pool2d(s):
    return [F.max_pool2d(s.x[0], *pool_attrs(s)), None]


def avg_pool2d(s):
    return [F.avg_pool2d(s.x[0], *pool_attrs(s), count_include_pad=not s.get("exclude_padding", 0))]


def optimizer(make, keys):
    """One step of a torch.optim optimiser whose state is given."""
    def run(s):
        tensors = [t if t is None else t.detach().clone() for t in s.x]
        n = 2 + len(keys)
        apply = n + 1 + bool(keys)
        if len(tensors) > apply and tensors[apply] is not None and not tensors[apply]:
            return [tensors[0]] + tensors[2:n]
        p, lr = torch.nn.Parameter(tensors[0]), float(tensors[n])
        step = int(tensors[n + 1]) if keys else 0
        p.grad = tensors[1]
        chosen = make(s, [p], lr)
        if keys and not (keys == ["momentum_buffer"] and step == 0):
            chosen.state[p] = dict(zip(keys, tensors[2:n]), step=torch.tensor(float(step)))
        chosen.step()
        return [p.detach()] + [chosen.state[p][k] for k in keys]
    return run


def sgd(s, params, lr):
    return torch.optim.SGD(params, lr=lr, weight_decay=s.get("weight_decay", 0))


def sgd_momentum(s, params, lr):
    return torch.optim.SGD(params, lr=lr, momentum=s.get("momentum", 0.9), dampening=s.get("dampening", 0),
                           nesterov=bool(s.get("nesterov", 0)), weight_decay=s.get("weight_decay", 0))


def adam(s, params, lr):
    kind = torch.optim.AdamW if s.get("decoupled", 1) else torch.optim.Adam
    beta1 = float(s.x[7].detach()) if len(s.x) > 7 else s.get("beta1", 0.9)
    return kind(params, lr=lr, betas=(beta1, s.get("beta2", 0.999)), eps=s.get("eps", 1e-8),
                weight_decay=s.get("weight_decay", 0))


OPS = {
    "add": binary(torch.add), "sub": binary(torch.sub), "mul": binary(torch.mul), "div": binary(torch.div),
    "pow": binary(torch.pow), "min": binary(torch.minimum), "max": binary(torch.maximum),
    "neg": unary(torch.neg), "abs": unary(torch.abs), "sign": unary(torch.sign), "exp": unary(torch.exp),
    "log": unary(torch.log), "sqrt": unary(torch.sqrt), "rsqrt": unary(torch.rsqrt),
    "reciprocal": unary(torch.reciprocal), "sin": unary(torch.sin), "cos": unary(torch.cos),
    "tanh": unary(torch.tanh), "erf": unary(torch.erf), "sigmoid": unary(torch.sigmoid), "relu": unary(torch.relu),
    "gelu": unary(F.gelu), "gelu_tanh": unary(lambda x: F.gelu(x, approximate="tanh")), "silu": unary(F.silu),
    "softplus": unary(F.softplus), "clip": clip, "cast": cast,
    "eq": binary(torch.eq), "ne": binary(torch.ne), "lt": binary(torch.lt), "le": binary(torch.le),
    "gt": binary(torch.gt), "ge": binary(torch.ge), "and": binary(torch.logical_and), "or": binary(torch.logical_or),
    "xor": binary(torch.logical_xor), "not": unary(torch.logical_not),
    "select": lambda s: [torch.where(s.x[0], s.x[1], s.x[2])],
    "fill": lambda s: [torch.full(s.want[0][1], s.get("value", 0), dtype=s.want_dtype())],
    "constant": lambda s: [torch.tensor(s.get("data", []), dtype=s.want_dtype()).reshape(s.want[0][1])],
    "iota": iota, "matmul": matmul,
    "sum": reduction(torch.sum), "mean": reduction(torch.mean), "reduce_max": reduction(torch.amax),
    "norm": reduction(torch.linalg.vector_norm), "argmax": argmax, "cumsum": cumsum,
    "all_finite": unary(lambda x: torch.isfinite(x).all()),
    "norm_finite": lambda s: [torch.linalg.vector_norm(s.x[0].detach()), torch.isfinite(s.x[0]).all()],
    "sum_squares_finite": sum_squares_finite,
    "topk": lambda s: list(torch.topk(s.x[0], s.get("k", 0), dim=-1)),
    "softmax": lambda s: [F.softmax(s.x[0], s.get("axis", -1))],
    "log_softmax": lambda s: [F.log_softmax(s.x[0], s.get("axis", -1))],
    "cross_entropy": cross_entropy, "layernorm": layernorm, "rmsnorm": rmsnorm, "batchnorm": batchnorm,
    "copy": unary(torch.clone), "reshape": lambda s: [s.x[0].reshape(s.want[0][1])],
    "permute": lambda s: [s.x[0].permute(s.get("order", []))], "slice": take,
    "concat": lambda s: [torch.cat(s.x, s.get("axis", 0))], "pad": pad,
    "expand": lambda s: [s.x[0].expand(s.want[0][1])], "gather": gather, "scatter_add": scatter_add,
    "one_hot": one_hot, "embedding": embedding,
    "attention": attention, "rotary": rotary, "lstm": lstm, "conv2d": conv2d, "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d, "sgd": optimizer(sgd, []), "sgd_momentum": optimizer(sgd_momentum, ["momentum_buffer"]),
    "adam": optimizer(adam, ["exp_avg", "exp_avg_sq"]),
}


# ---- the files -----------------------------------------------------------------------------------------------------

def lines_of(name, tensor):
    flat = tensor.detach().reshape(-1).to(torch.float64).numpy()
    step = max(1, -(-len(flat) // KEPT))
    if step > 1:
        step |= 1  # odd, so that every column of an even matrix is met
    head = f"{name} {len(flat)} {step}"
    rows, row = [], ""
    for value in flat[::step]:
        text = f"{value:.9g}"
        if len(row) + len(text) > 118:
            rows.append(row)
            row = ""
        row += (" " if row else "") + text
    return [head] + rows + ([row] if row else [])


def sample_lines(sample):
    results = OPS[sample.op](sample)
    lines = [f"sample {sample.line}"]
    loss, weighted = 0, 0
    for i, y in enumerate(results):
        if y is None:
            continue
        lines += lines_of(f"y{i}", y)
        if y.dtype == torch.float64 and y.requires_grad:
            loss = loss + (y * weights(f"w{weighted}", list(y.shape))).sum()
            weighted += 1
    if weighted:
        wanted = [(i, x) for i, x in enumerate(sample.x) if x is not None and x.requires_grad]
        grads = torch.autograd.grad(loss, [x for _, x in wanted], allow_unused=True)
        for (i, x), g in zip(wanted, grads):
            lines += lines_of(f"dx{i}", torch.zeros_like(x) if g is None else g)
    if is_empty(sample) and any(y is not None and bool(y.isnan().any()) for y in results):
        raise RuntimeError("NaN of nothing")
    return lines


def is_empty(sample):
    return any(x is not None and x.numel() == 0 for x in sample.x) or any(0 in dims for _, dims in sample.want)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = {}
    for line in sys.stdin:
        op, text = line.strip().split(" ", 1)
        if op not in OPS:
            continue
        sample = Sample(op, text.strip())
        try:
            lines = sample_lines(sample)
        except (RuntimeError, IndexError) as error:
            if not is_empty(sample):
                raise
            print(f"{op} {text}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        files.setdefault(op, []).extend(lines)
    for op, lines in files.items():
        head = f"# {op} by PyTorch {torch.__version__.split('+')[0]}; written by make_torch.py"
        (folder / f"{op}.txt").write_text("\n".join([head] + lines) + "\n")
    print(f"{len(files)} files", file=sys.stderr)


if __name__ == "__main__":
    main()
