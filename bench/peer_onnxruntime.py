"""ONNX Runtime as a peer: see peer.h for the requests. Models are written here, with random weights, and quantised as its users do:
convolutions between QuantizeLinear and DequantizeLinear (QDQ), products of gpt2 by dynamic quantisation."""
import os
import sys
import tempfile
import time


def answer(text):
    print(text, flush=True)


try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import quantization
except Exception as why:  # a broken installation fails in many ways
    answer("refused: " + (str(why).splitlines() or ["import failed"])[0])
    sys.exit(1)


class Network:
    """A graph of convolutions in f32; batchnorm is folded into them before."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0
        self.random = numpy.random.default_rng(1)

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def weight(self, array):
        name = self.name()
        self.weights.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def numbers(self, shape, deviation):
        return self.weight((self.random.standard_normal(shape) * deviation).astype(numpy.float32))

    def emit(self, op, inputs, **attributes):
        out = self.name()
        self.nodes.append(helper.make_node(op, inputs, [out], name="n" + out, **attributes))
        return out

    def conv(self, x, inputs, outputs, kernel, stride=1, groups=1):
        shape = (outputs, inputs // groups, kernel, kernel)
        w, bias = self.numbers(shape, (2 / numpy.prod(shape[1:])) ** 0.5), self.numbers(outputs, 0.1)
        return self.emit("Conv", [x, w, bias], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4,
                         group=groups)

    def relu(self, x):
        return self.emit("Relu", [x])

    def relu6(self, x):
        return self.emit("Clip", [x, self.weight(numpy.float32(0)), self.weight(numpy.float32(6))])

    def add(self, x, y):
        return self.emit("Add", [x, y])

    def head(self, x, width):
        x = self.emit("Flatten", [self.emit("GlobalAveragePool", [x])])
        return self.emit("Gemm", [x, self.numbers((1000, width), 0.02), self.numbers(1000, 0.1)], transB=1)

    def save(self, y, shape, path):
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "bench", [info("x", TensorProto.FLOAT, shape)],
                                  [info(y, TensorProto.FLOAT, None)], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def resnet18(n):
    x = n.relu(n.conv("x", 3, 64, 7, 2))
    x = n.emit("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for stage, width in enumerate([64, 128, 256, 512]):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = n.conv(n.relu(n.conv(x, inputs, width, 3, stride)), width, width, 3)
            if stride > 1:
                x = n.conv(x, inputs, width, 1, stride)
            x, inputs = n.relu(n.add(y, x)), width
    return n.head(x, 512)


def mobilenet_v2(n):
    x, inputs = n.relu6(n.conv("x", 3, 32, 3, 2)), 32
    for expansion, width, repeats, first in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                             (6, 160, 3, 2), (6, 320, 1, 1)]:
        for i in range(repeats):
            stride, inner, y = first if i == 0 else 1, inputs * expansion, x
            if expansion > 1:
                y = n.relu6(n.conv(y, inputs, inner, 1))
            y = n.conv(n.relu6(n.conv(y, inner, inner, 3, stride, inner)), inner, width, 1)
            x = n.add(x, y) if stride == 1 and inputs == width else y
            inputs = width
    return n.head(n.relu6(n.conv(x, inputs, 1280, 1)), 1280)


NETWORKS = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2}


class OneBatch(quantization.CalibrationDataReader):
    def __init__(self, x):
        self.batches = iter([{"x": x}])

    def get_next(self):
        return next(self.batches, None)


def options():
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    o.add_session_config_entry("session.intra_op.allow_spinning", "0")  # or its idle threads would spin in our turns
    return o


def session(n, y, x, change):
    """change: from the path of the model to that of another one, or None."""
    with tempfile.TemporaryDirectory() as folder:
        path, small = os.path.join(folder, "model.onnx"), os.path.join(folder, "small.onnx")
        n.save(y, x.shape, path)
        if change:
            change(path, small)
        made = onnxruntime.InferenceSession(small if change else path, options(), providers=["CPUExecutionProvider"])
    return lambda: made.run(None, {"x": x})


def network(build):
    def prepare(dtype, batch):
        n = Network()
        x = numpy.random.default_rng(2).standard_normal((int(batch), 3, 224, 224)).astype(numpy.float32)

        def change(path, small):
            whole = path + ".whole.onnx"
            quantization.shape_inference.quant_pre_process(path, whole, skip_symbolic_shape=True)
            quantization.quantize_static(whole, small, OneBatch(x), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
                                         activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)

        return session(n, build(n), x, change if dtype == "i8" else None)

    return prepare


class Transformer(Network):
    """gpt2 behind its embedding; attention as it is exported: transposes, scores, softmax."""

    def product(self, x, inputs, outputs):
        y = self.emit("MatMul", [x, self.numbers((inputs, outputs), 0.02)])
        return self.emit("Add", [y, self.numbers(outputs, 0)])

    def norm(self, x, width):
        return self.emit("LayerNormalization", [x, self.weight(numpy.ones(width, numpy.float32)), self.numbers(width, 0)],
                         axis=-1)

    def attention(self, x, width, heads, length):
        shape = self.weight(numpy.array([1, length, heads, width // heads], numpy.int64))
        q, k, v = (self.emit("Reshape", [self.product(x, width, width), shape]) for _ in range(3))
        q, k, v = (self.emit("Transpose", [x], perm=p) for x, p in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
        mask = self.weight(numpy.triu(numpy.full((length, length), -1e9, numpy.float32), 1))
        factor = self.weight(numpy.float32((width // heads) ** -0.5))
        scores = self.emit("Add", [self.emit("Mul", [self.emit("MatMul", [q, k]), factor]), mask])
        mixed = self.emit("Transpose", [self.emit("MatMul", [self.emit("Softmax", [scores], axis=-1), v])], perm=[0, 2, 1, 3])
        joined = self.emit("Reshape", [mixed, self.weight(numpy.array([1, length, width], numpy.int64))])
        return self.product(joined, width, width)

    def gelu(self, x):
        root, half, one = (self.weight(numpy.float32(v)) for v in (2**-0.5, 0.5, 1))
        erf = self.emit("Erf", [self.emit("Mul", [x, root])])
        return self.emit("Mul", [self.emit("Mul", [x, half]), self.emit("Add", [erf, one])])


def gpt2(dtype, *sizes):
    layers, heads, width, length, vocabulary = map(int, sizes)
    n, y = Transformer(), "x"
    for _ in range(layers):
        y = n.add(y, n.attention(n.norm(y, width), width, heads, length))
        y = n.add(y, n.product(n.gelu(n.product(n.norm(y, width), width, 4 * width)), 4 * width, width))
    y = n.emit("MatMul", [n.norm(y, width), n.numbers((width, vocabulary), 0.02)])
    x = numpy.random.default_rng(2).standard_normal((1, length, width)).astype(numpy.float32)

    def change(path, small):
        quantization.quantize_dynamic(path, small, weight_type=quantization.QuantType.QInt8, per_channel=True)

    return session(n, y, x, change if dtype == "i8" else None)


OPS = {"gpt2": gpt2, **{name: network(build) for name, build in NETWORKS.items()}}


def main():
    answer(f"ready: ONNX Runtime {onnxruntime.__version__}")
    last, call = None, None
    for line in sys.stdin:
        try:
            calls, op, *rest = line.split()
            if [op, rest] != last:
                last, call = None, None
                call = OPS[op](*rest)
                call()
                last = [op, rest]
            start = time.perf_counter()
            for _ in range(int(calls)):
                call()
            answer(f"seconds={(time.perf_counter() - start) / int(calls):.9g}")
        except Exception as why:
            answer("refused: " + f"{type(why).__name__} {why}".splitlines()[0])


main()
