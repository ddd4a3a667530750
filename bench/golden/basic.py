"""Cases of the ops that transformers are made of."""

import itertools
import math

import numpy as np

from .common import case, cases, floats, ints, number

BROADCASTS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 4), (3, 1)), ((), (2, 2)), ((1, 3, 1, 2), (2, 1, 2, 1)), ((5,), ())]
f32 = np.float32
for a, b in BROADCASTS:
    x, y = floats(*a), floats(*b)
    case("add", x=x, y=y)
    case("sub", x=x, y=y)
    case("mul", x=x, y=y)
    case("real_div", x=x, y=y)
    case("maximum", x=x, y=y)
    case("minimum", x=x, y=y)
    case("pow", np.power(np.abs(x), y), x=np.abs(x), y=y)
    i, j = ints(*a), ints(*b)
    for op in ("add", "sub", "mul", "maximum", "minimum"):
        case(op, x=i, y=j)
    for op in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
        case(op, x=i, y=j)
        case(op, x=np.round(x), y=np.round(y))
    case("logical_and", x=np.asarray(i > 0), y=np.asarray(j > 0))

erf = np.vectorize(math.erf)
for shape in [(), (1,), (2, 3), (2, 1, 17)]:
    x = floats(*shape)
    case("abs", np.abs(x), x=x)
    case("clip", np.clip(x, -1, 2), x=x, alpha=f32(-1.0), beta=f32(2.0))
    case("erf", erf(x), x=x)
    case("exp", np.exp(x), x=x)
    case("gelu", x * 0.5 * (1 + erf(x / np.sqrt(2))), x=x, mode="EXACT")
    case("gelu", 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), x=x, mode="TANH_APPROXIMATION")
    case("gelu", x / (1 + np.exp(-1.702 * x)), x=x, mode="SIGMOID_APPROXIMATION")
    case("log", np.log(np.abs(x) + 0.5), x=np.abs(x), epsilon=f32(0.5))
    case("relu", np.maximum(x, 0), x=x)
    case("rsqrt", 1 / np.sqrt(np.abs(x) + 0.25), x=np.abs(x), epsilon=f32(0.25))
    case("sigmoid", 1 / (1 + np.exp(-x)), x=x)
    case("silu", x / (1 + np.exp(-x)), x=x)
    case("sqrt", np.sqrt(np.abs(x)), x=np.abs(x))
    case("square", np.square(x), x=x)
    case("tanh", np.tanh(x), x=x)
    case("logical_not", np.logical_not(x > 0), x=np.asarray(x > 0))
    case("cast", x.astype(np.int32), x=x, dtype="int32")
    case("cast", np.round(x) != 0, x=np.round(x), dtype="bool")
    case("cast", ints(*shape) * 0 + f32(3), x=ints(*shape) * 0 + np.int32(3), dtype="fp32")
    case("cast", (x > 0).astype(np.int32), x=np.asarray(x > 0), dtype="int32")
    case("identity", x, x=x)

for shapes in [((2, 3), (2, 3), (2, 3)), ((2, 1), (2, 3), (2, 3)), ((3,), (2, 3), (2, 3)), ((2, 3), (), ())]:
    cond, a, b = (floats(*s) for s in shapes)
    case("select", np.where(cond > 0, a, b), cond=np.asarray(cond > 0), a=a, b=b)
    case("select", np.where(cond > 0, ints(*shapes[1]) * 0 + 1, 0 * ints(*shapes[2])).astype(np.int32),
         cond=np.asarray(cond > 0), a=ints(*shapes[1]) * 0 + np.int32(1), b=ints(*shapes[2]) * 0)

for shape, axis in [((4,), 0), ((2, 5), -1), ((3, 4, 2), 1), ((3, 4, 2), -3), ((1, 20, 1, 3), 1), ((2, 33), 1)]:
    x = floats(*shape)
    e = np.exp(x - x.max(axis, keepdims=True))
    case("softmax", e / e.sum(axis, keepdims=True), x=x, axis=axis)


def norm(x, axes, gamma=None, beta=None, epsilon=1e-5):
    x64 = x.astype(np.float64)
    mean = x64.mean(axes, keepdims=True)
    y = (x64 - mean) / np.sqrt(((x64 - mean) ** 2).mean(axes, keepdims=True) + epsilon)
    shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    y = y if gamma is None else y * gamma.reshape(shape)
    return y if beta is None else y + beta.reshape(shape)


for shape, axes in [((2, 6), (1,)), ((2, 8, 1, 3), (1,)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (0, 2)), ((5,), (0,))]:
    x, kept = floats(*shape), [shape[i] for i in axes]
    gamma, beta = floats(*kept), floats(*kept)
    case("layer_norm", norm(x, axes, epsilon=0.1), x=x, axes=list(axes), epsilon=f32(0.1))
    case("layer_norm", norm(x, axes, gamma, beta), x=x, axes=[a - len(shape) for a in axes], gamma=gamma, beta=beta, epsilon=f32(1e-5))
    case("layer_norm", norm(x, axes, gamma), x=x, axes=list(axes), gamma=gamma, epsilon=f32(1e-5))

REDUCTIONS = {"reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min,
              "reduce_l2_norm": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))}
for (op, f), keep in itertools.product(REDUCTIONS.items(), (False, True)):
    for shape, axes in [((4,), (0,)), ((2, 3, 4), (1,)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (0, 1, 2)), ((2, 1, 5), (-1,))]:
        x = floats(*shape)
        case(op, f(x, axis=axes, keepdims=keep), x=x, axes=list(axes), keep_dims=keep)
    if op in ("reduce_sum", "reduce_max", "reduce_min"):
        i = ints(2, 3)
        case(op, f(i, axis=(1,), keepdims=keep), x=i, axes=[1], keep_dims=keep)

for shape in [(4, 3), (2, 3, 4), (1, 2, 2, 5)]:
    x, w, b = floats(*shape), floats(6, shape[-1]), floats(6)
    case("linear", x @ w.T + b, x=x, weight=w, bias=b)
    case("linear", x @ w.T, x=x, weight=w)

for a, b, tx, ty in [((2, 3), (3, 4), 0, 0), ((3, 2), (3, 4), 1, 0), ((2, 3), (4, 3), 0, 1), ((3, 2), (4, 3), 1, 1),
                     ((2, 1, 3, 4), (5, 4, 2), 0, 0), ((1, 5, 4), (2, 4, 3), 0, 0), ((1, 3, 1, 4), (1, 3, 4, 1), 0, 0)]:
    x, y = floats(*a), floats(*b)
    left, right = (np.swapaxes(x, -1, -2) if tx else x), (np.swapaxes(y, -1, -2) if ty else y)
    case("matmul", left @ right, x=x, y=y, transpose_x=bool(tx), transpose_y=bool(ty))


def conv(x, w, bias, strides, pads, dilations, groups):
    """The definition, one output number at a time."""
    n_axes = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0)] + [tuple(pads[2 * i : 2 * i + 2]) for i in range(n_axes)])
    reach = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in range(n_axes)]
    out = [(x.shape[2 + i] - reach[i]) // strides[i] + 1 for i in range(n_axes)]
    y = np.zeros([x.shape[0], w.shape[0], *out])
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for b, c, *at in np.ndindex(*y.shape):
        group = c // outputs
        window = tuple(slice(a * s, a * s + r, d) for a, s, r, d in zip(at, strides, reach, dilations))
        seen = x[(b, slice(group * inputs, (group + 1) * inputs), *window)]
        y[(b, c, *at)] = (seen * w[c]).sum() + (0 if bias is None else bias[c])
    return y


def same(sizes, kernel, strides, dilations):
    pads = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        pads += [total // 2, total - total // 2]
    return pads


for x_shape, w_shape, strides, kind, pad, dilations, groups in [
    ((1, 4, 1, 5), (6, 4, 1, 1), [1, 1], "valid", [0, 0, 0, 0], [1, 1], 1),
    ((2, 4, 1, 5), (6, 4, 1, 1), [1, 1], "valid", [0, 0, 0, 0], [1, 1], 1),
    ((1, 4, 3, 4), (6, 2, 1, 1), [1, 1], "valid", [0, 0, 0, 0], [1, 1], 2),
    ((1, 3, 5, 6), (2, 3, 3, 2), [1, 1], "valid", [0, 0, 0, 0], [1, 1], 1),
    ((1, 3, 5, 6), (2, 3, 3, 3), [2, 2], "same", [0, 0, 0, 0], [1, 1], 1),
    ((1, 2, 6, 5), (4, 2, 2, 3), [1, 2], "custom", [1, 0, 2, 1], [1, 1], 1),
    ((1, 2, 7, 7), (2, 1, 3, 3), [1, 1], "custom", [1, 1, 1, 1], [2, 2], 2),
    ((2, 3, 9), (4, 3, 3), [2], "valid", [0, 0], [1], 1),
    ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), [1, 1, 1], "valid", [0] * 6, [1, 1, 1], 1),
]:
    x, w, b = floats(*x_shape), floats(*w_shape), floats(w_shape[0])
    pads = same(x_shape[2:], w_shape[2:], strides, dilations) if kind == "same" else pad
    parameters = dict(strides=strides, pad_type=kind, pad=pad, dilations=dilations, groups=groups)
    case("conv", conv(x, w, b, strides, pads, dilations, groups), x=x, weight=w, bias=b, **parameters)
    case("conv", conv(x, w, None, strides, pads, dilations, groups), x=x, weight=w, **parameters)

for make in (floats, ints):
    for shape, perm in [((2, 3), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((2, 3, 4), [0, -1, 1]), ((1, 2, 3, 2), [0, 2, 1, 3]), ((5,), [0])]:
        x = make(*shape)
        case("transpose", x.transpose([p % x.ndim for p in perm]), x=x, perm=perm)
    for shape, target in [((2, 6), [3, 4]), ((2, 6), [2, -1, 3]), ((4,), [1, 4, 1]), ((2, 3, 4), [-1])]:
        x = make(*shape)
        case("reshape", x.reshape(target), x=x, shape=np.array(target, np.int32))
    for shape, axes in [((2, 3), [0]), ((2, 3), [1, -1]), ((2, 3), [0, 2, 3]), ((4,), [-2])]:
        x = make(*shape)
        case("expand_dims", np.expand_dims(x, tuple(axes)), x=x, axes=axes)
    for shape, axes in [((1, 2, 1), [0]), ((1, 2, 1), [-1]), ((1, 2, 1), [0, 2]), ((1, 3, 1, 1), [2, 3])]:
        x = make(*shape)
        case("squeeze", np.squeeze(x, tuple(axes)), x=x, axes=axes)
    for shapes, axis in [([(2, 3), (2, 3)], 0), ([(2, 3), (2, 1), (2, 2)], -1), ([(1, 2, 2), (1, 2, 2), (1, 2, 2)], 1)]:
        parts = [make(*s) for s in shapes]
        case("concat", np.concatenate(parts, axis), values=parts, axis=axis, interleave=False)
    for shape, axis, n in [((2, 3, 2), 1, 2), ((4,), 0, 3), ((1, 6, 2, 2), -3, 2)]:
        parts = [make(*shape) for _ in range(n)]
        woven = np.stack(parts, axis % len(shape) + 1).reshape([d * n if i == axis % len(shape) else d for i, d in enumerate(shape)])
        case("concat", woven, values=parts, axis=axis, interleave=True, infer=False)  # coremltools' inference forgets it
    for shape, axis, n in [((6, 2), 0, 3), ((2, 4), -1, 2), ((1, 4, 2), 1, 4)]:
        x = make(*shape)
        case("split", np.split(x, n, axis), x=x, num_splits=n, axis=axis)
    x = make(2, 7)
    case("split", np.split(x, [1, 5], 1), x=x, split_sizes=[1, 4, 2], axis=1)
    for shape, begin, end, rest in [
        ((5, 4), [1, 0], [4, 3], {}),
        ((5, 4), [0, 0], [5, 4], dict(stride=[2, 3])),
        ((5, 4), [-2, -3], [-1, 4], {}),
        ((5, 4), [4, 3], [0, 0], dict(stride=[-1, -2], end_mask=[True, False])),
        ((5, 4), [1, 2], [3, 3], dict(begin_mask=[True, False], end_mask=[False, True])),
        ((5, 4, 3), [1, 1, 0], [2, 2, 3], dict(squeeze_mask=[True, False, False])),
    ]:
        x, masks = make(*shape), {"begin_mask", "end_mask"}
        stride, squeeze = rest.get("stride", [1] * x.ndim), rest.get("squeeze_mask", [False] * x.ndim)
        open_begin, open_end = (rest.get(m, [False] * x.ndim) for m in ("begin_mask", "end_mask"))
        index = tuple(b if q else slice(None if m else b, None if n else e, s)
                      for b, e, s, q, m, n in zip(begin, end, stride, squeeze, open_begin, open_end))
        case("slice_by_index", x[index], x=x, begin=np.array(begin, np.int32), end=np.array(end, np.int32), **rest)
    for shape, begin, size in [((5, 4), [1, 2], [3, 2]), ((5, 4), [2, 0], [-1, 4]), ((2, 3, 4), [0, 1, 1], [2, 1, -1])]:
        x = make(*shape)
        ends = [n if s == -1 else b + s for n, b, s in zip(shape, begin, size)]
        case("slice_by_size", x[tuple(slice(b, e) for b, e in zip(begin, ends))],
             x=x, begin=np.array(begin, np.int32), size=np.array(size, np.int32))
    for shape, at, axis in [((5, 3), [0, 4, 2], 0), ((5, 3), [-1, 1], 1), ((2, 4, 3), [[0, 3], [1, -2]], 1), ((6,), 2, 0), ((2, 3), [[1]], -1)]:
        x, at = make(*shape), np.array(at, np.int32)
        case("gather", np.take(x, at, axis), x=x, indices=at, axis=axis, batch_dims=0, validate_indices=False)
    x, at = make(2, 5, 3), np.array([[0, 4], [2, -1]], np.int32)
    case("gather", np.stack([np.take(x[b], at[b], 0) for b in range(2)]), x=x, indices=at, axis=1, batch_dims=1, validate_indices=False)
    x, at = make(2, 3, 4), np.array([[1, 0], [3, 2]], np.int32)
    case("gather", np.stack([np.take(x[b], at[b], 1) for b in range(2)]), x=x, indices=at, axis=2, batch_dims=1, validate_indices=False)
    x, at = make(2, 2, 4), np.array([[1, 0], [3, 2]], np.int32)
    case("gather", np.take_along_axis(x, at[..., None], 2)[..., 0], x=x, indices=at, axis=2, batch_dims=2, validate_indices=False)
    case("shape", np.array([2, 1, 5], np.int32), x=make(2, 1, 5))

for holds in (True, False):
    cases.setdefault("cond", []).append(
        f"func main() {{\n  %in_p = const(val=bool [{number(holds)}])\n  %in_x = const(val=fp32[2] [1.0, 2.0])\n"
        "  %y = cond(pred=%in_p) {\n    %a = add(x=%in_x, y=%in_x)\n  } -> %a {\n    %b = square(x=%in_x)\n  } -> %b\n} -> %y\n"
        f"=> func main() {{\n  %y = const(val=fp32[2] [{'2.0, 4.0' if holds else '1.0, 4.0'}])\n}} -> %y\n"
    )
cases["const"] = ["func main() {\n  %y = const(val=fp32[2] [1.0, 2.0])\n} -> %y\n=> func main() {\n  %y = const(val=fp32[2] [1.0, 2.0])\n} -> %y\n"]

