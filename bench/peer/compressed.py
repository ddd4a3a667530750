"""Weights in every compressed form, built op by op and made by coremltools' optimizers."""

import itertools

import numpy as np
from coremltools.converters.mil.mil.ops.defs import iOS16, iOS18
from coremltools.optimize import _utils
from coremltools.optimize import coreml as optimize

from .common import call, converted, ct, floats, ints, mb, package, random, types

old, new = iOS16.constexpr_ops, iOS18.compression
SUB_BYTE = {1: types.np_uint1_dtype, 2: types.np_uint2_dtype, 3: types.np_uint3_dtype, 4: types.np_uint4_dtype,
            6: types.np_uint6_dtype, 8: np.uint8}
INT4, UINT4 = types.np_int4_dtype, types.np_uint4_dtype


def weight(name, opset, build, decoded, tolerance=1e-6):
    """A package that adds a compressed weight to its input."""
    def make():
        expected = decoded() if callable(decoded) else decoded
        kind = types.fp16 if expected.dtype == np.float16 else types.fp32
        number = expected.dtype if expected.dtype.kind == "f" else np.dtype(np.float32)

        @mb.program(input_specs=[mb.TensorSpec(expected.shape, dtype=kind)], opset_version=opset)
        def program(x):
            w = build()
            w = w if expected.dtype.kind == "f" else mb.cast(x=w, dtype="fp32")
            return mb.add(x=x, y=w, name="out")

        x = floats(*expected.shape, dtype=number)
        return converted(program, opset), call(({"x": x}, {"out": x + expected.astype(number)}), tolerance=tolerance)
    package(name)(make)


# iOS 16: affine
for dtype, to, axis in itertools.product((np.int8, np.uint8), (np.float32, np.float16), (None, 0, 1)):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    data = ints(4, 6, low=low, high=high, dtype=dtype)
    n = () if axis is None else (data.shape[axis],)
    scale = np.asarray(np.abs(floats(*n)) / 16 + 0.01, to)
    zero = np.asarray(random.integers(low, high, n), dtype)
    arguments = dict(quantized_data=data, zero_point=zero[()] if axis is None else zero,
                     scale=scale[()] if axis is None else scale, axis=axis or 0)
    weight(f"affine-{np.dtype(dtype).name}-{np.dtype(to).name}-{'tensor' if axis is None else f'axis{axis}'}", ct.target.iOS16,
           lambda a=arguments: mb.constexpr_affine_dequantize(**a),
           old.constexpr_affine_dequantize.decompress(data, zero, scale, axis or 0).astype(to))

# iOS 16: tables, sparse weights, casts
for bits, to in itertools.product((1, 2, 4, 6, 8), (np.float32, np.float16, np.int8, np.uint8)):
    shape = (3, 5)
    table = (floats(1 << bits) if np.dtype(to).kind == "f" else random.integers(0, 100, 1 << bits)).astype(to)
    indices = random.integers(0, 1 << bits, shape).astype(np.uint8)
    stream = _utils.pack_elements_into_bits(indices, bits)
    # Core ML casts narrow integers from iOS 17 on.
    opset = ct.target.iOS16 if table.dtype.kind == "f" else ct.target.iOS17
    weight(f"table-{bits}bit-{np.dtype(to).name}-{opset.name.lower()}", opset,
           lambda i=stream, t=table: mb.constexpr_lut_to_dense(indices=i, lut=t, shape=np.array((3, 5), np.uint32)), table[indices])
for to in (np.float32, np.float16, np.int8, np.uint8):
    dense = ints(3, 7, low=0, high=3).astype(to)
    mask = np.packbits((dense != 0).ravel(), bitorder="little")
    opset = ct.target.iOS16 if dense.dtype.kind == "f" else ct.target.iOS17
    weight(f"sparse-{np.dtype(to).name}-{opset.name.lower()}", opset,
           lambda d=dense[dense != 0], m=mask: mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m, shape=np.array((3, 7), np.uint32)), dense)
for opset in ("iOS16", "iOS18"):
    source = floats(4, 5, dtype=np.float16)
    weight(f"cast-{opset.lower()}", ct.target[opset], lambda s=source: mb.constexpr_cast(source_val=s, output_dtype="fp32"),
           source.astype(np.float32))

# iOS 18: blocks
KINDS = {"int4": (INT4, -8, 8), "uint4": (UINT4, 0, 16), "int8": (np.int8, -128, 128), "uint8": (np.uint8, 0, 256)}
for (name, (dtype, low, high)), to, blocks, offset in itertools.product(
        KINDS.items(), (np.float32, np.float16), ((1, 1), (4, 1), (4, 3), (2, 6)), (None, "same", "float")):
    if to == np.float16 and blocks in ((1, 1), (2, 6)):
        continue
    data = random.integers(low, high, (4, 6)).astype(np.int8 if low else np.uint8)
    scale = (np.abs(floats(*blocks)) / 16 + 0.01).astype(to)
    shift = {None: None, "same": random.integers(low, high, blocks).astype(data.dtype), "float": floats(*blocks, dtype=to)}[offset]
    decoded = new.constexpr_blockwise_shift_scale.decompress(data, scale, shift).astype(to)
    arguments = {"data": data.astype(dtype), "scale": scale}
    if offset:
        arguments["offset"] = shift.astype(dtype) if offset == "same" else shift
    weight(f"blocks-{name}-{np.dtype(to).name}-{blocks[0]}x{blocks[1]}-{offset or 'none'}", ct.target.iOS18,
           lambda a=arguments: mb.constexpr_blockwise_shift_scale(**a), decoded,
           # In fp16 coremltools rounds the difference too, russet the result alone.
           tolerance=3e-3 if to == np.float16 and offset == "float" else 1e-6)

# iOS 18: tables for groups, tables of vectors
for bits, to, (groups, vector, axis) in itertools.product(
        SUB_BYTE, (np.float32, np.float16), [((1, 1), 1, None), ((2, 1), 1, None), ((2, 3), 1, None), ((1, 1), 2, 0), ((4, 1), 4, 1)]):
    indices = random.integers(0, 1 << bits, (4, 6)).astype(np.uint8)
    table = floats(*groups, 1 << bits, vector, dtype=to)
    arguments = {"indices": indices.astype(SUB_BYTE[bits]), "lut": table} | ({} if axis is None else {"vector_axis": np.int32(axis)})
    weight(f"table-{bits}bit-{np.dtype(to).name}-{groups[0]}x{groups[1]}-vector{vector}", ct.target.iOS18,
           lambda a=arguments: mb.constexpr_lut_to_dense(**a), _utils.lut_to_dense(indices, table, axis).astype(to))

# iOS 18: sparse weights, and forms that are joined
for to in (np.float32, np.float16, np.int8, np.uint8):
    dense = ints(3, 7, low=0, high=3).astype(to)
    weight(f"sparse-{np.dtype(to).name}-ios18", ct.target.iOS18,
           lambda d=dense: mb.constexpr_sparse_to_dense(nonzero_data=d[d != 0], mask=(d != 0).astype(SUB_BYTE[1])), dense)
for bits, (groups, vector, axis) in itertools.product((1, 3, 4, 8), [((1, 1), 1, None), ((2, 1), 1, None), ((2, 1), 2, 0)]):
    mask = random.integers(0, 2, (4, 6)).astype(np.uint8)
    indices = random.integers(0, 1 << bits, mask.sum()).astype(np.uint8)
    table = floats(*groups, 1 << bits, vector)
    more = {} if axis is None else {"vector_axis": np.int32(axis)}

    def build(m=mask, i=indices, t=table, bits=bits, more=more):
        m, d = mb.constexpr_lut_to_sparse(indices_mask=m.astype(SUB_BYTE[1]), indices_nonzero_data=i.astype(SUB_BYTE[bits]), lut=t, **more)
        return mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)

    m, d = new.constexpr_lut_to_sparse.decompress(mask, indices, table, axis)
    weight(f"table-sparse-{bits}bit-{groups[0]}x{groups[1]}-vector{vector}", ct.target.iOS18, build,
           new.constexpr_sparse_to_dense.decompress(d, m).astype(np.float32))
for (name, (dtype, low, high)), blocks, offset in itertools.product(KINDS.items(), ((1, 1), (4, 3)), (False, True)):
    mask = random.integers(0, 2, (4, 6)).astype(np.uint8)
    data = random.integers(low, high, mask.sum()).astype(np.int8 if low else np.uint8)
    scale = np.abs(floats(*blocks)) / 16 + np.float32(0.01)
    shift = random.integers(low, high, blocks).astype(data.dtype) if offset else None

    def build(m=mask, i=data, s=scale, o=shift, dtype=dtype):
        more = {} if o is None else {"offset": o.astype(dtype)}
        m, d = mb.constexpr_sparse_blockwise_shift_scale(data_mask=m.astype(SUB_BYTE[1]), nonzero_data=i.astype(dtype), scale=s, **more)
        return mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)

    m, d = new.constexpr_sparse_blockwise_shift_scale.decompress(mask, data, scale, shift)
    weight(f"blocks-sparse-{name}-{blocks[0]}x{blocks[1]}-{'offset' if offset else 'none'}", ct.target.iOS18, build,
           new.constexpr_sparse_to_dense.decompress(d, m).astype(np.float32))
for first, bits in itertools.product(("scale", "table"), (2, 4)):
    indices = random.integers(0, 1 << bits, (4, 6)).astype(np.uint8)
    table = ints(1, 1, 1 << bits, 1, low=-128, high=128, dtype=np.int8)
    scale = np.array([[0.125]], np.float32)

    def build(i=indices.astype(SUB_BYTE[bits]), t=table, s=scale, first=first):
        if first == "scale":
            lut = mb.constexpr_blockwise_shift_scale(data=t, scale=s.reshape(1, 1, 1, 1))
            return mb.constexpr_lut_to_dense(indices=i, lut=lut)
        return mb.constexpr_blockwise_shift_scale(data=mb.constexpr_lut_to_dense(indices=i, lut=t), scale=s)

    weight(f"joint-{first}-first-{bits}bit", ct.target.iOS18 if first == "scale" else ct.target.iOS26, build,
           (table.ravel()[indices] * scale).astype(np.float32))


def materialized(var):
    """What a weight decodes to; a table may be compressed itself."""
    if var.val is not None:
        return var.val
    if var.op.op_type == "constexpr_lut_to_dense" and var.op.lut.val is None:
        axis = var.op.vector_axis
        return _utils.lut_to_dense(var.op.indices.val, materialized(var.op.lut), axis and axis.val)
    return var.op.materialized_val_inference()


# What optimizers make of a product with a weight of some size
def optimized(name, opset, *steps):
    def make():
        w = random.normal(size=(64, 64)).astype(np.float32)

        @mb.program(input_specs=[mb.TensorSpec((2, 64))], opset_version=opset)
        def program(x):
            return mb.linear(x=x, weight=w, name="out")

        model = converted(program, opset)
        for apply, options, more in steps:
            model = apply(model, optimize.OptimizationConfig(global_config=options), **more)
        op = next(o for o in model._mil_program.functions["main"].operations if o.op_type == "linear")
        x = floats(2, 64)
        decoded = materialized(op.weight)
        return model, call(({"x": x}, {"out": x @ decoded.astype(np.float32).T}), tolerance=1e-3)
    package(name)(make)


linear, palette, prune = optimize.linear_quantize_weights, optimize.palettize_weights, optimize.prune_weights
Linear, Palette = optimize.OpLinearQuantizerConfig, optimize.OpPalettizerConfig
optimized("optimizer-int8-ios16", ct.target.iOS16, (linear, Linear(mode="linear_symmetric"), {}))
optimized("optimizer-uint8-ios17", ct.target.iOS17, (linear, Linear(mode="linear", dtype=np.uint8), {}))
optimized("optimizer-int4-blocks", ct.target.iOS18, (linear, Linear(dtype="int4", granularity="per_block", block_size=16), {}))
optimized("optimizer-table4-ios16", ct.target.iOS16, (palette, Palette(mode="uniform", nbits=4), {}))
optimized("optimizer-table3-groups", ct.target.iOS18, (palette, Palette(mode="uniform", nbits=3, granularity="per_grouped_channel", group_size=16), {}))
Sparse = optimize.OpMagnitudePrunerConfig
optimized("optimizer-sparse-ios16", ct.target.iOS16, (prune, Sparse(target_sparsity=0.6), {}))
optimized("optimizer-sparse-ios18", ct.target.iOS18, (prune, Sparse(target_sparsity=0.6), {}))
optimized("optimizer-sparse-table", ct.target.iOS18, (prune, Sparse(target_sparsity=0.6), {}),
          (palette, Palette(mode="uniform", nbits=4), {"joint_compression": True}))
optimized("optimizer-sparse-int8", ct.target.iOS18, (prune, Sparse(target_sparsity=0.6), {}),
          (linear, Linear(mode="linear_symmetric"), {"joint_compression": True}))
optimized("optimizer-table-int8", ct.target.iOS18, (palette, Palette(mode="uniform", nbits=4), {}),
          (linear, Linear(mode="linear_symmetric", granularity="per_tensor"), {"joint_compression": True}))
