"""What is around a program: opsets, types of inputs and outputs, shapes that vary, images, labels, functions, metadata."""

import pathlib
import tempfile

import numpy as np

from .common import TARGETS, call, converted, ct, floats, ints, mb, package, types


# Opsets, and types of inputs and outputs
def arithmetic(opset, dtype, kind):
    def make():
        @mb.program(input_specs=[mb.TensorSpec((2, 3), dtype=kind)], opset_version=TARGETS[opset])
        def program(x):
            y = mb.add(x=x, y=np.array([1, 2, 3], dtype), name="sum")
            return mb.mul(x=y, y=dtype(2), name="out")

        x = ints(2, 3).astype(dtype)
        return converted(program, TARGETS[opset]), call(({"x": x}, {"out": (x + np.array([1, 2, 3], dtype)) * dtype(2)}))
    package(f"io-{np.dtype(dtype).name}-{opset}")(make)


for opset in TARGETS:
    arithmetic(opset, np.float32, types.fp32)
    arithmetic(opset, np.int32, types.int32)
    if opset != "ios15":
        arithmetic(opset, np.float16, types.fp16)


@package("io-int8-ios26")
def _():
    @mb.program(input_specs=[mb.TensorSpec((2, 3), dtype=types.int8)], opset_version=ct.target.iOS26)
    def program(x):
        return mb.transpose(x=x, perm=[1, 0], name="out")

    x = ints(2, 3, low=-128, high=128, dtype=np.int8)
    return converted(program, ct.target.iOS26), call(({"x": x}, {"out": x.T.copy()}))


@package("several-outputs")
def _():
    @mb.program(input_specs=[mb.TensorSpec((2, 6)), mb.TensorSpec((2, 6), dtype=types.int32)], opset_version=ct.target.iOS17)
    def program(b, a):
        first, second = mb.split(x=b, num_splits=2, axis=1)
        values, places = mb.topk(x=b, k=2, axis=1)
        return mb.identity(x=second, name="z"), mb.identity(x=first, name="y"), a, values, mb.identity(x=places, name="places")

    b, a = np.array([[3, 1, 4, 9, 5, 2], [6, 5, 3, 8, 7, 1]], np.float32), ints(2, 6)
    places = np.argsort(-b, axis=1)[:, :2].astype(np.int32)
    expected = {"z": b[:, 3:], "y": b[:, :3], "places": places, "a": a}
    return converted(program, ct.target.iOS17), call(({"a": a, "b": b}, expected))


@package("optional-default")
def _():
    @mb.program(input_specs=[mb.TensorSpec((2, 3)), mb.TensorSpec((3,))], opset_version=ct.target.iOS17)
    def program(x, bias):
        return mb.add(x=x, y=bias, name="out")

    bias = np.full(3, -1.5, np.float32)  # coremltools allows one number alone
    inputs = [ct.TensorType(name="x", shape=(2, 3)), ct.TensorType(name="bias", shape=(3,), default_value=bias)]
    x, other = floats(2, 3), floats(3)
    return (converted(program, ct.target.iOS17, inputs=inputs),
            call(({"x": x}, {"out": x + bias})), call(({"x": x, "bias": other}, {"out": x + other})))


@package("metadata")
def _():
    @mb.program(input_specs=[mb.TensorSpec((4,))], opset_version=ct.target.iOS16)
    def program(x):
        return mb.relu(x=x, name="out")

    model = converted(program, ct.target.iOS16)
    model.author, model.license, model.version = "Ada Löve", "none", "1.2 \"β\""
    model.short_description = "Negative numbers\nbecome 0."
    model.user_defined_metadata["unit"] = "m/s²"
    model.input_description["x"], model.output_description["out"] = "any numbers", "none below 0"
    x = floats(4)
    return model, call(({"x": x}, {"out": np.maximum(x, 0)}))


# Shapes that vary
def flexible(name, opset, specs, inputs, sets, passes="none"):
    def make():
        @mb.program(input_specs=[mb.TensorSpec(s) for s in specs], opset_version=TARGETS[opset])
        def program(x, y):
            wide = mb.concat(values=[x, x], axis=1)
            shape = mb.shape(x=y)
            return mb.softmax(x=wide, axis=-1, name="wide"), mb.mul(x=y, y=mb.cast(x=shape, dtype="fp32"), name="scaled")

        calls = []
        for a, b in sets:
            x, y = floats(*a), floats(*b)
            wide = np.exp(np.concatenate([x, x], axis=1))
            calls.append(call(({"x": x, "y": y}, {"wide": wide / wide.sum(-1, keepdims=True), "scaled": y * np.array(y.shape)}
                               | {"scaled": (y * np.array(y.shape)).astype(np.float32)})))
        return converted(program, TARGETS[opset], passes=passes, inputs=inputs()), *calls
    package(name)(make)


def symbol():
    from coremltools.converters.mil.mil import get_new_symbol
    return get_new_symbol()


n, m, k = symbol(), symbol(), symbol()
flexible("shapes-enumerated-one", "ios15", [(1, n), (3, 2)], lambda: [
    ct.TensorType(name="x", shape=ct.EnumeratedShapes([(1, 4), (1, 8), (1, 16)], default=(1, 8))),
    ct.TensorType(name="y", shape=(3, 2))], [((1, c), (3, 2)) for c in (8, 4, 16)])
flexible("shapes-enumerated-several", "ios18", [(1, n), (m, 2)], lambda: [
    ct.TensorType(name="x", shape=ct.EnumeratedShapes([(1, 4), (1, 8)], default=(1, 4))),
    ct.TensorType(name="y", shape=ct.EnumeratedShapes([(2, 2), (5, 2)], default=(2, 2)))], [((1, 4), (2, 2)), ((1, 8), (5, 2))])
flexible("shapes-range", "ios16", [(1, n), (m, k)], lambda: [
    ct.TensorType(name="x", shape=ct.Shape((1, ct.RangeDim(2, 10, default=3)))),
    ct.TensorType(name="y", shape=ct.Shape((ct.RangeDim(1, 4), ct.RangeDim(2, 2, default=2))))],
    [((1, 2), (1, 2)), ((1, 10), (4, 2))])
same = ct.RangeDim(1, 9, default=2, symbol="s")
flexible("shapes-range-shared", "ios17", [(1, n), (n, 2)], lambda: [
    ct.TensorType(name="x", shape=ct.Shape((1, same))),
    ct.TensorType(name="y", shape=ct.Shape((same, 2)))], [((1, 5), (5, 2)), ((1, 2), (2, 2))])


# Images: what `russet run` takes is the tensor before scale and bias, which are ops of the program.
def image(name, opset, channels, layout, dtype=np.float32, output=False, varies=False, **scaled):
    def make():
        kind = types.fp16 if dtype == np.float16 else types.fp32
        height = symbol() if varies else 4

        @mb.program(input_specs=[mb.TensorSpec((1, channels, height, 5), dtype=kind)], opset_version=TARGETS[opset])
        def program(x):
            return mb.mul(x=x, y=dtype(0.5), name="out")

        shape = (1, channels, 4, 5)
        if varies:
            shape = ct.EnumeratedShapes([(1, channels, 4, 5), (1, channels, 8, 5)], default=(1, channels, 4, 5))
        inputs = [ct.ImageType(name="x", shape=shape, color_layout=layout, **scaled)]
        outputs = [ct.ImageType(name="out", color_layout=layout)] if output else None
        model = converted(program, TARGETS[opset], passes="default", inputs=inputs, outputs=outputs)
        calls = []
        for height in (4, 8) if varies else (4,):
            x = ints(1, channels, height, 5, low=0, high=256).astype(dtype)
            bias = np.array(scaled.get("bias", 0), np.float32).reshape(-1, 1, 1)
            y = (x * np.float32(scaled.get("scale", 1)) + bias) * 0.5
            calls.append(call(({"x": x}, {"out": y.astype(dtype)}), tolerance=2e-3))
        return model, *calls
    package(name)(make)


rgb, gray = ct.colorlayout.RGB, ct.colorlayout.GRAYSCALE
image("image-rgb", "ios15", 3, rgb)
image("image-bgr-scaled", "ios16", 3, ct.colorlayout.BGR, scale=1 / 127.5, bias=[-1, -0.5, 0.25])
image("image-gray", "ios16", 1, gray, scale=0.25, bias=0.5)
image("image-gray-fp16", "ios16", 1, ct.colorlayout.GRAYSCALE_FLOAT16, np.float16, output=True)
image("image-rgb-output", "ios15", 3, rgb, output=True)
image("image-enumerated", "ios17", 3, rgb, varies=True, scale=2.0)


# Labels
def classifier(name, labels, opset):
    def make():
        @mb.program(input_specs=[mb.TensorSpec((1, 3))], opset_version=TARGETS[opset])
        def program(x):
            return mb.softmax(x=x, axis=1, name="scores")

        config = ct.ClassifierConfig(labels, predicted_feature_name="label")
        model = converted(program, TARGETS[opset], passes="default", classifier_config=config,
                          inputs=[ct.TensorType(name="x", shape=(1, 3))])
        calls = []
        for best in range(3):
            x = np.eye(3, dtype=np.float32)[best:best + 1] * 2
            e = np.exp(x)
            calls.append(call(({"x": x}, {"label": np.int32(best), "label_probs": (e / e.sum())[0].astype(np.float32)}), tolerance=2e-3))
        return model, *calls
    package(name)(make)


classifier("classifier-strings", ["cat", "dög", "a \"bird\""], "ios15")
classifier("classifier-integers", [7, -3, 1000000], "ios16")
classifier("classifier-strings-ios18", ["one", "two", "three"], "ios18")


# Functions that share weights
@package("functions")
def _():
    weight = floats(6, 4)

    def one(name, op):
        @mb.program(input_specs=[mb.TensorSpec((2, 4))], opset_version=ct.target.iOS18)
        def program(x):
            y = mb.linear(x=x, weight=weight, name="product")
            return op(x=y, name="out")
        return converted(program, ct.target.iOS18)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        described = ct.utils.MultiFunctionDescriptor()
        for function, op in [("smooth", mb.tanh), ("sharp", mb.relu)]:
            file = str(folder / f"{function}.mlpackage")
            one(function, op).save(file)
            described.add_function(file, src_function_name="main", target_function_name=function)
        described.default_function_name = "sharp"
        out = pathlib.Path(tempfile.mkdtemp()) / "both.mlpackage"
        ct.utils.save_multifunction(described, str(out))
    x = floats(2, 4)
    y = x @ weight.T
    sharp, smooth = ({"out": np.maximum(y, 0)}, {"out": np.tanh(y)})
    return out, call(({"x": x}, sharp)), call(({"x": x}, sharp), function="sharp"), call(({"x": x}, smooth), function="smooth")
