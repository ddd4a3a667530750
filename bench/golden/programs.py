"""Cases of compressed weights and of programs with lists, states, loops and conditions.

Compressed weights are decoded by coremltools' own functions; the programs are followed by hand in Python.
"""

import itertools

import numpy as np
from coremltools.converters.mil.mil.ops.defs import iOS16, iOS18
from coremltools.optimize import _utils

from .common import cases, floats, ints, tensor

rng = np.random.default_rng(20261130)


def packed(array, dtype, bits):
    """A tensor of elements that do not fill bytes: the bit stream, least significant bit first."""
    flat = np.asarray(array).ravel().astype(np.int64) & ((1 << bits) - 1)
    stream = sum(int(v) << (i * bits) for i, v in enumerate(flat))
    data = stream.to_bytes(-(-len(flat) * bits // 8), "little")
    return f'{dtype}[{", ".join(map(str, np.asarray(array).shape))}] hex"{data.hex()}"'


def program(op, opset, lines, outputs, expected):
    """One case from its text; the expected results are constants."""
    names = ", ".join(f"%{n}" for n in outputs)
    to = names if len(outputs) == 1 else f"({names})"
    text = f"program {opset}\nfunc main() {{\n" + "\n".join(f"  {line}" for line in lines) + f"\n}} -> {to}\n"
    made = [f"  %{n} = const(val={value})" for n, value in zip(outputs, expected)]
    text += f"=> program {opset}\nfunc main() {{\n" + "\n".join(made) + f"\n}} -> {to}\n"
    cases.setdefault(op, []).append(text)


# Affine, per tensor and per channel
for shape, axis in [((4,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 1, 4), -3), ((2, 1, 3, 2, 2), 4)]:
    for dtype, to, per_channel in itertools.product((np.int8, np.uint8), (np.float32, np.float16), (False, True)):
        info = np.iinfo(dtype)
        data = ints(*shape, low=info.min, high=info.max + 1, dtype=dtype)
        n = (shape[axis],) if per_channel else ()
        scale = np.asarray(floats(*n, low=0.01, high=0.5), to)
        zero = np.asarray(rng.integers(info.min, info.max, n), dtype)
        y = iOS16.constexpr_ops.constexpr_affine_dequantize.decompress(data, zero, scale, axis)
        program("constexpr_affine_dequantize", "ios16", [
            f"%q = const(val={tensor(data)})", f"%z = const(val={tensor(zero)})", f"%s = const(val={tensor(scale)})",
            f"%y = constexpr_affine_dequantize(quantized_data=%q, zero_point=%z, scale=%s, axis={axis})"], ["y"], [tensor(y.astype(to))])

# Tables
for shape, bits, to in itertools.product([(4,), (3, 5), (2, 3, 1, 4), (1, 7, 3)], (1, 2, 3, 4, 6, 8), (np.float32, np.float16, np.int8, np.uint8)):
    lut = floats(1 << bits, dtype=to) if np.dtype(to).kind == "f" else rng.integers(np.iinfo(to).min, np.iinfo(to).max + 1, 1 << bits).astype(to)
    indices = rng.integers(0, 1 << bits, shape)
    y = lut[indices]
    if to != np.uint8 or bits != 3:
        stream = bytes.fromhex(packed(indices, "x", bits).split('"')[1])
        old = np.frombuffer(stream, np.uint8)
        program("constexpr_lut_to_dense", "ios16", [
            f"%i = const(val={tensor(old)})", f"%l = const(val={tensor(lut)})", f"%s = const(val={tensor(np.array(shape, np.uint32))})",
            "%y = constexpr_lut_to_dense(indices=%i, lut=%l, shape=%s)"], ["y"], [tensor(y)])
    program("constexpr_lut_to_dense", "ios18", [
        f"%i = const(val={packed(indices, f'uint{bits}', bits)})", f"%l = const(val={tensor(lut.reshape([1] * len(shape) + [-1, 1]))})",
        "%y = constexpr_lut_to_dense(indices=%i, lut=%l)"], ["y"], [tensor(y)])
for shape, groups, vector, axis in [((4, 6), (2, 1), 1, None), ((4, 6), (1, 3), 1, None), ((4, 6), (2, 3), 2, 0), ((4, 6), (4, 1), 3, 1), ((2, 2, 2), (1, 1, 1), 3, 1),
                                    ((2, 4, 3), (2, 2, 1), 2, 2), ((2, 4, 3), (1, 4, 3), 4, 0), ((6,), (3,), 2, 0), ((2, 3, 4, 2), (2, 1, 2, 1), 2, -3)]:
    for bits, to in itertools.product((1, 3, 4), (np.float32, np.float16)):
        lut = floats(*groups, 1 << bits, vector, dtype=to)
        indices = rng.integers(0, 1 << bits, shape).astype(np.uint8)
        y = _utils.lut_to_dense(indices, lut, axis)
        more = "" if axis is None else f", vector_axis={axis}"
        program("constexpr_lut_to_dense", "ios18", [
            f"%i = const(val={packed(indices, f'uint{bits}', bits)})", f"%l = const(val={tensor(lut)})",
            f"%y = constexpr_lut_to_dense(indices=%i, lut=%l{more})"], ["y"], [tensor(y)])
        mask = rng.integers(0, 2, shape).astype(np.uint8)
        nonzero = indices[mask != 0]
        if len(nonzero) == 0 or (axis is not None and axis < 0):
            continue
        m, data = iOS18.compression.constexpr_lut_to_sparse.decompress(mask, nonzero, lut, axis)
        dense = iOS18.compression.constexpr_sparse_to_dense.decompress(data, m)
        program("constexpr_lut_to_sparse", "ios18", [
            f"%m = const(val={packed(mask, 'uint1', 1)})", f"%i = const(val={packed(nonzero, f'uint{bits}', bits)})", f"%l = const(val={tensor(lut)})",
            f"%n, %d = constexpr_lut_to_sparse(indices_mask=%m, indices_nonzero_data=%i, lut=%l{more})",
            "%y = constexpr_sparse_to_dense(nonzero_data=%d, mask=%n)"], ["y", "d"], [tensor(dense), tensor(data)])

# Masks
for shape, to, density in itertools.product([(8,), (3, 5), (2, 3, 1, 4), (1, 1, 17, 2)], (np.float32, np.float16, np.int8, np.uint8), (0.0, 0.4, 1.0)):
    mask = (rng.random(shape) < density).astype(np.uint8)
    data = floats(int(mask.sum()), dtype=to) if np.dtype(to).kind == "f" else ints(int(mask.sum()), low=0, high=100, dtype=to)
    y = iOS18.compression.constexpr_sparse_to_dense.decompress(data, mask)
    old = np.packbits(mask.ravel(), bitorder="little")
    program("constexpr_sparse_to_dense", "ios16", [
        f"%d = const(val={tensor(data)})", f"%m = const(val={tensor(old)})", f"%s = const(val={tensor(np.array(shape, np.uint32))})",
        "%y = constexpr_sparse_to_dense(nonzero_data=%d, mask=%m, shape=%s)"], ["y"], [tensor(y)])
    program("constexpr_sparse_to_dense", "ios18", [
        f"%d = const(val={tensor(data)})", f"%m = const(val={packed(mask, 'uint1', 1)})",
        "%y = constexpr_sparse_to_dense(nonzero_data=%d, mask=%m)"], ["y"], [tensor(y)])

# Blocks
for shape, blocks in [((4,), (2,)), ((4, 6), (4, 1)), ((4, 6), (1, 3)), ((4, 6), (2, 2)), ((4, 6), (1, 1)), ((2, 3, 1, 8), (2, 3, 1, 2)), ((1, 6, 5), (1, 2, 5))]:
    for kind, to, with_offset in itertools.product(("int4", "uint4", "int8", "uint8"), (np.float32, np.float16), (False, True)):
        bits, signed = int(kind[-1]), kind[0] == "i"
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        data = rng.integers(low, high, shape).astype(np.int8 if signed else np.uint8)
        scale = floats(*blocks, low=0.01, high=0.5, dtype=to)
        offset = rng.integers(low, high, blocks).astype(data.dtype) if with_offset else None
        # The operation's function subtracts in the narrow type; the difference fits in f32 and is meant.
        y = iOS18.compression.constexpr_blockwise_shift_scale.decompress(data, scale.astype(np.float32), None if offset is None else offset.astype(np.float32)).astype(to)
        form = (lambda a: packed(a, kind, 4)) if bits == 4 else tensor
        lines = [f"%q = const(val={form(data)})", f"%s = const(val={tensor(scale)})"]
        more = ""
        if with_offset:
            lines.append(f"%o = const(val={form(offset)})")
            more = ", offset=%o"
        program("constexpr_blockwise_shift_scale", "ios18", [*lines, f"%y = constexpr_blockwise_shift_scale(data=%q, scale=%s{more})"], ["y"], [tensor(y)])
        mask = rng.integers(0, 2, shape).astype(np.uint8)
        if not mask.any() or bits == 4:
            continue
        nonzero = data[mask != 0]
        kept = y[mask != 0]
        lines[0] = f"%q = const(val={form(nonzero)})"
        program("constexpr_sparse_blockwise_shift_scale", "ios18", [
            *lines, f"%m = const(val={packed(mask, 'uint1', 1)})",
            f"%n, %d = constexpr_sparse_blockwise_shift_scale(data_mask=%m, nonzero_data=%q, scale=%s{more})",
            "%y = constexpr_sparse_to_dense(nonzero_data=%d, mask=%n)"], ["y", "d"],
            [tensor(np.where(mask != 0, y, 0).astype(to)), tensor(kept)])
# A table that is itself compressed, and a result that is cast.
lut = rng.integers(-128, 128, (1, 1, 4, 1)).astype(np.int8)
indices = rng.integers(0, 4, (3, 4)).astype(np.uint8)
scale = floats(3, 1, low=0.1, high=1)
y = _utils.lut_to_dense(indices, lut, None).astype(np.float32) * scale
program("constexpr_blockwise_shift_scale", "ios18", [
    f"%i = const(val={packed(indices, 'uint2', 2)})", f"%l = const(val={tensor(lut)})", f"%s = const(val={tensor(scale)})",
    "%q = constexpr_lut_to_dense(indices=%i, lut=%l)", "%y = constexpr_blockwise_shift_scale(data=%q, scale=%s)"], ["y"], [tensor(y)])
small = floats(1, 1, 4, 1, low=0.1, high=1)
y = _utils.lut_to_dense(indices, lut.astype(np.float32) * small, None)
program("constexpr_lut_to_dense", "ios18", [
    f"%q = const(val={tensor(lut)})", f"%s = const(val={tensor(small)})", "%l = constexpr_blockwise_shift_scale(data=%q, scale=%s)",
    f"%i = const(val={packed(indices, 'uint2', 2)})", "%y = constexpr_lut_to_dense(indices=%i, lut=%l)"], ["y"], [tensor(y.astype(np.float32))])
for shape in [(1,), (3, 5), (2, 1, 7)]:
    x = floats(*shape, dtype=np.float16)
    program("constexpr_cast", "ios16", [f"%x = const(val={tensor(x)})", '%y = constexpr_cast(source_val=%x, output_dtype="fp32")'], ["y"], [tensor(x.astype(np.float32))])

# Lists
for n, shape, dtype in [(3, (2,), "fp32"), (1, (), "int32"), (4, (2, 3), "fp16"), (2, (3,), "bool")]:
    def some(*more):
        kind = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "bool": np.bool_}[dtype]
        return rng.integers(0, 2, (*more, *shape)).astype(bool) if dtype == "bool" else (ints(*more, *shape) if dtype == "int32" else floats(*more, *shape, dtype=kind))

    for dynamic in ("true", "false"):
        value, rows = np.asarray(some()), some(n)
        extents = [f"%e{i} = const(val=int32 [{d}])" for i, d in enumerate(shape)]
        names = ", ".join(f"%e{i}" for i in range(len(shape)))
        make = f'%l0 = make_list(init_length={n}, dynamic_length={dynamic}, elem_shape=({names}), dtype="{dtype}")'
        at = list(range(n))[::-1]
        lines = [*extents, make, f"%rows = const(val={tensor(rows)})", f"%at = const(val=int32[{n}] [{', '.join(map(str, at))}])",
                 "%l1 = list_scatter(ls=%l0, indices=%at, value=%rows)", f"%value = const(val={tensor(value)})", f"%last = const(val=int32 [{n - 1}])",
                 "%l2 = list_write(ls=%l1, index=%last, value=%value)"]
        held = np.zeros_like(rows)
        held[at] = rows
        whole = held.copy()
        whole[n - 1] = value
        program("list_scatter", "ios15", [*lines[:-3], "%y = list_gather(ls=%l1, indices=%at)"], ["y"], [tensor(held[at])])
        program("list_gather", "ios15", [*lines, "%y = list_gather(ls=%l2, indices=%at)"], ["y"], [tensor(whole[at])])
        program("list_write", "ios15", [*lines, "%y = list_read(ls=%l2, index=%last)"], ["y"], [tensor(value)])
        program("list_read", "ios15", [*lines[:-1], "%y = list_read(ls=%l1, index=%last)"], ["y"], [tensor(held[n - 1])])
        program("list_length", "ios15", [*lines, "%y = list_length(ls=%l2)"], ["y"], [f"int32 [{n}]"])
        program("make_list", "ios15", [*extents, make, f"%at = const(val=int32[{n}] [{', '.join(map(str, range(n)))}])", "%y = list_gather(ls=%l0, indices=%at)"],
                ["y"], [tensor(np.zeros_like(rows))])
program("list_write", "ios15", [
    "%e0 = const(val=int32 [2])", '%l0 = make_list(init_length=1, dynamic_length=true, elem_shape=(%e0), dtype="fp32")', "%at = const(val=int32 [3])",
    "%v = const(val=fp32[2] [1.0, 2.0])", "%l1 = list_write(ls=%l0, index=%at, value=%v)", "%n = list_length(ls=%l1)", "%y = list_read(ls=%l1, index=%at)"],
    ["n", "y"], ["int32 [4]", "fp32[2] [1.0, 2.0]"])

# Loops
for n in (0, 1, 5):
    x = floats(2, 3)
    total, i = x.copy(), 0
    while i < n:
        total, i = (total * np.float32(0.5) + x).astype(np.float32), i + 1
    program("while_loop", "ios15", [
        f"%x = const(val={tensor(x)})", "%zero = const(val=int32 [0])", f"%n = const(val=int32 [{n}])", "%one = const(val=int32 [1])",
        "%half = const(val=fp32 [0.5])",
        "%i_end, %sum = while_loop(loop_vars=(%zero, %x)) { |%i: int32, %s: fp32[2, 3]|", "  %go = less(x=%i, y=%n)", "} -> %go { |%j: int32, %t: fp32[2, 3]|",
        "  %next = add(x=%j, y=%one)", "  %less_of_it = mul(x=%t, y=%half)", "  %more = add(x=%less_of_it, y=%x)", "} -> (%next, %more)"],
        ["i_end", "sum"], [f"int32 [{n}]", tensor(total)])
    # A list filled by a loop whose body has a condition.
    kept = np.array([k * k if k % 2 else -k for k in range(n)] or [0], np.int32)
    if n:
        program("while_loop", "ios15", [
            "%zero = const(val=int32 [0])", f"%n = const(val=int32 [{n}])", "%one = const(val=int32 [1])", "%two = const(val=int32 [2])",
            '%l0 = make_list(init_length=1, dynamic_length=true, elem_shape=(), dtype="int32")',
            "%i_end, %l_end = while_loop(loop_vars=(%zero, %l0)) { |%i: int32, %l: list<int32>|", "  %go = less(x=%i, y=%n)", "} -> %go { |%j: int32, %m: list<int32>|",
            "  %odd = mod(x=%j, y=%two)", "  %is_odd = equal(x=%odd, y=%one)", "  %v = cond(pred=%is_odd) {", "    %sq = mul(x=%j, y=%j)", "  } -> %sq {",
            "    %neg = sub(x=%zero, y=%j)", "  } -> %neg", "  %w = list_write(ls=%m, index=%j, value=%v)", "  %next = add(x=%j, y=%one)", "} -> (%next, %w)",
            f"%all = const(val=int32[{n}] [{', '.join(map(str, range(n)))}])", "%y = list_gather(ls=%l_end, indices=%all)"], ["y"], [tensor(kept)])

# Buffers of compiled programs hold what tensors hold.
for shape in [(1,), (2, 3), (1, 2, 3, 4)]:
    x = floats(*shape, dtype=np.float16)
    program("tensor_buffer_to_tensor", "ios17", [f"%x = const(val={tensor(x)})", "%y = tensor_buffer_to_tensor(input=%x)"], ["y"], [tensor(x)])
    program("tensor_to_tensor_buffer", "ios17", [f"%x = const(val={tensor(x)})", "%y = tensor_to_tensor_buffer(input=%x)"], ["y"], [tensor(x)])
