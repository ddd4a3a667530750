"""What every case is made with: operands, the text form, and what coremltools makes of them."""

import logging
import math
import warnings

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
np.seterr(all="ignore")

DTYPES = {"float16": "fp16", "float32": "fp32", "int32": "int32", "int16": "int16", "uint16": "uint16",
          "int8": "int8", "uint8": "uint8", "uint32": "uint32", "bool": "bool"}
# Operands that stay constants, since shapes or Core ML ask for it.
CONSTANTS = {"begin", "end", "size", "shape", "weight", "bias", "gamma", "beta", "alpha", "pad", "reps",
             "begins", "ends", "end_masks", "value", "on_value", "off_value", "one_hot_vector_size",
             "downscale_factor", "paddings", "crops", "prob", "mean", "stddev", "low", "high"}
# Operands that may be a single number.
SCALARS = {"x", "y", "cond", "a", "b", "data", "indices", "updates"}

random = np.random.default_rng(20261129)
cases = {}
disagreements = []


def floats(*shape, low=-3.0, high=3.0, dtype=np.float32):
    return np.round(random.uniform(low, high, shape), 3).astype(dtype)


def ints(*shape, low=-5, high=6, dtype=np.int32):
    return random.integers(low, high, shape).astype(dtype)


def of(dtype, *shape):
    """Any elements of a type: whole floats, small integers, truth."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return np.asarray(floats(*shape, dtype=dtype))
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape)).astype(bool)
    return np.asarray(ints(*shape, low=0 if dtype.kind == "u" else -9, high=10, dtype=dtype))


def edges(dtype):
    """The elements of a type at which mistakes are made."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        f = np.finfo(dtype)
        return np.array([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, f.tiny, f.smallest_subnormal, f.max, f.min,
                         f.eps, np.inf, -np.inf, np.nan], dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    i = np.iinfo(dtype)
    return np.array([0, 1, i.max, i.min, i.max - 1, i.max // 2, 7], dtype)


def number(x):
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    if isinstance(x, (int, np.integer)):
        return str(x)
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    short = str(x.dtype.type(x)) if isinstance(x, np.floating) else repr(x)
    return repr(float(short)) if isinstance(x, (np.float32, np.float16)) else repr(float(str(np.float32(x))))


def tensor(array):
    array = np.asarray(array)
    shape = f"[{', '.join(map(str, array.shape))}]" if array.ndim else ""
    return f"{DTYPES[str(array.dtype)]}{shape} [{', '.join(map(number, array.ravel()))}]"


def attribute(value):
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(number, value))}]"
    return number(value)


def inferred(op, arguments, opset):
    """What coremltools computes; None where it does not."""
    made = []

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=opset)
    def program(unused):
        y = getattr(mb, op)(**arguments)
        made.extend(y if isinstance(y, (list, tuple)) else [y])
        return mb.identity(x=unused)

    values = [y.val for y in made]
    return None if any(v is None for v in values) else [np.asarray(v) for v in values]


def agree(mine, theirs):
    """Are these the same numbers, as far as one formula differs from another by rounding?"""
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    if mine.shape != theirs.shape:
        return False
    if mine.dtype.kind != "f" and theirs.dtype.kind != "f":
        return np.array_equal(mine, theirs)
    # Theirs is computed in fp16 when it is stored so.
    rtol, atol = (3e-2, 3e-3) if theirs.dtype == np.float16 else (1e-4, 1e-5)
    return np.allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def case(op, expected=None, opset=ct.target.iOS18, out=None, dynamic=False, infer=True, **arguments):
    """One case; arrays are operands, everything else is an attribute.

    `expected` are the results by numpy, in any precision; those of coremltools where there are none.
    Where both exist and differ, the difference is listed. `out` is the dtype of each result, `dynamic`
    makes shapes operands that may be inputs too.
    """
    lines, call = [], []
    # numpy makes scalars of arrays without axes.
    arguments = {n: np.asarray(v) if n in SCALARS and isinstance(v, np.generic) else v for n, v in arguments.items()}
    for name, value in arguments.items():
        constant = name in CONSTANTS and not dynamic
        if isinstance(value, np.ndarray):
            operand = name if constant else f"in_{name}"
            lines.append(f"  %{operand} = const(val={tensor(value)})")
            call.append(f"{name}=%{operand}")
        elif isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            operand = name if constant else f"in_{name}"
            lines += [f"  %{operand}{i} = const(val={tensor(array)})" for i, array in enumerate(value)]
            call.append(f"{name}=({', '.join(f'%{operand}{i}' for i in range(len(value)))})")
        else:
            call.append(f"{name}={attribute(value)}")
    first = next(iter(a for v in arguments.values() for a in (v if isinstance(v, list) else [v]) if isinstance(a, np.ndarray)), None)
    results = theirs = None
    try:
        theirs = inferred(op, arguments, opset) if infer else None
    except Exception as error:  # coremltools refuses what only Core ML runs
        if expected is None:
            raise SystemExit(f"{op}: {error}")
    if expected is None:
        results = theirs
        assert results is not None, f"{op} has no value and no numpy result"
    else:
        results = list(expected) if isinstance(expected, (list, tuple)) else [expected]
        if theirs is not None and not all(map(agree, results, theirs)):
            disagreements.append((op, arguments, results, theirs))
    names = ["%y"] if len(results) == 1 else [f"%y{i}" for i in range(len(results))]
    to = names[0] if len(names) == 1 else f"({', '.join(names)})"
    # A program without an opset is of iOS 18.
    head = "" if opset == ct.target.iOS18 else f"program {opset.name.lower()}\n"
    text = head + "func main() {\n" + "\n".join(lines) + f"\n  {', '.join(names)} = {op}({', '.join(call)})\n}} -> {to}\n"
    outs = out if isinstance(out, (list, tuple)) else [out] * len(results)
    made = [f"  {n} = const(val={tensor(like(r, o, first))})" for n, r, o in zip(names, results, outs)]
    text += "=> " + head + "func main() {\n" + "\n".join(made) + f"\n}} -> {to}\n"
    cases.setdefault(op, []).append(text)


def like(result, dtype, first):
    """The result in the type the op gives it: that of its first operand, unless another is said."""
    result = np.asarray(result)
    if dtype is not None:
        return result.astype(dtype)
    if result.dtype.kind == "f":
        return result.astype(first.dtype if first is not None and first.dtype.kind == "f" else np.float32)
    if result.dtype.kind in "iu":
        narrow = first is not None and first.dtype.kind in "iu" and result.dtype == first.dtype
        return result.astype(first.dtype if narrow else np.int32)
    return result
