"""Cases of tensors without elements, of constants of every type, and of products and norms in fp16."""

import numpy as np

from .basic import conv, norm, same
from .common import case, cases, edges, floats, of, tensor

FLOATS = (np.float32, np.float16)
NUMBERS = FLOATS + (np.int32,)
EVERY = NUMBERS + (np.bool_, np.int16, np.uint16, np.int8, np.uint8)


def i(*values):
    return np.array(values, np.int32)


for dtype in NUMBERS:
    none = np.zeros((0, 3), dtype)
    for op, f in {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_sum_square": np.sum, "reduce_l1_norm": np.sum}.items():
        case(op, f(none, axis=0), x=none, axes=[0], out=dtype, infer=False)
        case(op, f(none, axis=1), x=none, axes=[1], out=dtype, infer=False)
    for op, f in {"add": np.add, "mul": np.multiply, "maximum": np.maximum}.items():
        case(op, f(none, none), x=none, y=none, out=dtype, infer=False)
        case(op, f(none, none[:, :1]), x=none, y=none[:, :1], out=dtype, infer=False)
    case("argsort", np.zeros((0, 3), np.int32), x=none, axis=0, infer=False)
    case("topk", [none, np.zeros((0, 3), np.int32)], x=none, k=0, axis=0, out=[dtype, np.int32], infer=False)
    case("topk", [np.zeros((2, 0), dtype), np.zeros((2, 0), np.int32)], x=of(dtype, 2, 3), k=0, out=[dtype, np.int32], infer=False)
    case("cumsum", none, x=none, axis=0, exclusive=True, out=dtype, infer=False)
    case("reduce_argmax", np.zeros(0, np.int32), x=none, axis=1, infer=False)
    x = of(dtype, 2, 3)
    for op in ("scatter", "scatter_nd"):
        where = np.zeros((0,) if op == "scatter" else (0, 1), np.int32)
        case(op, x, data=x, indices=where, updates=np.zeros((0, 3), dtype), mode="update", out=dtype, infer=False)
    case("scatter_along_axis", x, data=x, indices=np.zeros((0, 3), np.int32), updates=np.zeros((0, 3), dtype), axis=0, out=dtype, infer=False)
    case("gather", np.zeros((0, 3), dtype), x=x, indices=np.zeros(0, np.int32), axis=0, out=dtype, infer=False)
    case("gather_nd", np.zeros((0, 3), dtype), x=x, indices=np.zeros((0, 1), np.int32), out=dtype, infer=False)
    case("gather_along_axis", np.zeros((0, 3), dtype), x=x, indices=np.zeros((0, 3), np.int32), axis=0, out=dtype, infer=False)
    case("matmul", np.zeros((2, 2), dtype), x=np.zeros((2, 0), dtype), y=np.zeros((0, 2), dtype), out=dtype, infer=False)
    case("pad", np.full((2, 3), 1, dtype), x=none, pad=i(1, 1, 0, 0), constant_val=dtype(1) if dtype != np.int32 else 1, out=dtype, infer=False)
    case("non_zero", np.zeros((0, 2), np.int32), x=np.zeros((2, 2), dtype), infer=False)
    case("non_zero", np.zeros((0, 2), np.int32), x=none, infer=False)
for dtype in EVERY:
    none = np.zeros((0, 3), dtype)
    case("concat", x := of(dtype, 2, 3), values=[none, x], axis=0, out=dtype, infer=False)
    case("reverse", none, x=none, axes=[0, 1], out=dtype, infer=False)
    case("transpose", none.T, x=none, perm=[1, 0], out=dtype, infer=False)
    case("expand_dims", none[None], x=none, axes=[0], out=dtype, infer=False)
    case("slice_by_size", x[:, :0], x=x, begin=i(0, 1), size=i(2, 0), out=dtype, infer=False)
    case("slice_by_index", x[:0], x=x, begin=i(1, 0), end=i(1, 3), out=dtype, infer=False)
    case("slice_update", x, x=x, update=x[:0], begin=i(1, 0), end=i(1, 3), out=dtype, infer=False)
    case("stack", np.stack([none, none], 1), values=[none, none], axis=1, out=dtype, infer=False)
    for value in (edges(dtype), of(dtype), of(dtype, 2, 1, 3), none):
        cases["const"].append(f"func main() {{\n  %y = const(val={tensor(value)})\n}} -> %y\n=> func main() {{\n  %y = const(val={tensor(value)})\n}} -> %y\n")
    if np.dtype(dtype).kind not in "u":
        case("cast", np.zeros((0, 3), np.float32), x=none, dtype="fp32", out=np.float32, infer=False)

for shape, axes in [((2, 6), [1]), ((2, 8, 1, 3), [1]), ((2, 3, 4), [1, 2]), ((3, 1, 5), [-3, -1]), ((7,), [0])]:
    for epsilon in (1e-3, 0.25):
        x = floats(*shape, dtype=np.float16)
        kept = [shape[a] for a in axes]
        gamma, beta = floats(*kept, dtype=np.float16), floats(*kept, dtype=np.float16)
        positive = tuple(a % len(shape) for a in axes)
        epsilon = np.float16(epsilon)
        case("layer_norm", norm(x, positive, gamma, beta, epsilon=float(epsilon)), x=x, axes=axes, gamma=gamma, beta=beta, epsilon=epsilon)
        case("layer_norm", norm(x, positive, None, beta, epsilon=float(epsilon)), x=x, axes=axes, beta=beta, epsilon=epsilon)
    x = floats(*shape)
    everywhere = tuple(range(len(shape)))
    case("layer_norm", norm(x, everywhere), x=x)

for x_shape, w_shape, strides, kind, pad, dilations, groups in [
    ((1, 3, 1, 7), (5, 3, 1, 1), [1, 1], "valid", [0] * 4, [1, 1], 1),
    ((1, 4, 5, 3), (4, 1, 3, 3), [1, 1], "custom", [1, 1, 1, 1], [1, 1], 4),
    ((2, 2, 5, 6), (3, 2, 2, 3), [2, 3], "same", [0] * 4, [1, 1], 1),
    ((1, 2, 6, 4), (2, 2, 2, 2), [2, 1], "same_lower", [0] * 4, [1, 1], 1),
    ((1, 1, 11), (3, 1, 3), [2], "same", [0] * 2, [3], 1),
    ((1, 2, 7), (2, 2, 2), [1], "same_lower", [0] * 2, [1], 1),
    ((1, 1, 3, 2, 4), (2, 1, 2, 1, 3), [1, 2, 1], "custom", [0, 1, 1, 0, 2, 0], [1, 1, 1], 1),
]:
    for dtype in FLOATS:
        x, w, b = floats(*x_shape, dtype=dtype), floats(*w_shape, dtype=dtype), floats(w_shape[0], dtype=dtype)
        pads = pad if kind in ("valid", "custom") else same(x_shape[2:], w_shape[2:], strides, dilations)
        if kind == "same_lower":
            # What is left over of an odd padding comes first.
            pads = [p for k in range(0, len(pads), 2) for p in (pads[k + 1], pads[k])]
        how = dict(strides=strides, pad_type=kind, dilations=dilations, groups=groups)
        how |= dict(pad=pad) if kind == "custom" else {}
        case("conv", conv(x, w.astype(np.float64), b.astype(np.float64), strides, pads, dilations, groups), x=x, weight=w, bias=b, **how)
        case("conv", conv(x, w.astype(np.float64), None, strides, pads, dilations, groups), x=x, weight=w, **how)
