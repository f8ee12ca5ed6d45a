#!/usr/bin/env python3
"""The translator of job.json in PyTorch: same layers, sizes, first distributions, loss, rule for batches and schedule.

    translator_torch.py prepare PAIRS.tsv.gz FOLDER      splits the pairs: train.tsv, valid.tsv
    translator_torch.py train FOLDER STEPS SEEDS LIMIT   trains with seeds 1, 2, ..: pytorch-SEED.csv; begins no run that
                                                         would probably end later than LIMIT seconds from the start
    translator_torch.py curve FOLDER SEED                what halftone's run-SEED recorded, as halftone-SEED.csv
    translator_torch.py compare FOLDER                   table.md, curves.svg; exit status 1 when we are beyond 2 %

FOLDER holds job.json and about.json, what `halftone data job.json --json` says of it: the shapes of batches are taken
from there. Order of batches and first weights are drawn by PyTorch's own random numbers.
"""
import csv
import gzip
import json
import math
import os
import re
import sys
import time
import zlib
from collections import Counter

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]

# As src/data/words.c: punctuation stands alone, an apostrophe ends its word.
SPACE = r"\t\n\v\f\r \u00a0\u3000\u202f\u2000-\u200a\ufeff"
APOSTROPHE = r"'\u2019"
MARKS = r"!\"#$%&()*+,\-./:;<=>?@\[\\\]^`{|}~\u00ab\u00bb\u00bf\u00a1\u2010-\u2018\u201a-\u2027\u3001-\u3003\u3008-\u3011"
LETTER = f"[^{SPACE}{APOSTROPHE}{MARKS}]"
WORD = re.compile(f"{LETTER}*[{APOSTROPHE}]|{LETTER}+|[{MARKS}]")


def prepare(pairs, folder):
    """Every twentieth English sentence is held out, with all its translations."""
    os.makedirs(folder, exist_ok=True)
    names = [os.path.join(folder, name) for name in ("train.tsv", "valid.tsv")]
    with gzip.open(pairs, "rb") as lines, open(names[0], "wb") as train, open(names[1], "wb") as valid:
        for line in lines:
            held_out = zlib.crc32(line.split(b"\t")[0]) % 20 == 0
            (valid if held_out else train).write(line)


# ---- pairs and batches ----


def read_pairs(path):
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield [WORD.findall(side) for side in line.rstrip("\r\n").split("\t")[:2]]


def vocabulary(sentences, least, most):
    counts = Counter(word for words in sentences for word in words)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))
    return SPECIALS + [word for word, count in ranked if count >= least][: most - len(SPECIALS)]


class Pairs:
    """Pairs by bucket, and their batches: shuffled within buckets, laid end to end, cut; then the batches shuffled."""

    def __init__(self, pairs, ids, buckets, longest, batch):
        self.shapes, self.batch = buckets, batch
        self.buckets = [[] for _ in buckets]
        for pair in pairs:
            source, target = ([ids[side].get(word, UNK) for word in words] for side, words in enumerate(pair))
            if not (0 < len(source) <= longest and 0 < len(target) < longest):
                continue
            fits = (i for i, (s, t) in enumerate(buckets) if len(source) <= s and len(target) < t)
            self.buckets[next(fits)].append((source, target))
        self.items = [(bucket, pair) for bucket, pairs in enumerate(self.buckets) for pair in pairs]

    def epoch(self, shuffled):
        items = [(b, pairs[i]) for b, pairs in enumerate(self.buckets) for i in shuffled(len(pairs))]
        whole = len(items) // self.batch
        return [items[i * self.batch : (i + 1) * self.batch] for i in shuffled(whole)]

    def all(self):
        return [self.items[i : i + self.batch] for i in range(0, len(self.items), self.batch)]

    def tensors(self, torch, device, rows):
        """A batch has the shape of its largest bucket."""
        longest_source, longest_target = self.shapes[rows[-1][0]]
        source = torch.full((len(rows), longest_source), PAD)
        target_in = torch.full((len(rows), longest_target), PAD)
        targets = torch.full((len(rows), longest_target), -1)
        lengths = torch.tensor([len(pair[0]) for _, pair in rows])
        for i, (_, (s, t)) in enumerate(rows):
            source[i, : len(s)] = torch.tensor(s)
            target_in[i, : len(t) + 1] = torch.tensor([BOS] + t)
            targets[i, : len(t) + 1] = torch.tensor(t + [EOS])
        return source.to(device), lengths, target_in.to(device), targets.to(device)


def load(folder):
    """The job, the parts of its data, and the sizes of the vocabularies; checked against what halftone data said."""
    with open(os.path.join(folder, "job.json")) as file:
        job = json.load(file)
    with open(os.path.join(folder, "about.json")) as file:
        about = json.load(file)
    data, batch = job["data"], job["train"]["batch"]
    parts = [list(read_pairs(os.path.join(folder, data[part]))) for part in ("train", "validation")]
    words = [vocabulary((pair[side] for pair in parts[0]), data["minimum_count"], data["vocabulary_size"]) for side in (0, 1)]
    ids = [{word: i for i, word in enumerate(side)} for side in words]
    buckets = [(b["source_length"], b["length"]) for b in about["buckets"]]
    sets = [Pairs(part, ids, buckets, data["max_length"], batch) for part in parts]
    ours = (about["source_vocabulary"], about["vocabulary"], about["parts"]["train"]["items"], about["parts"]["validation"]["items"])
    mine = (len(words[0]), len(words[1]), len(sets[0].items), len(sets[1].items))
    if ours != mine:
        sys.exit(f"the data is read differently: {ours} by halftone, {mine} here (source words, words, pairs, held out)")
    return job, sets, mine[:2]


# ---- model and training ----


def translator(torch, job, sizes):
    nn, functional = torch.nn, torch.nn.functional
    hidden, layers = job["model"]["hidden"], job["model"]["layers"]

    class Translator(nn.Module):
        """LSTM encoder and decoder with Luong's general attention, as src/model/seq2seq.c."""

        def __init__(self):
            super().__init__()
            self.source, self.target = (nn.Embedding(size, hidden) for size in sizes)
            for table in (self.source, self.target):
                nn.init.uniform_(table.weight, -0.1, 0.1)
            self.encoder, self.decoder = nn.LSTM(hidden, hidden, layers), nn.LSTM(hidden, hidden, layers)
            self.attention = nn.Linear(hidden, hidden, bias=False)
            self.combine = nn.Linear(2 * hidden, hidden, bias=False)
            self.generator = nn.Linear(hidden, sizes[1])

        def forward(self, source, lengths, target_in):
            packed = nn.utils.rnn.pack_padded_sequence(self.source(source.T), lengths, enforce_sorted=False)
            memory, last = self.encoder(packed)
            memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True, total_length=source.shape[1])
            states = self.decoder(self.target(target_in.T), last)[0].transpose(0, 1)
            inside = torch.arange(source.shape[1], device=source.device) < lengths.to(source.device)[:, None]
            seen = functional.scaled_dot_product_attention(
                self.attention(states), memory, memory, attn_mask=inside[:, None, :], scale=1.0
            )
            return self.generator(torch.tanh(self.combine(torch.cat((seen, states), 2))))

    return Translator()


def rate(train, steps, k):
    """halftone's "cosine": linear warm-up, then half a cosine down to lr_min."""
    high, low, warm = train["lr"], train["lr_min"], train["warmup"]
    if k < warm:
        return high * (k + 1) / (warm + 1)
    return low + (high - low) * (1 + math.cos(math.pi * min(1, (k - warm) / max(1, steps - warm)))) / 2


def train(folder, steps, seeds, limit):
    import torch

    start = time.time()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    loaded = load(folder)
    for seed in range(1, seeds + 1):
        begin = time.time()
        train_one(torch, folder, loaded, steps, seed)
        if 2 * time.time() - begin > start + limit:
            break


def train_one(torch, folder, loaded, steps, seed):
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    job, (training, validation), sizes = loaded
    how = job["train"]
    model = translator(torch, job, sizes).to(device)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": how["weight_decay"]},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=how["lr"], betas=tuple(how["betas"]), eps=how["eps"])

    def loss_of(batch, reduction):
        source, lengths, target_in, targets = batch
        logits = model(source, lengths, target_in)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction=reduction
        )

    held_out = [validation.tensors(torch, device, rows) for rows in validation.all()]
    count = sum(int((batch[3] >= 0).sum()) for batch in held_out)

    def evaluate():
        with torch.no_grad():
            return sum(float(loss_of(batch, "sum")) for batch in held_out) / count

    generator, queue, start = torch.Generator().manual_seed(seed), [], time.time()
    with open(os.path.join(folder, f"pytorch-{seed}.csv"), "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("step", "loss", "perplexity", "seconds"))
        for step in range(1, steps + 1):
            if not queue:
                queue = training.epoch(lambda count: torch.randperm(count, generator=generator).tolist())[::-1]
            for group in optimizer.param_groups:
                group["lr"] = rate(how, steps, step - 1)
            optimizer.zero_grad()
            loss_of(training.tensors(torch, device, queue.pop()), "mean").backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), how["clip"])
            optimizer.step()
            if step % how["eval_every"] == 0 or step == steps:
                loss = evaluate()
                rows.writerow((step, f"{loss:.6f}", f"{math.exp(loss):.4f}", f"{time.time() - start:.1f}"))
                file.flush()
    print(f"PyTorch {torch.__version__} on {device}, seed {seed}: {math.exp(loss):.4f} over {count} tokens")


# ---- both ----


def curve(folder, seed):
    with open(os.path.join(folder, f"run-{seed}", "metrics.jsonl")) as lines:
        records = [json.loads(line) for line in lines]
    with open(os.path.join(folder, f"halftone-{seed}.csv"), "w", newline="") as file:
        rows, spent = csv.writer(file), 0
        rows.writerow(("step", "loss", "perplexity", "seconds"))
        for r in records:
            spent += r["step_ms"] / 1e3 if r["kind"] == "step" else r["seconds"]
            if r["kind"] == "eval":
                rows.writerow((r["step"], f"{r['loss']:.6f}", f"{r['perplexity']:.4f}", f"{spent:.1f}"))


def curves(folder, prefix):
    """Perplexity by step: the mean over the seeds that are there."""
    found = sorted(name for name in os.listdir(folder) if re.fullmatch(prefix + r"-\d+\.csv", name))
    runs = []
    for name in found:
        with open(os.path.join(folder, name), newline="") as file:
            runs.append({int(row["step"]): float(row["perplexity"]) for row in csv.DictReader(file)})
    if not runs:
        sys.exit(f"{folder}: no {prefix}-SEED.csv")
    return [(step, sum(run[step] for run in runs) / len(runs)) for step in runs[0]], len(runs)


def svg(path, lines):
    """Two curves, perplexity on a logarithmic axis."""
    wide, high, left, bottom = 640, 320, 48, 36
    steps = [step for line in lines.values() for step, _ in line]
    values = [math.log(value) for line in lines.values() for _, value in line]
    low, top = min(values), max(values)

    def at(step, value):
        x = left + (wide - left - 12) * step / max(steps)
        return x, 12 + (high - bottom - 12) * (top - math.log(value)) / max(top - low, 1e-9)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
    ]
    for value in (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500):
        if low <= math.log(value) <= top:
            _, y = at(0, value)
            parts.append(f'<path d="M{left} {y:.1f}H{wide - 12}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for i in range(5):
        step = max(steps) * i // 4
        x, _ = at(step, math.exp(low))
        parts.append(f'<text x="{x:.1f}" y="{high - 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{wide // 2}" y="{high - 3}" text-anchor="middle">steps; validation perplexity</text>')
    styles = (("#c33", "1.5", ""), ("#25a", "1.5", "5 4"))
    for number, ((name, line), (color, width, dashes)) in enumerate(zip(lines.items(), styles)):
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}" stroke-dasharray="{dashes}"/>')
        parts.append(f'<text x="{wide - 20}" y="{30 + 18 * number}" text-anchor="end" fill="{color}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")


def compare(folder):
    (ours, our_seeds), (theirs, their_seeds) = curves(folder, "halftone"), curves(folder, "pytorch")
    peer, lines = dict(theirs), []
    lines.append(f"| step | Halftone, {our_seeds} seeds | PyTorch, {their_seeds} seeds | ratio |\n| --- | --- | --- | --- |")
    lines += [f"| {step} | {value:.3f} | {peer[step]:.3f} | {value / peer[step]:.3f} |" for step, value in ours if step in peer]
    table = "\n".join(lines) + "\n"
    with open(os.path.join(folder, "table.md"), "w") as file:
        file.write(table)
    svg(os.path.join(folder, "curves.svg"), {"Halftone": ours, "PyTorch": theirs})
    last = min(ours[-1][0], theirs[-1][0])
    ratio = dict(ours)[last] / peer[last]
    print(table + f"at step {last} ours is {ratio:.4f} of PyTorch's; wanted: at most 1.02")
    sys.exit(ratio > 1.02)


def main(what=None, *args):
    if what == "prepare" and len(args) == 2:
        prepare(*args)
    elif what == "train" and len(args) == 4:
        train(args[0], *(int(number) for number in args[1:]))
    elif what == "curve" and len(args) == 2:
        curve(*args)
    elif what == "compare" and len(args) == 1:
        compare(*args)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
