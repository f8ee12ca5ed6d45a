#!/usr/bin/env python3
"""FLOPs of training steps as PyTorch's FlopCounterMode counts them, for tests/plan/test_plan_flops.c: flops.tsv.

    python3 make_flops.py > flops.tsv        (PyTorch for the CPU; a minute)

Each model is written here once more, from the same sizes. Attention is scaled_dot_product_attention, whose fused kernel
the counter knows: two products forward and five backward, causal ones counted whole. LSTMs run as plain products
(mkldnn's own layer is not counted), with initial states that need a gradient, as the op here always computes it."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def count(name, step):
    """step() gives a loss; its FLOPs, then those of backward."""
    counter = FlopCounterMode(display=False)
    with counter, torch.backends.mkldnn.flags(enabled=False):
        loss = step()
        forward = counter.get_total_flops()
        loss.backward()
    print(name, forward, counter.get_total_flops() - forward, sep="\t", flush=True)


def heads(x, batch, length, count_):
    return x.view(batch, length, count_, -1).transpose(1, 2)


def attend(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def gpt2(layers, n_heads, width, vocabulary, batch, length):
    table = nn.Embedding(vocabulary, width)
    blocks = [[nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width),
               nn.Linear(4 * width, width)] for _ in range(layers)]
    tokens = torch.zeros(batch, length, dtype=torch.long)

    def step():
        x = table(tokens)
        for qkv, out, up, down in blocks:
            q, k, v = qkv(F.layer_norm(x, (width,))).split(width, 2)
            y = attend(*(heads(t, batch, length, n_heads) for t in (q, k, v)), True)
            x = x + out(y.transpose(1, 2).reshape(batch, length, width))
            x = x + down(F.gelu(up(F.layer_norm(x, (width,)))))
        logits = F.linear(x, table.weight)
        return F.cross_entropy(logits.view(-1, vocabulary), tokens.view(-1))

    return step


def llama(layers, n_heads, groups, width, inner, vocabulary, batch, length):
    head = width // n_heads
    table, last = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)

    def linear(a, b):
        return nn.Linear(a, b, bias=False)

    blocks = [[linear(width, width), linear(width, groups * head), linear(width, groups * head), linear(width, width),
               linear(width, inner), linear(width, inner), linear(inner, width)] for _ in range(layers)]
    tokens = torch.zeros(batch, length, dtype=torch.long)

    def step():
        x = table(tokens)
        for q, k, v, out, gate, up, down in blocks:
            n = F.rms_norm(x, (width,))
            keys, values = (heads(w(n), batch, length, groups).repeat_interleave(n_heads // groups, 1) for w in (k, v))
            y = attend(heads(q(n), batch, length, n_heads), keys, values, True)
            x = x + out(y.transpose(1, 2).reshape(batch, length, width))
            n = F.rms_norm(x, (width,))
            x = x + down(F.silu(gate(n)) * up(n))
        return F.cross_entropy(last(x).view(-1, vocabulary), tokens.view(-1))

    return step


def resnet50(batch, size, classes):
    def conv(in_, out, kernel, stride=1):
        return nn.Conv2d(in_, out, kernel, stride, kernel // 2, bias=False)

    stem, blocks, in_ = conv(3, 64, 7, 2), [], 64
    for width, times, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(times):
            s = stride if i == 0 else 1
            blocks.append((conv(in_, width, 1), conv(width, width, 3, s), conv(width, 4 * width, 1),
                           conv(in_, 4 * width, 1, s) if i == 0 else nn.Identity()))
            in_ = 4 * width
    last = nn.Linear(in_, classes)

    def step():
        x = F.max_pool2d(F.relu(stem(torch.zeros(batch, 3, size, size))), 3, 2, 1)
        for a, b, c, skip in blocks:
            x = F.relu(c(F.relu(b(F.relu(a(x))))) + skip(x))
        return F.cross_entropy(last(x.mean((2, 3))), torch.zeros(batch, dtype=torch.long))

    return step


def seq2seq(layers, hidden, source_vocabulary, vocabulary, batch, source, length):
    tables = nn.Embedding(source_vocabulary, hidden), nn.Embedding(vocabulary, hidden)
    encoder, decoder = (nn.LSTM(hidden, hidden, layers, batch_first=True) for _ in range(2))
    query, combine = nn.Linear(hidden, hidden, bias=False), nn.Linear(2 * hidden, hidden, bias=False)
    last = nn.Linear(hidden, vocabulary)
    zero = [torch.zeros(layers, batch, hidden, requires_grad=True) for _ in range(2)]
    tokens = torch.zeros(batch, length, dtype=torch.long)

    def step():
        memory, state = encoder(tables[0](torch.zeros(batch, source, dtype=torch.long)), tuple(zero))
        s, _ = decoder(tables[1](tokens), state)
        keys = memory[:, None]
        seen = F.scaled_dot_product_attention(query(s)[:, None], keys, keys, scale=1)[:, 0]
        y = torch.tanh(combine(torch.cat((seen, s), 2)))
        return F.cross_entropy(last(y).view(-1, vocabulary), tokens.view(-1))

    return step


print("# model, FLOPs forward, FLOPs backward; make_flops.py, PyTorch", torch.__version__.split("+")[0])
count("gpt2", gpt2(12, 12, 768, 50257, 1, 128))
count("llama", llama(6, 6, 2, 288, 768, 1000, 2, 128))
count("resnet", resnet50(1, 224, 1000))
count("seq2seq", seq2seq(2, 64, 300, 200, 4, 11, 13))
