"""Cases of functions of one and two numbers, at the ends of their domains too."""

import numpy as np
from scipy import special

from .common import case, edges, floats, ints, of, random

FLOATS = (np.float32, np.float16)
SHAPES = [(), (1,), (5,), (2, 3), (1, 1, 7), (2, 1, 3, 2), (1, 2, 1, 3, 1)]
f32 = np.float32


def in_f64(f):
    return lambda x: f(np.asarray(x, np.float64))


def to_even(x):
    return np.rint(x)


# The function, and the operands it is shown beyond any: names of domains below.
FUNCTIONS = {
    "acos": (np.arccos, "unit"), "asin": (np.arcsin, "unit"), "atan": (np.arctan, "all"), "atanh": (np.arctanh, "unit"),
    "ceil": (np.ceil, "all"), "cos": (np.cos, "angle"), "cosh": (np.cosh, "small"), "exp2": (np.exp2, "small"),
    "floor": (np.floor, "all"), "round": (to_even, "all"), "sign": (np.sign, "all"), "sin": (np.sin, "angle"),
    "sinh": (np.sinh, "small"), "tan": (np.tan, "angle"), "abs": (np.abs, "all"), "erf": (special.erf, "small"),
    "exp": (np.exp, "small"), "relu": (lambda x: np.maximum(x, 0), "all"), "relu6": (lambda x: np.clip(x, 0, 6), "all"),
    "sigmoid": (special.expit, "small"), "silu": (lambda x: x * special.expit(x), "small"),
    "softplus": (lambda x: np.logaddexp(0, x), "small"), "softsign": (lambda x: x / (1 + np.abs(x)), "all"),
    "sqrt": (np.sqrt, "all"), "square": (np.square, "small"), "tanh": (np.tanh, "small"), "identity": (lambda x: x, "all"),
}
SPECIAL = {
    "all": lambda d: edges(d), "unit": lambda d: np.array([-1, -0.999, -0.5, -0.0, 0, 0.125, 0.75, 1, 1.5, np.nan], d),
    "angle": lambda d: np.array([0, -0.0, 0.5, 1, -2, 3.14, -6.3, 10.1, 100, np.inf, np.nan], d),
    "small": lambda d: np.array([0, -0.0, 1, -1, 0.001, -0.3, 4.5, -7, 9, -9.5, np.inf, -np.inf, np.nan], d),
}
for op, (f, domain) in FUNCTIONS.items():
    for dtype in FLOATS:
        x = SPECIAL[domain](dtype)
        if op in ("softsign",):
            x = x[np.isfinite(x)]
        case(op, in_f64(f)(x), x=x)
        for shape in SHAPES if dtype == np.float32 else SHAPES[3:]:
            low, high = (-1, 1) if domain == "unit" else (-6, 8)
            x = floats(*shape, low=low, high=high, dtype=dtype)
            case(op, in_f64(f)(np.abs(x) if op == "sqrt" else x), x=np.abs(x) if op == "sqrt" else x)
    if op in ("abs", "sign", "square"):
        x = np.array([0, 1, -1, 46340, -46340, 2**31 - 1, 16777217, -7] + ([-(2**31)] if op != "square" else []), np.int32)
        case(op, f(x), x=x)
        case(op, f(x := ints(3, 1, 2)), x=x)
case("exp2", np.array([1, 2, 1024, 2**30, 0, 0, 2**31 - 1], np.int32), x=np.array([0, 1, 10, 30, -1, -40, 31], np.int32), infer=False)

WITH_EPSILON = {"inverse": lambda x, e: 1 / (x + e), "log": lambda x, e: np.log(x + e), "rsqrt": lambda x, e: 1 / np.sqrt(x + e)}
for op, f in WITH_EPSILON.items():
    for dtype in FLOATS:
        for epsilon in (0.0625, 0.5, 0.0):
            for shape in [(), (3,), (2, 1, 5)]:
                x = floats(*shape, low=0.05, high=8, dtype=dtype)
                case(op, f(x.astype(np.float64), epsilon), x=x, epsilon=dtype(epsilon))
            x = np.array([0, 1, 1e3, np.inf, np.nan], dtype)
            case(op, f(x.astype(np.float64), epsilon), x=x, epsilon=dtype(epsilon))
    x = floats(4, low=1, high=5)
    default = {"inverse": 1e-4, "log": 1e-45, "rsqrt": 1e-12}[op]
    case(op, f(x.astype(np.float64), default), x=x)
    case(op, f(np.float64(-2.0), 0.5), x=np.array(-2, np.float32), epsilon=f32(0.5))

ALPHA = {
    "elu": lambda x, a: np.where(x < 0, a * np.expm1(x), x), "leaky_relu": lambda x, a: np.where(x < 0, a * x, x),
    "thresholded_relu": lambda x, a: np.where(x < a, 0, x), "threshold": lambda x, a: np.maximum(x, a),
}
ALPHA_BETA = {
    "clamped_relu": lambda x, a, b: np.minimum(np.where(x < 0, a * x, x), b), "linear_activation": lambda x, a, b: a * x + b,
    "scaled_tanh": lambda x, a, b: a * np.tanh(b * x), "sigmoid_hard": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
}
for dtype in FLOATS:
    special_x = np.array([0, -0.0, 0.25, -0.25, 2, -3, 6, -8, 1e-3, np.nan, np.inf, -np.inf], dtype)
    for op, f in ALPHA.items():
        for alpha in (0.0, 0.25, 1.0, 2.0, -0.5):
            # Zero times infinity is left to the formula.
            x = special_x if alpha or op.startswith("threshold") else special_x[:-1]
            case(op, f(x.astype(np.float64), alpha), x=x, alpha=dtype(alpha))
            for shape in [(), (2, 3), (1, 2, 1, 3, 2)]:
                x = floats(*shape, dtype=dtype)
                case(op, f(x.astype(np.float64), alpha), x=x, alpha=dtype(alpha))
    for op, f in ALPHA_BETA.items():
        for alpha, beta in ((0.25, 0.5), (0.5, 2.0), (-1.0, 0.75), (0.0, 6.0)):
            x = special_x[:-2] if op in ("linear_activation", "sigmoid_hard", "clamped_relu") and alpha == 0 else special_x
            case(op, f(x.astype(np.float64), alpha, beta), x=x, alpha=dtype(alpha), beta=dtype(beta))
            for shape in [(), (7,), (2, 1, 3)]:
                x = floats(*shape, dtype=dtype)
                case(op, f(x.astype(np.float64), alpha, beta), x=x, alpha=dtype(alpha), beta=dtype(beta))
    for shape in [(1, 3, 2), (2, 3, 2, 2), (1, 1, 5), (2, 2, 1, 2, 3)]:
        x, c = floats(*shape, dtype=dtype), shape[1]
        wide = [1, c] + [1] * (len(shape) - 2)
        # Core ML wants one alpha for all channels unless x has four axes.
        alpha = floats(c, dtype=dtype) if len(shape) == 4 else np.full(c, 0.25, dtype)
        beta = floats(c, low=0.5, dtype=dtype)
        a, b = (v.reshape(wide).astype(np.float64) for v in (alpha, beta))
        case("prelu", np.where(x < 0, a * x, x), x=x, alpha=alpha)
        case("softplus_parametric", a * np.logaddexp(0, b * x), x=x, alpha=alpha, beta=beta)
    case("softplus_parametric", 2 * np.logaddexp(0, np.array([[[500.0, -500, 1]]])), x=np.array([[[500, -500, 1]]], dtype),
         alpha=np.array([2], dtype), beta=np.array([1], dtype))
for alpha in (-3, 0, 2**31 - 1):
    x = np.array([5, -7, 0, 16777217, -(2**31)], np.int32)
    case("threshold", np.maximum(x, alpha), x=x, alpha=alpha)
for mode, f in {"EXACT": lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
                "TANH_APPROXIMATION": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
                "SIGMOID_APPROXIMATION": lambda x: x * special.expit(1.702 * x)}.items():
    for dtype in FLOATS:
        for x in (floats(2, 5, dtype=dtype), np.array([0, -0.0, 5, -5, 20, -20, np.nan], dtype), np.array(0.7, dtype)):
            case("gelu", in_f64(f)(x), x=x, mode=mode)
case("gelu", in_f64(lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))))(x := floats(3)), x=x)
for dtype in FLOATS:
    for shape, axis in [((3,), 0), ((1,), -1), ((2, 1, 5), 1), ((2, 3, 1, 2, 2), 1)]:
        x = floats(*shape, dtype=dtype)
        case("softmax", special.softmax(x.astype(np.float64), axis), x=x, axis=axis)
    for row in ([1, -np.inf, 2], [np.nan, 1, 2], [60000, 60000, -60000], [-np.inf, -np.inf, -np.inf], [0, np.inf, 0]):
        x = np.array([row], dtype)
        e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True).astype(np.float64))
        case("softmax", e / e.sum(-1, keepdims=True), x=x)

# Two numbers.
SHAPE_PAIRS = [((), ()), ((1,), (1,)), ((3,), ()), ((2, 1), (1, 3)), ((7,), (2, 7)), ((1, 2, 1, 2), (3, 1, 2, 1)), ((2, 1, 1, 1, 3), (1, 2, 1, 1))]
ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
              "real_div": np.true_divide, "floor_div": np.floor_divide, "mod": np.mod, "pow": np.power}
COMPARISONS = {"equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
               "less": np.less, "less_equal": np.less_equal}


def towards_zero(x, y):
    return np.array([0 if q == 0 else int(abs(int(p)) // abs(int(q))) * (1 if (p < 0) == (q < 0) else -1)
                     for p, q in np.nditer([x, y])], np.int64).reshape(np.broadcast(x, y).shape).astype(np.int32)


for op, f in ARITHMETIC.items():
    exact = op in ("floor_div", "mod")
    for dtype in FLOATS:
        # A remainder depends on every bit of its operands: numpy's own, not that in f64.
        up = (lambda v: v) if exact else (lambda v: v.astype(np.float64))
        for a, b in SHAPE_PAIRS:
            x, y = floats(*a, dtype=dtype), floats(*b, dtype=dtype)
            x = np.abs(x) if op == "pow" else x
            case(op, f(up(x), up(y)), x=x, y=y)
        p = np.array([0, -0.0, 1, -1, 2.5, np.inf, -np.inf, np.nan], dtype)
        with np.errstate(all="ignore"):
            case(op, f(up(p)[:, None], up(p)), x=p[:, None], y=p)
        if exact:
            x = np.array([7, -7, 7, -7, 1, 5.5, -5.5, 0, 0.3], dtype)
            y = np.array([2, 2, -2, -2, 0.1, 5.5, 5.5, -3, 0.1], dtype)
            case(op, f(x, y), x=x, y=y)
    for a, b in SHAPE_PAIRS:
        x, y = ints(*a), ints(*b)
        if op == "pow":
            y = np.abs(y)
        if op == "real_div":
            case(op, towards_zero(x, y), x=x, y=y, infer=False)
        else:
            case(op, f(x, y).astype(np.int32), x=x, y=y)
    if op == "pow":
        x, y = np.array([3, -3, 2, 1, -1, -1, 0, 46341, 2], np.int32), np.array([19, 3, 31, -5, -3, -2, 0, 2, 32], np.int32)
        case(op, np.array([1162261467, -27, -(2**31), 1, -1, 1, 1, -2147479015, 0], np.int32), x=x, y=y, infer=False)
    else:
        x = np.array([2**31 - 1, -(2**31), 16777217, 7, -7, 7, -7, 5, 0, 2**30], np.int32)
        y = np.array([2, 3, 16777216, 2, 2, -2, -2, 0, 0, 4], np.int32)
        case(op, towards_zero(x, y) if op == "real_div" else f(x, y), x=x, y=y, infer=False)
for op, f in COMPARISONS.items():
    for dtype in FLOATS:
        p = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], dtype)
        case(op, f(p[:, None], p), x=p[:, None], y=p)
        for a, b in SHAPE_PAIRS:
            x, y = np.round(floats(*a)).astype(dtype), np.round(floats(*b)).astype(dtype)
            case(op, f(x, y), x=x, y=y)
    p = np.array([0, 16777217, 16777216, -(2**31), 2**31 - 1], np.int32)
    case(op, f(p[:, None], p), x=p[:, None], y=p)
for op, f in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
    p = np.array([False, True])
    case(op, f(p[:, None], p), x=p[:, None], y=p)
    for a, b in SHAPE_PAIRS:
        x, y = of(bool, *a), of(bool, *b)
        case(op, f(x, y), x=x, y=y)
for shape in SHAPES:
    case("logical_not", ~(x := of(bool, *shape)), x=x)

# Casts between every two types.
ALL = (np.float32, np.float16, np.int32, np.int16, np.uint16, np.int8, np.uint8, np.bool_)
NAMES = {np.float32: "fp32", np.float16: "fp16", np.bool_: "bool"}
for a in ALL:
    for b in ALL:
        name = NAMES.get(b, np.dtype(b).name)
        for shape in [(), (2, 3), (5, 1, 1)]:
            x = of(a, *shape)
            if np.dtype(b).kind == "u":
                x = np.abs(x)
            case("cast", x.astype(b), x=x, dtype=name, out=b)
        if np.dtype(a).kind != "f":
            x = edges(a)
            if np.dtype(b) == np.float16:
                x = x[np.abs(x.astype(np.int64)) < 65504]
            # Integers keep their low bits.
            case("cast", x.astype(b), x=x, dtype=name, out=b)
        elif np.dtype(b).kind == "f":
            case("cast", edges(a).astype(b), x=edges(a), dtype=name, out=b, infer=False)
        elif np.dtype(b).kind == "b":
            case("cast", edges(a) != 0, x=edges(a), dtype=name, out=b)
        else:
            x = np.array([0.9, -0.9, 1.5, -1.5, 2.5, 100.75], a)
            x = np.abs(x) if np.dtype(b).kind == "u" else x
            case("cast", np.trunc(x).astype(b), x=x, dtype=name, out=b)
case("cast", np.array([2**31 - 1, -(2**31), 0, 2**31 - 1], np.int32), x=np.array([3e9, -3e9, np.nan, np.inf], f32), dtype="int32", infer=False)

for dtype in (np.float32, np.float16, np.int32, np.bool_):
    for shapes in [((), (), ()), ((2, 3), (2, 3), (2, 3)), ((1,), (3, 1), (1, 2)), ((2, 1, 1), (3,), ())]:
        cond, a, b = of(bool, *shapes[0]), of(dtype, *shapes[1]), of(dtype, *shapes[2])
        case("select", np.where(cond, a, b), cond=cond, a=a, b=b, out=dtype)
    a, b = edges(dtype), edges(dtype)[::-1].copy()
    cond = np.arange(a.size) % 2 == 0
    case("select", np.where(cond, a, b), cond=cond, a=a, b=b, out=dtype)
