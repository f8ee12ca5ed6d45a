#!/usr/bin/env python3
"""Writes tests/reference/models/NAME.txt: losses, logits and gradients of small models by PyTorch, for
test_model_torch.c.

    tests/reference/make_models.py [FOLDER]

The models are written here anew, from their papers and in PyTorch's own layers, so that a mistake in src/model shows.
Parameters, tokens and images are a pure function of their names (as in tests/support/model_fixture.c), so that the files hold
settings and results only:

    model gpt2 {"n_layer": 2, ...}
    request batch 2 length 6 vocabulary 13
    eval 41.2            the sum of losses with dropout off and running statistics
    train 41.2           the same with batch statistics: what gradients are of
    logits 156 1         elements of the eval logits, and every how many of them is written
    ...
    grad NAME DOT NORM   of each parameter: its gradient's product with a fixed vector, and its length

PyTorch computes in float64 on parameters rounded to float32.
"""
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
KEPT = 160


def number(name, count):
    """Within ±0.5."""
    offset = sum((i + 1) * c for i, c in enumerate(name.encode()))
    x = np.sin(np.arange(count, dtype=np.float64) * 12.9898 + offset * 0.1) * 43758.5453
    return x - np.floor(x) - 0.5


class Case:
    def __init__(self, kind, config, **request):
        self.kind, self.config, self.r = kind, config, request
        self.params, self.training = {}, False
        self.__dict__.update(request)

    def p(self, name, *shape):
        """The parameter of that name, made at its first use."""
        if name not in self.params:
            one = len(shape) == 1 and (name.endswith("weight") or name.endswith("var"))
            v = (1.0 if one else 0.0) + 0.4 * number(name, int(np.prod(shape)))
            v = torch.from_numpy(v.astype(np.float32).astype(np.float64)).reshape(shape)
            self.params[name] = v.requires_grad_("running_" not in name)
        return self.params[name]

    def ints(self, name, shape, top, low=0):
        u = number(name, int(np.prod(shape))) + 0.5
        return torch.from_numpy((low + np.floor(u * top)).astype(np.int64)).reshape(shape)

    def targets(self):
        t = self.ints("targets", (self.batch, self.length), self.vocabulary).reshape(-1)
        t[torch.arange(len(t)) % 5 == 3] = -1
        return t

    def linear(self, name, x, out, bias=True, in_first=False):
        n = x.shape[-1]
        w = self.p(name + ".weight", n, out).T if in_first else self.p(name + ".weight", out, n)
        return F.linear(x, w, self.p(name + ".bias", out) if bias else None)

    def norm(self, name, x, eps, bias=True):
        n = x.shape[-1]
        return F.layer_norm(x, (n,), self.p(name + ".weight", n), self.p(name + ".bias", n) if bias else None, eps)

    def heads(self, x, n):
        return x.reshape(self.batch, self.length, n, -1).transpose(1, 2)

    def unheads(self, x):
        return x.transpose(1, 2).reshape(self.batch, self.length, -1)

    def loss(self, logits):
        if "classes" in self.r:
            return F.cross_entropy(logits, self.ints("label", (self.batch,), self.classes), reduction="sum")
        return F.cross_entropy(logits.reshape(-1, self.vocabulary), self.targets(), ignore_index=-1, reduction="sum")


# ---- models --------------------------------------------------------------------------------------------------------

def gpt2(m):
    c = m.config
    n, h, bias, eps = c["n_embd"], c["n_head"], c.get("bias", True), 1e-5
    act = {"gelu_tanh": lambda v: F.gelu(v, approximate="tanh"), "gelu": F.gelu}[c.get("activation", "gelu_tanh")]
    tokens = m.ints("tokens", (m.batch, m.length), m.vocabulary)
    wte = m.p("transformer.wte.weight", m.vocabulary, n)
    x = wte[tokens] + m.p("transformer.wpe.weight", c.get("n_positions", m.length), n)[:m.length]
    for i in range(c["n_layer"]):
        at = f"transformer.h.{i}."
        y = m.linear(at + "attn.c_attn", m.norm(at + "ln_1", x, eps, bias), 3 * n, bias, True)
        q, k, v = (m.heads(part, h) for part in y.split(n, dim=2))
        y = m.unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        x = x + m.linear(at + "attn.c_proj", y, n, bias, True)
        y = act(m.linear(at + "mlp.c_fc", m.norm(at + "ln_2", x, eps, bias), 4 * n, bias, True))
        x = x + m.linear(at + "mlp.c_proj", y, n, bias, True)
    x = m.norm("transformer.ln_f", x, eps, bias)
    return x @ (wte if c.get("tie_word_embeddings", True) else m.p("lm_head.weight", m.vocabulary, n)).T


def rotate(x, theta):
    """Pairs (j, j + D/2), turned by position × theta^(-2j/D)."""
    d, t = x.shape[-1], x.shape[-2]
    angle = torch.arange(t)[:, None] * theta ** (-torch.arange(0, d, 2) / d)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def llama(m):
    c = m.config
    n, h, g, inner = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"]
    d, eps, theta = n // h, 1e-6, c.get("rope_theta", 10000.0)

    def rms(name, v):
        return F.rms_norm(v, (n,), m.p(name + ".weight", n), eps)

    table = m.p("model.embed_tokens.weight", m.vocabulary, n)
    x = table[m.ints("tokens", (m.batch, m.length), m.vocabulary)]
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = rms(at + "input_layernorm", x)
        q = rotate(m.heads(m.linear(at + "self_attn.q_proj", y, n, False), h), theta)
        k = rotate(m.heads(m.linear(at + "self_attn.k_proj", y, g * d, False), g), theta)
        v = m.heads(m.linear(at + "self_attn.v_proj", y, g * d, False), g)
        k, v = k.repeat_interleave(h // g, dim=1), v.repeat_interleave(h // g, dim=1)
        y = m.unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        x = x + m.linear(at + "self_attn.o_proj", y, n, False)
        y = rms(at + "post_attention_layernorm", x)
        y = F.silu(m.linear(at + "mlp.gate_proj", y, inner, False)) * m.linear(at + "mlp.up_proj", y, inner, False)
        x = x + m.linear(at + "mlp.down_proj", y, n, False)
    x = rms("model.norm", x)
    return x @ (table if c.get("tie_word_embeddings", False) else m.p("lm_head.weight", m.vocabulary, n)).T


def bert(m):
    c = m.config
    n, h, eps = c["hidden_size"], c["num_attention_heads"], 1e-12
    length = m.ints("length", (m.batch,), m.length, 1)
    hidden = torch.where(torch.arange(m.length)[None] < length[:, None], 0.0, -math.inf)[:, None, None]
    at = "bert.embeddings."
    table = m.p(at + "word_embeddings.weight", m.vocabulary, n)
    x = table[m.ints("tokens", (m.batch, m.length), m.vocabulary)]
    x = x + m.p(at + "position_embeddings.weight", c["max_position_embeddings"], n)[:m.length]
    x = m.norm(at + "LayerNorm", x + m.p(at + "token_type_embeddings.weight", 2, n)[0], eps)
    for i in range(c["num_hidden_layers"]):
        at = f"bert.encoder.layer.{i}."
        q, k, v = (m.heads(m.linear(at + "attention.self." + s, x, n), h) for s in ("query", "key", "value"))
        y = m.unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=hidden))
        x = m.norm(at + "attention.output.LayerNorm", m.linear(at + "attention.output.dense", y, n) + x, eps)
        y = F.gelu(m.linear(at + "intermediate.dense", x, 4 * n))
        x = m.norm(at + "output.LayerNorm", m.linear(at + "output.dense", y, n) + x, eps)
    if "classes" in m.r:
        return m.linear("classifier", torch.tanh(m.linear("bert.pooler.dense", x[:, 0], n)), m.classes)
    at = "cls.predictions."
    x = m.norm(at + "transform.LayerNorm", F.gelu(m.linear(at + "transform.dense", x, n)), eps)
    return x @ table.T + m.p(at + "bias", m.vocabulary)


def lstm(m, name, x, hidden, layers, state=None, lengths=None):
    """x [T, B, I] through torch.nn.LSTM; outputs are zero beyond a sequence's length."""
    net = torch.nn.LSTM(x.shape[2], hidden, layers)
    names = [n for n, _ in net.named_parameters()]
    values = {n: m.p(f"{name}.{n}", *p.shape) for n, p in net.named_parameters()}
    assert len(names) == 4 * layers
    if lengths is None:
        return torch.func.functional_call(net, values, (x, state) if state else (x,))
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    out, last = torch.func.functional_call(net, values, (packed,))
    return torch.nn.utils.rnn.pad_packed_sequence(out, total_length=x.shape[0])[0], last


def lstm_lm(m):
    c = m.config
    tokens = m.ints("tokens", (m.batch, m.length), m.vocabulary)
    x = m.p("encoder.weight", m.vocabulary, c["embedding"])[tokens.T]
    y, _ = lstm(m, "rnn", x, c["hidden"], c["layers"])
    return m.linear("decoder", y, m.vocabulary).transpose(0, 1)


def seq2seq(m):
    c = m.config
    n, layers, width = c["hidden"], c["layers"], c.get("embedding", c["hidden"])
    source = m.ints("source", (m.batch, m.source_length), m.source_vocabulary)
    lengths = m.ints("source_length", (m.batch,), m.source_length, 1)
    target = m.ints("target_in", (m.batch, m.length), m.vocabulary)
    x = m.p("encoder.embedding.weight", m.source_vocabulary, width)[source.T]
    memory, state = lstm(m, "encoder.rnn", x, n, layers, lengths=lengths)
    s, _ = lstm(m, "decoder.rnn", m.p("decoder.embedding.weight", m.vocabulary, width)[target.T], n, layers, state)
    memory, s = memory.transpose(0, 1), s.transpose(0, 1)
    q = m.linear("attention", s, n, False) if c.get("attention", "general") == "general" else s
    scores = q @ memory.transpose(1, 2)
    scores = scores.masked_fill(torch.arange(m.source_length)[None, None] >= lengths[:, None, None], -math.inf)
    seen = torch.softmax(scores, -1) @ memory
    return m.linear("generator", torch.tanh(m.linear("combine", torch.cat([seen, s], -1), n, False)), m.vocabulary)


def images(m):
    shape = (m.batch,) + tuple(m.feature)
    x = (2 * number("x", int(np.prod(shape)))).astype(np.float32).astype(np.float64)
    return torch.from_numpy(x).reshape(shape)


def conv(m, name, x, out, kernel, stride=1, padding=0, bias=False):
    w = m.p(name + ".weight", out, x.shape[1], kernel, kernel)
    return F.conv2d(x, w, m.p(name + ".bias", out) if bias else None, stride, padding)


def batchnorm(m, name, x):
    n = x.shape[1]
    scale, shift = m.p(name + ".weight", n), m.p(name + ".bias", n)
    mean, var = m.p(name + ".running_mean", n), m.p(name + ".running_var", n)
    return F.batch_norm(x, mean.clone(), var.clone(), scale, shift, m.training, 0.1, 1e-5)


def resnet(m):
    width, depth = m.config["width"], m.config.get("depth", 18)
    wide = depth == 50
    x = images(m)
    if m.config.get("stem") == "cifar":
        x = F.relu(batchnorm(m, "bn1", conv(m, "conv1", x, width, 3, 1, 1)))
    else:
        x = F.max_pool2d(F.relu(batchnorm(m, "bn1", conv(m, "conv1", x, width, 7, 2, 3))), 3, 2, 1)
    for stage, blocks in enumerate({18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3]}[depth]):
        n = width << stage
        out = 4 * n if wide else n
        for i in range(blocks):
            at = f"layer{stage + 1}.{i}."
            stride = 2 if stage > 0 and i == 0 else 1
            if wide:
                y = F.relu(batchnorm(m, at + "bn1", conv(m, at + "conv1", x, n, 1)))
                y = F.relu(batchnorm(m, at + "bn2", conv(m, at + "conv2", y, n, 3, stride, 1)))
                y = batchnorm(m, at + "bn3", conv(m, at + "conv3", y, out, 1))
            else:
                y = F.relu(batchnorm(m, at + "bn1", conv(m, at + "conv1", x, n, 3, stride, 1)))
                y = batchnorm(m, at + "bn2", conv(m, at + "conv2", y, n, 3, 1, 1))
            if stride != 1 or x.shape[1] != out:
                x = batchnorm(m, at + "downsample.1", conv(m, at + "downsample.0", x, out, 1, stride))
            x = F.relu(x + y)
    return m.linear("fc", x.mean((2, 3)), m.classes)


def lenet(m):
    x = images(m).reshape(m.batch, 1, *m.feature[-2:])
    x = F.max_pool2d(F.relu(conv(m, "conv1", x, 6, 5, 1, 2, True)), 2)
    x = F.max_pool2d(F.relu(conv(m, "conv2", x, 16, 5, 1, 0, True)), 2).flatten(1)
    x = F.relu(m.linear("fc2", F.relu(m.linear("fc1", x, 120)), 84))
    return m.linear("fc3", x, m.classes)


CASES = {
    "gpt2": Case("gpt2", {"n_layer": 2, "n_head": 2, "n_embd": 16}, task="lm", batch=2, length=6, vocabulary=13),
    "gpt2_nano": Case("gpt2", {"n_layer": 2, "n_head": 4, "n_embd": 16, "bias": False, "activation": "gelu",
                               "n_positions": 9, "tie_word_embeddings": False},
                      task="lm", batch=2, length=6, vocabulary=13),
    "llama": Case("llama", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "intermediate_size": 24},
                  task="lm", batch=2, length=6, vocabulary=13),
    "llama_tied": Case("llama", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                                 "num_key_value_heads": 2, "intermediate_size": 20, "rope_theta": 500.0,
                                 "tie_word_embeddings": True}, task="lm", batch=2, length=7, vocabulary=11),
    "bert": Case("bert", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                          "max_position_embeddings": 10, "hidden_dropout_prob": 0},
                 task="masked_lm", batch=3, length=6, vocabulary=13),
    "bert_class": Case("bert", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4,
                                "max_position_embeddings": 6, "hidden_dropout_prob": 0},
                       task="class", batch=3, length=6, vocabulary=13, classes=4),
    "lstm_lm": Case("lstm_lm", {"hidden": 10, "layers": 2, "embedding": 7},
                    task="lm", batch=3, length=5, vocabulary=13),
    "seq2seq": Case("seq2seq", {"hidden": 10, "layers": 2, "embedding": 6}, task="pairs", batch=4, length=5,
                    source_length=7, vocabulary=13, source_vocabulary=9),
    "seq2seq_dot": Case("seq2seq", {"hidden": 8, "layers": 3, "attention": "dot"}, task="pairs", batch=2, length=5,
                        source_length=6, vocabulary=11, source_vocabulary=9),
    "resnet": Case("resnet", {"width": 4, "stem": "cifar"}, task="class", batch=4, classes=5, feature=[3, 16, 16]),
    "resnet50": Case("resnet", {"width": 4, "depth": 50}, task="class", batch=6, classes=5, feature=[3, 64, 64]),
    "lenet": Case("lenet", {}, task="class", batch=2, classes=10, feature=[28, 28]),
}
BUILD = {f.__name__: f for f in (gpt2, llama, bert, lstm_lm, seq2seq, resnet, lenet)}


def text(m):
    words = [f"model {m.kind} {json.dumps(m.config)}"]
    words.append("request " + " ".join(f"{k} {' '.join(map(str, v)) if isinstance(v, list) else v}"
                                       for k, v in m.r.items()))
    logits = BUILD[m.kind](m)
    words.append(f"eval {m.loss(logits).item():.9g}")
    m.training = True
    loss = m.loss(BUILD[m.kind](m))
    words.append(f"train {loss.item():.9g}")
    flat = logits.detach().reshape(-1)
    every = (len(flat) + KEPT - 1) // KEPT
    words.append(f"logits {len(flat)} {every}")
    words.append(" ".join(f"{v:.7g}" for v in flat[::every].tolist()))
    loss.backward()
    for name, p in m.params.items():
        if p.grad is None:
            continue
        g = p.grad.reshape(-1)
        dot = (g * torch.from_numpy(number("probe", len(g)))).sum()
        words.append(f"grad {name} {dot.item():.9g} {g.norm().item():.9g}")
    return "\n".join(words) + "\n"


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "models")
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        (folder / f"{name}.txt").write_text(text(case))


if __name__ == "__main__":
    main()
