"""Builds the ONNX graph of a BERT-family encoder from a Hugging Face folder.

The graph computes what `transformers` computes, op for op: embeddings, post-norm layers, the last
hidden state, then the sentence embedding (mean over the mask, scaled to length one). Only numpy
and onnx are needed; weights are read from `model.safetensors` by hand.

    python bench/onnx_encoder.py MODEL_DIR OUT.onnx --seq 128
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DTYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64}


def read_safetensors(path):
    """Arrays by name."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(body[begin:end], DTYPES[entry["dtype"]])
        arrays[name] = array.reshape(entry["shape"])
    return arrays


class Builder:
    """Nodes and initializers of one graph."""

    def __init__(self):
        self.nodes, self.initializers = [], []

    def constant(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, inputs, name, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name


def encoder(folder, batch, seq, gelu="op"):
    """The model as ONNX: `input_ids` and `attention_mask` in, hidden state and embedding out.

    `gelu` is "op" (Gelu of opset 20) or "erf" (the ops an exporter of opset 17 writes).
    """
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    weights = read_safetensors(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): array for name, array in weights.items()}
    hidden, n_heads = config["hidden_size"], config["num_attention_heads"]
    size, epsilon = hidden // n_heads, config["layer_norm_eps"]
    b = Builder()

    def weight(name, array=None):
        return b.constant(name, (weights[name] if array is None else array).astype(np.float32))

    def norm(x, prefix, name):
        inputs = [x, weight(f"{prefix}.weight"), weight(f"{prefix}.bias")]
        return b.op("LayerNormalization", inputs, name, axis=-1, epsilon=epsilon)

    def linear(x, prefix, name):
        matrix = weight(f"{prefix}.weight", weights[f"{prefix}.weight"].T)
        product = b.op("MatMul", [x, matrix], f"{name}_product")
        return b.op("Add", [product, weight(f"{prefix}.bias")], name)

    def activation(x, name):
        if gelu == "op":
            return b.op("Gelu", [x], name)
        root = b.constant(f"{name}_root", np.float32(np.sqrt(2.0)))
        one, half = b.constant(f"{name}_one", np.float32(1)), b.constant(f"{name}_half", np.float32(0.5))
        scaled = b.op("Div", [x, root], f"{name}_scaled")
        erf = b.op("Erf", [scaled], f"{name}_erf")
        shifted = b.op("Add", [erf, one], f"{name}_shifted")
        doubled = b.op("Mul", [x, shifted], f"{name}_doubled")
        return b.op("Mul", [doubled, half], name)

    split = b.constant("split_shape", np.array([0, 0, n_heads, size], np.int64))
    merge = b.constant("merge_shape", np.array([0, 0, hidden], np.int64))

    def heads(x, name, perm):
        parts = b.op("Reshape", [x, split], f"{name}_parts")
        return b.op("Transpose", [parts], f"{name}_heads", perm=perm)

    words = b.op("Gather", [weight("embeddings.word_embeddings.weight"), "input_ids"], "words")
    positions = weights["embeddings.position_embeddings.weight"][None, :seq]
    types = weights["embeddings.token_type_embeddings.weight"][:1]
    x = b.op("Add", [words, weight("types", types)], "typed")
    x = b.op("Add", [x, weight("positions", positions)], "placed")
    x = norm(x, "embeddings.LayerNorm", "embedded")

    # In the order in which exporters write it, so that onnxruntime's optimizer knows it.
    for axis in (1, 2):
        axes = b.constant(f"mask_axis_{axis}", np.array([axis], np.int64))
        mask = b.op("Unsqueeze", ["attention_mask" if axis == 1 else mask, axes], f"mask_wide_{axis}")
    mask = b.op("Cast", [mask], "mask_float", to=TensorProto.FLOAT)
    mask = b.op("Sub", [b.constant("mask_one", np.float32(1)), mask], "mask_hidden")
    lowest = b.constant("mask_lowest", np.float32(np.finfo(np.float32).min))
    mask = b.op("Mul", [mask, lowest], "mask_added")
    scale = b.constant("score_scale", np.float32(np.sqrt(size)))

    for i in range(config["num_hidden_layers"]):
        at, n = f"encoder.layer.{i}", f"layer{i}"
        query = heads(linear(x, f"{at}.attention.self.query", f"{n}_query"), f"{n}_query", [0, 2, 1, 3])
        key = heads(linear(x, f"{at}.attention.self.key", f"{n}_key"), f"{n}_key", [0, 2, 3, 1])
        value = heads(linear(x, f"{at}.attention.self.value", f"{n}_value"), f"{n}_value", [0, 2, 1, 3])
        scores = b.op("MatMul", [query, key], f"{n}_scores")
        scores = b.op("Div", [scores, scale], f"{n}_scaled")
        scores = b.op("Add", [scores, mask], f"{n}_masked")
        shares = b.op("Softmax", [scores], f"{n}_shares", axis=-1)
        context = b.op("MatMul", [shares, value], f"{n}_context")
        context = b.op("Transpose", [context], f"{n}_context_rows", perm=[0, 2, 1, 3])
        context = b.op("Reshape", [context, merge], f"{n}_merged")
        y = linear(context, f"{at}.attention.output.dense", f"{n}_attended")
        x = norm(b.op("Add", [y, x], f"{n}_attended_sum"), f"{at}.attention.output.LayerNorm", f"{n}_attention")
        y = activation(linear(x, f"{at}.intermediate.dense", f"{n}_up"), f"{n}_gelu")
        y = linear(y, f"{at}.output.dense", f"{n}_down")
        x = norm(b.op("Add", [y, x], f"{n}_down_sum"), f"{at}.output.LayerNorm", f"{n}_output")
    b.op("Identity", [x], "last_hidden_state")

    wide = b.op("Unsqueeze", ["attention_mask", b.constant("pool_axes", np.array([2], np.int64))], "pool_wide")
    wide = b.op("Cast", [wide], "pool_mask", to=TensorProto.FLOAT)
    along = b.constant("pool_along", np.array([1], np.int64))
    kept = b.op("Mul", [x, wide], "pool_kept")
    total = b.op("ReduceSum", [kept, along], "pool_total", keepdims=0)
    count = b.op("ReduceSum", [wide, along], "pool_count", keepdims=0)
    count = b.op("Clip", [count, b.constant("pool_least", np.float32(1e-9))], "pool_counted")
    b.op("LpNormalization", [b.op("Div", [total, count], "pooled")], "sentence_embedding", axis=-1, p=2)

    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [info(n, TensorProto.INT64, [batch, seq]) for n in ("input_ids", "attention_mask")]
    outputs = [
        info("last_hidden_state", TensorProto.FLOAT, [batch, seq, hidden]),
        info("sentence_embedding", TensorProto.FLOAT, [batch, hidden]),
    ]
    graph = helper.make_graph(b.nodes, "encoder", inputs, outputs, b.initializers)
    opset = helper.make_opsetid("", 20 if gelu == "op" else 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    onnx.checker.check_model(model)
    return model, {"n_heads": n_heads, "hidden": hidden}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--gelu", choices=["op", "erf"], default="op")
    args = parser.parse_args()
    model, _ = encoder(args.folder, 1, args.seq, args.gelu)
    onnx.save(model, args.out)


if __name__ == "__main__":
    main()
