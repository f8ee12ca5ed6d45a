"""PyTorch as a peer on a GPU: trains the model of a request (JSON, the only argument) with torch.compile, on random tokens
(fused AdamW) or pictures (channels last, SGD with momentum) that are on the GPU, and prints {"ms", "bytes"}: the median step of the second half, the most memory held."""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, groups, bias, rotary):
        super().__init__()
        self.heads, self.groups, self.size, self.rotary = heads, groups, width // heads, rotary
        self.qkv = nn.Linear(width, width + 2 * groups * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x, angles):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split([width, self.groups * self.size, self.groups * self.size], 2)
        q = q.view(batch, length, self.heads, self.size).transpose(1, 2)
        k = k.view(batch, length, self.groups, self.size).transpose(1, 2)
        v = v.view(batch, length, self.groups, self.size).transpose(1, 2)
        if self.rotary:
            q, k = turn(q, angles), turn(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.groups)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def turn(x, angles):
    a, b = x.chunk(2, -1)
    cos, sin = angles
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, width, inner, gated):
        super().__init__()
        self.gated = gated
        self.up = nn.Linear(width, inner, bias=not gated)
        self.gate = nn.Linear(width, inner, bias=False) if gated else None
        self.down = nn.Linear(inner, width, bias=not gated)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x) if self.gated else F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads, groups, inner, llama):
        super().__init__()
        norm = nn.RMSNorm if llama else nn.LayerNorm
        self.first, self.second = norm(width), norm(width)
        self.attention = Attention(width, heads, groups, not llama, llama)
        self.mlp = Mlp(width, inner, llama)

    def forward(self, x, angles):
        x = x + self.attention(self.first(x), angles)
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    def __init__(self, m, vocabulary):
        super().__init__()
        self.llama = m["type"] == "llama"
        width = m["hidden_size" if self.llama else "n_embd"]
        heads = m["num_attention_heads" if self.llama else "n_head"]
        groups = m["num_key_value_heads"] if self.llama else heads
        layers = m["num_hidden_layers" if self.llama else "n_layer"]
        inner = m["intermediate_size"] if self.llama else 4 * width
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if self.llama else nn.Embedding(m["n_positions"], width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, inner, self.llama) for _ in range(layers))
        self.norm = nn.RMSNorm(width) if self.llama else nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if not self.llama:
            self.head.weight = self.tokens.weight
        half = width // heads // 2
        self.register_buffer("rates", 10000.0 ** (-torch.arange(half) / half))

    def forward(self, x, targets):
        places = torch.arange(x.shape[1], device=x.device)
        h = self.tokens(x) if self.llama else self.tokens(x) + self.positions(places)
        angle = places[:, None] * self.rates
        for block in self.blocks:
            h = block(h, (angle.cos(), angle.sin()))
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def norm(width):
    return nn.BatchNorm2d(width)


class Bottleneck(nn.Module):
    def __init__(self, width, inner, stride):
        super().__init__()
        out = 4 * inner
        self.first, self.first_norm = nn.Conv2d(width, inner, 1, bias=False), norm(inner)
        self.second, self.second_norm = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), norm(inner)
        self.third, self.third_norm = nn.Conv2d(inner, out, 1, bias=False), norm(out)
        self.shortcut = None
        if stride != 1 or width != out:
            self.shortcut = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), norm(out))

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        y = F.relu(self.second_norm(self.second(y)))
        return F.relu(self.third_norm(self.third(y)) + (self.shortcut(x) if self.shortcut else x))


class Resnet(nn.Module):
    """ResNet-50."""

    def __init__(self, classes):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), norm(64)
        blocks, width = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(width, 64 << stage, 2 if stage and i == 0 else 1))
                width = 256 << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def forward(self, x, targets):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        logits = self.head(self.blocks(x).mean((2, 3)))
        return F.cross_entropy(logits.float(), targets)


def make_pictures(request):
    x = torch.randn(request["batch"], 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, request["vocabulary"], (request["batch"],), device="cuda")
    model = Resnet(request["vocabulary"]).cuda().to(memory_format=torch.channels_last)
    return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, fused=True), x, y


def make_text(request):
    shape = (request["batch"], request["length"])
    x = torch.randint(0, request["vocabulary"], shape, device="cuda")
    y = torch.randint(0, request["vocabulary"], shape, device="cuda")
    make = Translator if request["model"]["type"] == "seq2seq" else Model
    model = make(request["model"], request["vocabulary"]).cuda()
    return model, torch.optim.AdamW(model.parameters(), 3e-4, fused=True), x, y


class Translator(nn.Module):
    """LSTM encoder and decoder with global attention, as ours; every sentence has the full length."""

    def __init__(self, m, vocabulary):
        super().__init__()
        size, layers = m["hidden"], m["layers"]
        self.source, self.target = nn.Embedding(vocabulary, size), nn.Embedding(vocabulary, size)
        self.encoder = nn.LSTM(size, size, layers, batch_first=True)
        self.decoder = nn.LSTM(size, size, layers, batch_first=True)
        self.attention = nn.Linear(size, size, bias=False)
        self.combine = nn.Linear(2 * size, size, bias=False)
        self.generator = nn.Linear(size, vocabulary)

    def forward(self, x, targets):
        memory, state = self.encoder(self.source(x))
        s, _ = self.decoder(self.target(targets), state)
        weights = torch.softmax(self.attention(s) @ memory.transpose(1, 2), -1)
        y = torch.tanh(self.combine(torch.cat((weights.to(memory.dtype) @ memory, s), -1)))
        logits = self.generator(y)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def main():
    request = json.loads(sys.argv[1])
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(request["precision"])
    pictures = request["model"]["type"] == "resnet"
    model, optimizer, x, y = make_pictures(request) if pictures else make_text(request)
    recurrent = request["model"]["type"] == "seq2seq"  # which torch.compile leaves to cuDNN
    compiled = model if recurrent else torch.compile(model)
    scaler = torch.amp.GradScaler("cuda", enabled=half is torch.float16)
    times = []
    for _ in range(request["steps"]):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.autocast("cuda", half or torch.float32, enabled=half is not None):
            loss = compiled(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if not pictures:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        times.append((begin, end))
    torch.cuda.synchronize()
    ms = [begin.elapsed_time(end) for begin, end in times]
    print(json.dumps({"ms": statistics.median(ms[len(ms) // 2:]), "bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
