"""Cases of reductions and of ops along one axis."""

import numpy as np
from scipy import special

from .common import case, edges, floats, ints

FLOATS = (np.float32, np.float16)


def squares(x, **how):
    return np.sum(np.square(x), **how)


def log_sum_exp(x, axis=None, keepdims=False):
    # scipy makes an axis for a single number.
    y = special.logsumexp(x, axis=axis, keepdims=keepdims)
    return np.reshape(y, np.sum(x, axis=axis, keepdims=keepdims).shape)


REDUCTIONS = {
    "reduce_sum": np.sum, "reduce_mean": np.mean, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod,
    "reduce_l1_norm": lambda x, **how: np.sum(np.abs(x), **how), "reduce_l2_norm": lambda x, **how: np.sqrt(squares(x, **how)),
    "reduce_log_sum": lambda x, **how: np.log(np.sum(x, **how)), "reduce_log_sum_exp": log_sum_exp, "reduce_sum_square": squares,
}
SHAPES = [((), None), ((1,), [0]), ((7,), [-1]), ((2, 3), None), ((2, 1, 5), [1]), ((3, 2, 2), [0, 2]), ((3, 2, 2), [-1, -3]),
          ((1, 2, 1, 3), [1, 3]), ((2, 1, 2, 1, 3), [0, 2, 4]), ((2, 1, 2, 1, 3), None)]
for op, f in REDUCTIONS.items():
    for dtype in FLOATS:
        for shape, axes in SHAPES:
            for keep in (False, True):
                x = floats(*shape, low=0.1 if op == "reduce_log_sum" else -2, high=2, dtype=dtype)
                how = {} if axes is None else {"axes": axes}
                over = None if axes is None else tuple(axes)
                case(op, f(x.astype(np.float64), axis=over, keepdims=keep), x=x, keep_dims=keep, **how)
        if op != "reduce_log_sum":
            for row in ([np.nan, 1, 2], [np.inf, 1, -2], [-np.inf, 1, 2], [np.inf, -np.inf, 0], [-np.inf, -np.inf, -np.inf], [-0.0, 0.0, -0.0]):
                x = np.array(row, dtype)
                with np.errstate(all="ignore"):
                    case(op, f(x.astype(np.float64), axis=(0,), keepdims=False), x=x, axes=[0])
    for shape, axes in SHAPES[1:8]:
        x = ints(*shape, low=1 if op == "reduce_log_sum" else -4, high=5)
        over = None if axes is None else tuple(axes)
        expected = np.asarray(f(x.astype(np.float64), axis=over, keepdims=True))
        # Fractions are dropped; keep away from those that a rounding decides.
        near = np.abs(expected - np.rint(expected))
        if ((near > 0) & (near < 1e-6)).any():
            continue
        case(op, np.trunc(expected).astype(np.int32), x=x, keep_dims=True, **({} if axes is None else {"axes": axes}))
x = np.array([2**31 - 1, 1, 16777217], np.int32)
case("reduce_sum", np.int32(x.astype(np.int64).sum() - 2**32), x=x, axes=[0], infer=False)
case("reduce_prod", np.prod(x, dtype=np.int32), x=x, axes=[0], infer=False)
case("reduce_max", np.max(x), x=x, axes=[0])
case("reduce_min", np.min(x), x=x, axes=[0])
case("reduce_mean", np.int32(-3), x=np.array([-3, -4], np.int32), axes=[0])
case("reduce_sum_square", np.int32(1 - 2**31), x=np.array([2**15, 2**15, 1], np.int32), axes=[0], infer=False)
for op, f in (("reduce_log_sum_exp", log_sum_exp), ("reduce_l2_norm", REDUCTIONS["reduce_l2_norm"])):
    x = np.array([[1000, 1000.5], [-1000, -999]], np.float32)
    case(op, f(x.astype(np.float64), axis=(1,)), x=x, axes=[1])

ARG_SHAPES = [((1,), 0), ((7,), -1), ((3, 2), 0), ((2, 5), 1), ((2, 3, 2), 1), ((1, 2, 3, 2), -3), ((2, 1, 2, 1, 3), 4)]
for op, f in {"reduce_argmax": np.argmax, "reduce_argmin": np.argmin}.items():
    for dtype in FLOATS + (np.int32,):
        for shape, axis in ARG_SHAPES:
            # Few distinct numbers, so that there are ties.
            x = ints(*shape, low=-2, high=3).astype(dtype)
            case(op, f(x, axis=axis, keepdims=True).astype(np.int32), x=x, axis=axis, keep_dims=True)
            case(op, f(x, axis=axis).astype(np.int32), x=x, axis=axis, keep_dims=False)
            case(op, f(x, axis=axis).astype(np.uint16), x=x, axis=axis, output_dtype="uint16", out=np.uint16, infer=False)
        x = edges(dtype)
        case(op, f(x).astype(np.int32), x=x, axis=0)
    case(op, f(x := floats(2, 3), axis=-1).astype(np.int32), x=x)

for dtype in FLOATS + (np.int32,):
    for shape, axis in ARG_SHAPES:
        for ascending in (False, True):
            x = ints(*shape, low=-3, high=4).astype(dtype)
            order = np.argsort(x if ascending else -x, axis=axis, kind="stable")
            case("argsort", order.astype(np.int32), x=x, axis=axis, ascending=ascending, infer=False)
            for k in {1, shape[axis]}:
                places = np.take(order, range(k), axis=axis)
                values = np.take_along_axis(x, places, axis)
                case("topk", [values, places.astype(np.int32)], x=x, k=k, axis=axis, ascending=ascending, out=[dtype, np.int32], infer=False)
                case("topk", [values, places], x=x, k=k, axis=axis, ascending=ascending, sort=True, return_indices=True,
                     output_indices_dtype="uint16", out=[dtype, np.uint16], infer=False)
                case("topk", values, x=x, k=k, axis=axis, ascending=ascending, return_indices=False, out=dtype)
    x = floats(2, 7) if dtype != np.int32 else ints(2, 7, low=-1000, high=1000)
    x = x.astype(dtype)
    case("argsort", np.argsort(-x, axis=-1, kind="stable").astype(np.int32), x=x)
    case("topk", [x.max(-1, keepdims=True), x.argmax(-1, keepdims=True).astype(np.int32)], x=x, out=[dtype, np.int32])
for dtype in FLOATS:
    x = np.array([np.nan, 1, -np.inf, np.inf, np.nan, 0, -0.0], dtype)
    for ascending in (False, True):
        order = np.argsort(x if ascending else -x, kind="stable").astype(np.int32)
        case("argsort", order, x=x, ascending=ascending, infer=False)
        case("topk", [x[order[:4]], order[:4]], x=x, k=4, ascending=ascending, out=[dtype, np.int32], infer=False)
for dtype in (np.int8, np.uint8, np.int16, np.uint16):
    x = ints(2, 5, low=0, high=100, dtype=dtype)
    x[0, :2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    order = np.argsort(-x.astype(np.int64), axis=-1, kind="stable")[:, :3]
    case("topk", [np.take_along_axis(x, order, -1), order], x=x, k=3, out=[dtype, np.int32], infer=False)


def cumsum(x, axis, exclusive, reverse):
    x = np.flip(x, axis) if reverse else x
    y = np.cumsum(x, axis)
    y = y - x if exclusive else y
    return np.flip(y, axis) if reverse else y


for dtype in FLOATS + (np.int32,):
    for shape, axis in ARG_SHAPES:
        for exclusive in (False, True):
            for reverse in (False, True):
                x = floats(*shape).astype(dtype) if dtype != np.int32 else ints(*shape)
                # Steps of 1/256: sums of few are exact.
                x = (np.round(x.astype(np.float64) * 2**8) / 2**8).astype(dtype)
                y = cumsum(x.astype(np.float64), axis, exclusive, reverse)
                case("cumsum", y.astype(np.float64 if dtype != np.int32 else np.int32), x=x, axis=axis, exclusive=exclusive, reverse=reverse,
                     infer=not exclusive)
case("cumsum", np.array([2**31 - 1, -(2**31)], np.int32), x=np.array([2**31 - 1, 1], np.int32), axis=0, exclusive=False, reverse=False, infer=False)
case("cumsum", np.array([1, np.inf, np.inf, np.nan, np.nan]), x=np.array([1, np.inf, 2, -np.inf, 0], np.float32), axis=0)
