"""PyTorch as a peer: see peer.h for the requests."""
import sys
import time


def answer(text):
    print(text, flush=True)


try:
    import torch
    import torch.nn.functional as F
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


OPS = {
    "gemm": gemm,
    "conv_forward": conv("forward"),
    "conv_data": conv("data"),
    "conv_weights": conv("weights"),
    "attention": attention,
    "lstm": lstm,
    "layernorm": layernorm,
    "adamw": adamw,
}


def main():
    torch.manual_seed(1)
    answer(f"ready: PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    last, call = None, None
    for line in sys.stdin:
        try:
            calls, op, dtype, *sizes = line.split()
            if [op, dtype, sizes] != last:
                last, call = None, None  # frees before it allocates
                call = OPS[op](DTYPES[dtype], *(int(s) if s.isdigit() else s for s in sizes))
                call()
                last = [op, dtype, sizes]
            start = time.perf_counter()
            for _ in range(int(calls)):
                call()
            answer(f"seconds={(time.perf_counter() - start) / int(calls):.9g}")
        except Exception as why:
            answer("refused: " + f"{type(why).__name__} {why}".splitlines()[0])


main()
