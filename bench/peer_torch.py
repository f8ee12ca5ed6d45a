"""PyTorch as a peer: see peer.h for the requests. With a request and a count as arguments it does that and ends."""
import resource
import sys
import time


def answer(text):
    print(text, flush=True)


try:
    import torch
    import torch.nn.functional as F
    import torch.utils.checkpoint
except Exception as why:  # a broken installation fails in many ways
    answer("refused: " + (str(why).splitlines() or ["import failed"])[0])
    sys.exit(1)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def gemm(dtype, layout, m, n, k):
    a = torch.rand(*((k, m) if layout[0] == "T" else (m, k))).sub_(0.5).to(dtype)
    b = torch.rand(*((n, k) if layout[1] == "T" else (k, n))).sub_(0.5).to(dtype)
    out = torch.empty(m, n, dtype=dtype)
    if layout[0] == "T":
        a = a.t()
    if layout[1] == "T":
        b = b.t()

    def call():
        with torch.no_grad():
            torch.mm(a, b, out=out)

    return call


def conv(direction):
    def prepare(dtype, batch, channels, height, width, out_channels, kernel):
        x = torch.rand(batch, channels, height, width, dtype=dtype).sub_(0.5)
        w = torch.rand(out_channels, channels, kernel, kernel, dtype=dtype).sub_(0.5)
        dy = torch.rand(batch, out_channels, height, width, dtype=dtype).sub_(0.5)
        padding = kernel // 2

        def call():
            with torch.no_grad():
                if direction == "forward":
                    F.conv2d(x, w, padding=padding)
                elif direction == "data":
                    torch.nn.grad.conv2d_input(x.shape, w, dy, padding=padding)
                else:
                    torch.nn.grad.conv2d_weight(x, w.shape, dy, padding=padding)

        return call

    return prepare


def attention(dtype, batch, heads, length, depth, causal):
    shape = (batch, heads, length, depth)
    q, k, v = (torch.rand(shape, dtype=dtype).sub_(0.5).requires_grad_() for _ in range(3))
    dy = torch.rand(shape, dtype=dtype).sub_(0.5)

    def call():
        y = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
        torch.autograd.grad(y, (q, k, v), dy)

    return call


def lstm(dtype, inputs, hidden, batch, steps):
    layer = torch.nn.LSTM(inputs, hidden).to(dtype)
    x = torch.rand(steps, batch, inputs, dtype=dtype).sub_(0.5).requires_grad_()
    dy = torch.rand(steps, batch, hidden, dtype=dtype).sub_(0.5)
    wrt = (x, *layer.parameters())

    def call():
        y, _ = layer(x)
        torch.autograd.grad(y, wrt, dy)

    return call


def layernorm(dtype, rows, columns):
    x = torch.rand(rows, columns, dtype=dtype).sub_(0.5).requires_grad_()
    scale = torch.ones(columns, dtype=dtype, requires_grad=True)
    shift = torch.zeros(columns, dtype=dtype, requires_grad=True)
    dy = torch.rand(rows, columns, dtype=dtype).sub_(0.5)

    def call():
        y = F.layer_norm(x, (columns,), scale, shift)
        torch.autograd.grad(y, (x, scale, shift), dy)

    return call


def adamw(dtype, n):
    p = torch.rand(n, dtype=dtype).sub_(0.5).requires_grad_()
    p.grad = torch.rand(n, dtype=dtype).sub_(0.5)
    return torch.optim.AdamW([p], lr=1e-3, fused=True).step


def adamw_and_cast(dtype, n):
    p = torch.rand(n, dtype=dtype).sub_(0.5).requires_grad_()
    p.grad = torch.rand(n, dtype=dtype).sub_(0.5)
    half = torch.empty(n, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)

    def call():
        optimizer.step()
        half.copy_(p.detach())

    return call


# ---- training steps ----


def stepper(model, loss_of, optimizer):
    def call():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        # Every step of Halftone's reports the gradients' norm and passes over gradients that are not finite; PyTorch's
        # plain loop does neither, and is not asked to.
        optimizer.step()

    return call


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.norm2 = torch.nn.LayerNorm(width)
        self.fc = torch.nn.Linear(width, 4 * width)
        self.proj = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, layers, heads, width, length, vocabulary, checkpointed=False):
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        torch.nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.norm(x) @ self.tokens.weight.t()


def compiled(model, wanted):
    return torch.compile(model) if wanted else model


def train_gpt2(fast, half=None, checkpointed=False):
    def prepare(dtype, layers, heads, width, length, vocabulary, batch):
        def loss(m):
            with torch.autocast("cpu", half or torch.bfloat16, enabled=half is not None):
                return F.cross_entropy(m(tokens).view(batch * length, vocabulary), targets)

        model = compiled(Gpt2(layers, heads, width, length, vocabulary, checkpointed).to(dtype), fast)
        tokens = torch.randint(vocabulary, (batch, length))
        targets = torch.randint(vocabulary, (batch * length,))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return stepper(model, loss, optimizer)

    return prepare


class Translator(torch.nn.Module):
    def __init__(self, layers, hidden, vocabulary):
        super().__init__()
        self.source = torch.nn.Embedding(vocabulary, hidden)
        self.target = torch.nn.Embedding(vocabulary, hidden)
        self.encoder = torch.nn.LSTM(hidden, hidden, layers)
        self.decoder = torch.nn.LSTM(hidden, hidden, layers)
        self.attention = torch.nn.Linear(hidden, hidden, bias=False)
        self.combine = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.generator = torch.nn.Linear(hidden, vocabulary)

    def forward(self, source, target):
        memory, last = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(target), last)
        memory, states = memory.transpose(0, 1), states.transpose(0, 1)
        seen = F.scaled_dot_product_attention(self.attention(states), memory, memory, scale=1.0)
        return self.generator(torch.tanh(self.combine(torch.cat((seen, states), 2))))


def train_seq2seq(fast):
    def prepare(dtype, layers, hidden, batch, length, vocabulary):
        model = compiled(Translator(layers, hidden, vocabulary).to(dtype), fast)
        source, target = (torch.randint(vocabulary, (length, batch)) for _ in range(2))
        targets = torch.randint(vocabulary, (batch * length,))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        return stepper(model, lambda m: F.cross_entropy(m(source, target).reshape(-1, vocabulary), targets), optimizer)

    return prepare


class Residual(torch.nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(out)
        self.conv2 = torch.nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(out)
        self.short = torch.nn.Identity()
        if stride != 1 or inside != out:
            self.short = torch.nn.Sequential(torch.nn.Conv2d(inside, out, 1, stride, bias=False), torch.nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet18():
    layers = [torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    inside = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(inside, out, stride), Residual(out, out, 1)]
        inside = out
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10))


def train_resnet18(fast):
    def prepare(dtype, batch):
        model = compiled(resnet18().to(dtype), fast)
        x = torch.rand(batch, 3, 32, 32, dtype=dtype).sub_(0.5)
        labels = torch.randint(10, (batch,))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        return stepper(model, lambda m: F.cross_entropy(m(x), labels), optimizer)

    return prepare


OPS = {
    "gemm": gemm,
    "conv_forward": conv("forward"),
    "conv_data": conv("data"),
    "conv_weights": conv("weights"),
    "attention": attention,
    "lstm": lstm,
    "layernorm": layernorm,
    "adamw": adamw,
    "adamw_and_cast": adamw_and_cast,
    "train_gpt2": train_gpt2(False),
    "checkpointed_train_gpt2": train_gpt2(False, checkpointed=True),
    "autocast_train_gpt2": train_gpt2(False, torch.bfloat16),
    "train_seq2seq": train_seq2seq(False),
    "train_resnet18": train_resnet18(False),
    "compiled_train_gpt2": train_gpt2(True),
    "compiled_train_seq2seq": train_seq2seq(True),
    "compiled_train_resnet18": train_resnet18(True),
}


def prepare(op, dtype, *sizes):
    return OPS[op](DTYPES[dtype], *(int(s) if s.isdigit() else s for s in sizes))


def peak_kilobytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident_kilobytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def once(request, calls):
    loaded = resident_kilobytes()
    call = prepare(*request.split())
    for _ in range(calls):
        call()
    answer(f"kilobytes={peak_kilobytes() - loaded}")


def main():
    torch.manual_seed(1)
    answer(f"ready: PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    last, call = None, None
    for line in sys.stdin:
        try:
            calls, op, dtype, *sizes = line.split()
            if [op, dtype, sizes] != last:
                last, call = None, None  # frees before it allocates
                call = prepare(op, dtype, *sizes)
                call()
                last = [op, dtype, sizes]
            start = time.perf_counter()
            for _ in range(int(calls)):
                call()
            answer(f"seconds={(time.perf_counter() - start) / int(calls):.9g}")
        except Exception as why:
            answer("refused: " + f"{type(why).__name__} {why}".splitlines()[0])


if len(sys.argv) > 2:
    once(sys.argv[1], int(sys.argv[2]))
else:
    main()
