"""PyTorch's side of bf16_curve: trains the gpt2 of a request (JSON, the only argument) from the weights of one of our
snapshots on windows of a file of uint16 tokens, in bf16 autocast, and prints a line for each evaluation: step, loss."""
import json
import math
import struct
import sys

import numpy
import torch
from torch import nn

from peer_gpu import Model


def read_weights(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            data = numpy.frombuffer(file.read(end - begin), numpy.float32).reshape(entry["shape"])
            tensors[name.removeprefix("transformer.")] = torch.tensor(data)
    return tensors


def load(model, weights):
    names = {"first": "ln_1", "second": "ln_2", "attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj",
             "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}
    with torch.no_grad():
        model.tokens.weight.copy_(weights["wte.weight"])
        model.positions.weight.copy_(weights["wpe.weight"])
        for name, value in model.norm.named_parameters():
            value.copy_(weights["ln_f." + name])
        for i, block in enumerate(model.blocks):
            for name, value in block.named_parameters():
                layer, kind = name.rsplit(".", 1)
                given = weights[f"h.{i}.{names[layer]}.{kind}"]
                value.copy_(given.T if kind == "weight" and value.dim() == 2 else given)


def windows(tokens, length, places):
    at = torch.as_tensor(places)[:, None] + torch.arange(length + 1)[None]
    both = tokens[at.cuda()]
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def main():
    r = json.loads(sys.argv[1])
    tokens, held = (torch.tensor(numpy.fromfile(r[k], numpy.uint16).astype(numpy.int64)).cuda() for k in ("train", "held"))
    model = Model(r["model"], r["vocabulary"]).cuda()
    load(model, read_weights(r["weights"]))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
                                  r["lr"], fused=True)
    draw = numpy.random.default_rng(r["seed"])
    length, batch, steps, warmup, low = r["length"], r["batch"], r["steps"], r["warmup"], r["lr"] / 10
    compiled = torch.compile(model)
    for step in range(1, steps + 1):
        share = (step - warmup) / max(1, steps - warmup)
        rate = r["lr"] * step / warmup if step <= warmup else low + (r["lr"] - low) * 0.5 * (1 + math.cos(math.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = rate
        x, y = windows(tokens, length, draw.integers(0, len(tokens) - length, batch))
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % r["eval_every"] == 0:
            places = list(range(0, len(held) - length, length))
            places = places[:len(places) // batch * batch]
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                losses = [compiled(*windows(held, length, places[i:i + batch])).item() for i in range(0, len(places), batch)]
            print(step, sum(losses) / len(losses), flush=True)


main()
