"""Cases of ops that move, make or index elements."""

import itertools

import numpy as np

from .common import case, edges, floats, ints, of, random

FLOATS = (np.float32, np.float16)
WIDE = FLOATS + (np.int32, np.bool_)
EVERY = WIDE + (np.int16, np.uint16, np.int8, np.uint8)
NARROW = (np.int32, np.int16, np.uint16, np.int8, np.uint8)
i32 = np.int32


def i(*values):
    return np.array(values, np.int32)


def both(op, expected, **arguments):
    """Shapes as constants, and as operands that may be inputs."""
    case(op, expected, **arguments)
    case(op, expected, dynamic=True, infer=False, **arguments)


for dtype in EVERY:
    for shape, perm in [((), []), ((1,), [0]), ((2, 3), [1, 0]), ((2, 1, 3), [2, 0, 1]), ((1, 2, 1, 3), [-1, 0, 2, 1]), ((2, 1, 3, 1, 2), [4, 2, 0, 3, 1])]:
        x = of(dtype, *shape)
        if perm:
            case("transpose", x.transpose([p % x.ndim for p in perm]), x=x, perm=perm, out=dtype)
    for shape, target in [((), (1,)), ((6,), (2, 3)), ((2, 3), (-1,)), ((2, 3, 1), (3, -1)), ((2, 2, 3), (0, -1)), ((3, 4), (0, 0)), ((2, 3, 2), (1, 1, 2, 1, -1))]:
        x = of(dtype, *shape)
        # A zero keeps the extent of that axis, counted from the last one.
        copied = [x.shape[len(shape) - len(target) + k] if t == 0 else t for k, t in enumerate(target)]
        both("reshape", x.reshape(copied), x=x, shape=i(*target), out=dtype)
    for shape, axes in [((), [0]), ((3,), [0, 2]), ((2, 3), [-1]), ((2, 1), [1, 3, 4])]:
        x = of(dtype, *shape)
        case("expand_dims", np.expand_dims(x, tuple(axes)), x=x, axes=axes, out=dtype)
    for shape, axes in [((1,), [0]), ((1, 3), [0]), ((1, 2, 1, 1), [0, -1]), ((2, 1, 1, 3, 1), [1, 4])]:
        x = of(dtype, *shape)
        case("squeeze", np.squeeze(x, tuple(axes)), x=x, axes=axes, out=dtype, infer=False)
    case("squeeze", np.squeeze(x := of(dtype, 1, 3, 1)), x=x, out=dtype, infer=False)
    for shapes, axis in [([(1,), (3,)], 0), ([(2, 1), (2, 3)], -1), ([(1, 2, 1, 1, 2), (3, 2, 1, 1, 2)], 0)]:
        parts = [of(dtype, *s) for s in shapes]
        case("concat", np.concatenate(parts, axis), values=parts, axis=axis, out=dtype)
    for shape, axis, n in [((6,), 0, 2), ((1, 3), 1, 3), ((2, 4, 1), -2, 2)] if dtype in WIDE else []:
        x = of(dtype, *shape)
        case("split", np.split(x, n, axis), x=x, num_splits=n, axis=axis, out=dtype)
    x = of(dtype, 7, 2)
    if dtype in WIDE:
        case("split", np.split(x, [3, 4], 0), x=x, split_sizes=[3, 1, 3], num_splits=3, axis=0, out=dtype)
    for begin, end, how, index in [
        ([1, 0, 0], [2, 3, 2], {}, np.s_[1:2, 0:3, 0:2]), ([0, 2, 1], [2, -4, -3], dict(stride=[1, -1, -1]), np.s_[:, 2::-1, 1::-1]),
        ([-2, -3, -1], [9, 9, 9], {}, np.s_[-2:, -3:, -1:]), ([0, 0, 0], [0, 3, 2], dict(end_mask=[True, False, False]), np.s_[:, :, :]),
        ([1, 0, 1], [0, 3, 0], dict(squeeze_mask=[True, False, True]), np.s_[1, :, 1]),
        ([0, 0, 0], [0, 0, 0], dict(begin_mask=[True] * 3, end_mask=[True] * 3, stride=[1, 2, -1]), np.s_[:, ::2, ::-1]),
    ]:
        x = of(dtype, 2, 3, 2)
        case("slice_by_index", x[index], x=x, begin=i(*begin), end=i(*end), out=dtype, infer=False, **how)
        case("slice_by_index", x[index], x=x, begin=i(*begin), end=i(*end), out=dtype, infer=False, dynamic=True, **how)
    for begin, size, index in [([0, 1], [2, 2], np.s_[0:2, 1:3]), ([1, 0], [-1, 3], np.s_[1:, :]), ([1, 2], [1, -1], np.s_[1:2, 2:])]:
        x = of(dtype, 2, 3)
        both("slice_by_size", x[index], x=x, begin=i(*begin), size=i(*size), out=dtype)
    if dtype in WIDE:
        case("shape", i(2, 1, 3), x=of(dtype, 2, 1, 3))
    case("identity", x := of(dtype, 2, 2), x=x, out=dtype)

    # Repeating, stacking, turning around.
    for shape, reps in [((1,), (3,)), ((2,), (1,)), ((2, 3), (2, 1)), ((1, 2, 1), (2, 2, 3)), ((2, 1, 1, 1, 2), (1, 2, 1, 3, 1))] if dtype in WIDE else []:
        x = of(dtype, *shape)
        both("tile", np.tile(x, reps), x=x, reps=i(*reps), out=dtype)
    for shape, n, axis in [((), 2, 0), ((3,), 2, -1), ((2, 1), 3, 1), ((1, 2, 2, 1), 2, -5)]:
        parts = [of(dtype, *shape) for _ in range(n)]
        case("stack", np.stack(parts, axis), values=parts, axis=axis, out=dtype)
    for shape, axes in [((5,), [0]), ((2, 3), [1]), ((2, 3), [0, -1]), ((1, 2, 2, 1, 3), [1, 4])]:
        x = of(dtype, *shape)
        case("reverse", np.flip(x, axes), x=x, axes=axes, out=dtype)
    case("reverse", np.flip(x := of(dtype, 2, 3)), x=x, out=dtype)
    for shape, seq, batch, lengths in [((5, 2), 0, 1, (3, 0)), ((2, 4), -1, 0, (4, 1)), ((3, 2, 2), 0, 2, (2, 3)), ((1, 3, 1, 2), 1, 3, (3, 2))]:
        x = of(dtype, *shape)
        y = x.copy()
        for b, n in enumerate(lengths):
            moved = np.moveaxis(y, (batch % x.ndim, seq % x.ndim), (0, 1))
            moved[b, :n] = np.moveaxis(x, (batch % x.ndim, seq % x.ndim), (0, 1))[b, :n][::-1]
        case("reverse_sequence", y, x=x, lengths=i(*lengths), seq_axis=seq, batch_axis=batch, out=dtype)
    for shape, lower, upper in [((3, 4), 0, 0), ((4, 3), 1, 0), ((3, 3), -1, 1), ((2, 3, 3), 2, -1), ((1, 1, 2, 5), -1, -1)] if dtype in WIDE else []:
        x = of(dtype, *shape)
        rows, cols = np.ogrid[: shape[-2], : shape[-1]]
        inside = ((lower < 0) | (rows - cols <= lower)) & ((upper < 0) | (cols - rows <= upper))
        case("band_part", np.where(inside, x, np.zeros((), dtype)), x=x, lower=lower, upper=upper, out=dtype)
    for shape, axis, size, stride in [((5,), 0, 2, 1), ((2, 7), 1, 3, 2), ((6, 2), -2, 6, 1), ((1, 4, 1, 2), 1, 1, 3)]:
        x = of(dtype, *shape)
        windows = np.lib.stride_tricks.sliding_window_view(x, size, axis % x.ndim)
        windows = np.moveaxis(windows, -1, axis % x.ndim + 1)
        take = [slice(None)] * windows.ndim
        take[axis % x.ndim] = slice(None, None, stride)
        case("sliding_windows", windows[tuple(take)], x=x, axis=axis, size=size, stride=stride, out=dtype)
    x = of(dtype, 4)
    case("sliding_windows", np.stack([x[:-1], x[1:]], 1), x=x, axis=0, size=2, out=dtype)
    for shape, axis in [((), 0), ((3,), 0), ((3,), 1), ((2, 3, 2), 1), ((2, 3, 2), -1), ((2, 1, 2, 3, 1), 3)] if dtype in WIDE else []:
        x = of(dtype, *shape)
        case("flatten2d", x.reshape(int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))), x=x, axis=axis, out=dtype)
    for shape in [(5,), (2, 3), (1, 2, 1, 3)] if dtype in WIDE else []:
        x = of(dtype, *shape)
        case("non_zero", np.argwhere(x).astype(i32), x=x)

# Padding; Core ML has that of floats alone.
for dtype in FLOATS + NARROW:
    for shape, pads in [((3,), (1, 2)), ((2, 3), (0, 2)), ((2, 3), (1, 1, 2, 0)), ((1, 2, 3), (1, 0, 0, 1)), ((1, 3, 1, 2), (0, 0, 1, 2, 0, 0, 1, 0))]:
        x = of(dtype, *shape)
        wide = [(0, 0)] * (len(shape) - len(pads) // 2) + list(zip(pads[::2], pads[1::2]))
        for value in (0, 3):
            value = dtype(value) if np.dtype(dtype).kind == "f" else value
            both("pad", np.pad(x, wide, constant_values=value), x=x, pad=i(*pads), mode="constant", constant_val=value, out=dtype)
        both("pad", np.pad(x, wide, "edge"), x=x, pad=i(*pads), mode="replicate", out=dtype)
        if all(max(p) < n for p, n in zip(wide, shape)):
            both("pad", np.pad(x, wide, "reflect"), x=x, pad=i(*pads), mode="reflect", out=dtype)
    case("pad", np.pad(x := of(dtype, 2, 2), 1), x=x, pad=i(1, 1, 1, 1), out=dtype)

for dtype in FLOATS:
    x = edges(dtype)
    case("pad", np.pad(x, (1, 2), constant_values=np.nan), x=x, pad=i(1, 2), constant_val=dtype(np.nan))
    case("pad", np.pad(x, (3, 3), "reflect"), x=x, pad=i(3, 3), mode="reflect")
    case("band_part", np.array([[1, 0], [np.nan, np.inf]]), x=np.array([[1, np.nan], [np.nan, np.inf]], dtype), lower=-1, upper=0, infer=False)
    case("non_zero", i(2, 3, 4).reshape(3, 1), x=np.array([0, -0.0, np.nan, np.inf, 1e-6], dtype))

# Images.
for dtype in FLOATS:
    for shape, h, w in [((1, 1, 3, 4), [1, 1], [0, 2]), ((2, 2, 2, 2), [0, 0], [1, 0]), ((1, 1, 2, 3), [2, 0], [0, 0])]:
        x = of(dtype, *shape)
        case("crop", x[:, :, h[0] : shape[2] - h[1], w[0] : shape[3] - w[1]], x=x, crop_height=h, crop_width=w, out=dtype)
    for n, c, h, w, b in [(1, 4, 1, 1, 2), (2, 8, 2, 3, 2), (1, 9, 1, 2, 3), (2, 3, 2, 2, 1)]:
        x = of(dtype, n, c, h, w)
        k = c // (b * b)
        first = x.reshape(n, b, b, k, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, k, h * b, w * b)
        channel = x.reshape(n, k, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, k, h * b, w * b)
        case("depth_to_space", first, x=x, block_size=b, out=dtype)
        case("space_to_depth", x, x=first, block_size=b, out=dtype)
        case("pixel_shuffle", channel, x=x, upscale_factor=b, out=dtype)
        case("pixel_unshuffle", x, x=channel, downscale_factor=np.array(b, np.uint32), out=dtype)
    for n, c, h, w, block, margins in [(1, 1, 2, 2, (2, 2), ((0, 0), (0, 0))), (2, 1, 2, 3, (1, 3), ((0, 0), (0, 0))),
                                       (1, 2, 3, 2, (2, 3), ((1, 0), (0, 1))), (2, 2, 1, 5, (2, 2), ((0, 1), (2, 1)))]:
        x = of(dtype, n, c, h, w)
        padded = np.pad(x, ((0, 0), (0, 0)) + margins)
        ph, pw = padded.shape[2:]
        images = padded.reshape(n, c, ph // block[0], block[0], pw // block[1], block[1]).transpose(3, 5, 0, 1, 2, 4)
        images = images.reshape(n * block[0] * block[1], c, ph // block[0], pw // block[1])
        case("space_to_batch", images, x=x, block_shape=list(block), paddings=np.array(margins, i32), out=dtype)
        case("batch_to_space", x, x=images, block_shape=list(block), crops=np.array(margins, i32), out=dtype)

# Tensors made of a shape.
for dtype in WIDE:
    for shape in [(1,), (3,), (2, 3), (1, 2, 1, 3, 1), (0,), (2, 0)]:
        for value in (1, 0):
            value = np.array(value, dtype)
            both("fill", np.full(shape, value), shape=i(*shape), value=value, out=dtype)
            if 0 not in shape:
                case("fill_like", np.full(shape, value), ref_tensor=of(np.float32, *shape), value=value, out=dtype)
                case("fill_like", np.full(shape, value), ref_tensor=of(dtype, *shape), value=value, out=dtype)
    for shape, size, axis in [((), 3, 0), ((4,), 3, -1), ((2, 3), 2, 1), ((2, 3), 5, 0), ((1, 2, 1, 2), 4, -2)]:
        x = random.integers(0, size, shape).astype(i32)
        on, off = np.array(1, dtype), np.array(0, dtype)
        if dtype in FLOATS:
            on, off = np.array(2.5, dtype), np.array(-1, dtype)
        y = np.moveaxis(np.where(x[..., None] == np.arange(size), on, off), -1, axis)
        both("one_hot", y, indices=x, one_hot_vector_size=np.array(size, i32), axis=axis, on_value=on, off_value=off, out=dtype)
case("fill", np.zeros((2, 2), np.float32), shape=i(2, 2))
case("fill", np.zeros((), np.float32), shape=np.zeros(0, i32))
case("fill_like", np.zeros((2, 1), np.float32), ref_tensor=ints(2, 1))
for value in (np.nan, -np.inf):
    case("fill", np.full(2, value, np.float32), shape=i(2), value=np.array(value, np.float32))
case("one_hot", np.array([[1, 0], [0, 1], [0, 0], [0, 0]], i32), indices=i(0, 1, 2, -1), one_hot_vector_size=np.array(2, i32))
for start, end, step in [(0, 5, 1), (2, 3, 1), (5, 0, -2), (0, 7, 3), (3, 3, 1), (4, 2, 1), (-3, 4, 2), (0, 1, 7)]:
    a = [np.array(v, i32) for v in (end, start, step)]
    case("range_1d", np.arange(start, end, step, dtype=i32), end=a[0], start=a[1], step=a[2])
    for dtype in FLOATS:
        a = [np.array(v / 4, dtype) for v in (end, start, step)]
        case("range_1d", np.arange(start / 4, end / 4, step / 4), end=a[0], start=a[1], step=a[2], out=dtype)
for dtype in EVERY:
    x = of(dtype, 2, 6)
    a, b = of(np.float32, 3, 4, 5), of(np.int32, 2, 2, 7)
    yes, no = np.array(True), np.array(False)
    one = lambda v: np.array(v, i32)
    case("reshape_like", x.reshape(3, 4), x=x, ref_tensors=[a], begins=[one(0)], ends=[one(2)], end_masks=[no], out=dtype)
    case("reshape_like", x.reshape(3, 2, 2), x=x, ref_tensors=[a, b], begins=[one(0), one(0)],
         ends=[one(1), one(-1)], end_masks=[no, no], out=dtype)
    y = of(dtype, 7, 2)
    case("reshape_like", y.reshape(2, 7), x=y, ref_tensors=[b], begins=[one(-2)], ends=[one(0)], end_masks=[yes], out=dtype)

# Indices.
for dtype, index in list(itertools.product((np.float32, np.int32), NARROW)) + [(d, np.int32) for d in EVERY if d != np.bool_]:
    low = 0 if np.dtype(index).kind == "u" else -1
    at = lambda n, *shape: np.clip(random.integers(low * n, n, shape), low * n, n - 1).astype(index)
    for shape, axis, where in [((5,), 0, ()), ((5,), -1, (2,)), ((2, 3), 1, (2, 2)), ((3, 1, 2), 0, (1,)), ((1, 2, 3, 2), 2, (2,))]:
        x, j = of(dtype, *shape), at(shape[axis], *where)
        case("gather", np.take(x, j.astype(int), axis), x=x, indices=j, axis=axis, out=dtype, infer=False)
        case("gather", np.take(x, j.astype(int), axis), x=x, indices=j, axis=axis, batch_dims=0, validate_indices=bool((j >= 0).all()), out=dtype, infer=False)
    for shape, axis, n in [((4,), 0, 3), ((2, 3), 1, 5), ((3, 2), 0, 1), ((2, 1, 3), -1, 2), ((1, 2, 2, 3, 1), 3, 2)]:
        x = of(dtype, *shape)
        where = list(shape)
        where[axis] = n
        j = at(shape[axis], *where)
        case("gather_along_axis", np.take_along_axis(x, j.astype(int), axis), x=x, indices=j, axis=axis, out=dtype, infer=False)
    for shape, where, depth, batch in [((5,), (3,), 1, 0), ((2, 3), (2,), 2, 0), ((2, 3), (4,), 1, 0), ((2, 3, 2), (2, 2), 2, 0),
                                       ((2, 3, 2), (2, 3), 1, 1), ((2, 2, 3), (2, 2, 2), 1, 2), ((3, 2), (3,), 1, 1)]:
        x = of(dtype, *shape)
        j = np.stack([at(shape[batch + d], *where) for d in range(depth)], -1)
        if batch == 0:
            y = x[tuple(j[..., d].astype(int) for d in range(depth))]
        else:
            y = np.stack([x[b][tuple(j[b][..., d].astype(int) for d in range(depth))] for b in np.ndindex(*shape[:batch])]) if batch == 1 else \
                np.stack([np.stack([x[a, b][tuple(j[a, b][..., d].astype(int) for d in range(depth))] for b in range(shape[1])]) for a in range(shape[0])])
        case("gather_nd", y, x=x, indices=j, batch_dims=batch, out=dtype)
        if batch == 0:
            case("gather_nd", y, x=x, indices=j, out=dtype)
x, j, k = floats(3, 2), ints(2, 2, low=0, high=3), ints(2, low=0, high=3)
case("gather_along_axis", np.take_along_axis(x, j, 0), x=x, indices=j)
case("gather", np.take(x, k, 0), x=x, indices=k)

MODES = {
    "update": lambda a, b: b, "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": lambda a, b: np.divide(a, b).astype(a.dtype) if a.dtype.kind == "f" else i32(int(a / b) if b else 0),
    "max": np.maximum, "min": np.minimum,
}


def scattered(data, places, updates, f):
    """Updates one after another, at a place (an index of data) each."""
    out = data.copy()
    for p, u in zip(places, updates):
        out[p] = f(out[p], u)
    return out


for dtype in FLOATS + (np.int32,):
    for mode, f in MODES.items():
        how = dict(mode=mode, out=dtype)
        grid = lambda *shape: (np.round(floats(*shape) * 4) / 4 + 0.125).astype(dtype) if dtype != np.int32 else ints(*shape)
        if mode == "div":
            grid = lambda *shape: random.choice(np.array([1, -2, 4, 8, -1], dtype), shape)
        for shape, axis, where in [((5,), 0, (3,)), ((3, 2), 0, (2,)), ((2, 4), -1, (3,)), ((2, 3, 2), 1, (2,)), ((3,), 0, (2, 2)), ((4, 2), 0, ())]:
            axis_at = axis % len(shape)
            x, j = grid(*shape), ints(*where, low=-1, high=shape[axis])
            u = grid(*shape[:axis_at], *where, *shape[axis_at + 1 :])
            moved = np.moveaxis(x, axis_at, 0).copy()
            flat = np.moveaxis(u.reshape(shape[:axis_at] + (j.size,) + shape[axis_at + 1 :]), axis_at, 0)
            for k, p in enumerate(j.ravel()):
                for rest in np.ndindex(*moved.shape[1:]):
                    moved[(p, *rest)] = f(moved[(p, *rest)], flat[(k, *rest)])
            case("scatter", np.moveaxis(moved, 0, axis_at), data=x, indices=j, updates=u, axis=axis, **how)
        for shape, axis, n in [((4,), 0, 3), ((2, 3), 1, 4), ((3, 2), 0, 1), ((2, 1, 3), -1, 2)]:
            where = list(shape)
            where[axis] = n
            x, j, u = grid(*shape), ints(*where, low=0, high=shape[axis]), grid(*where)
            places, updates = [], []
            for at in np.ndindex(*where):
                p = list(at)
                p[axis] = j[at]
                places.append(tuple(p))
                updates.append(u[at])
            case("scatter_along_axis", scattered(x, places, updates, f), data=x, indices=j, updates=u, axis=axis, infer=False, **how)
        for shape, where, depth in [((5,), (3,), 1), ((2, 3), (2,), 2), ((3, 2), (2,), 1), ((2, 3, 2), (2, 2), 2)]:
            x = grid(*shape)
            j = np.stack([ints(*where, low=0, high=shape[d]) for d in range(depth)], -1)
            u = grid(*where, *shape[depth:])
            places, updates = [], []
            for at in np.ndindex(*where):
                for rest in np.ndindex(*shape[depth:]):
                    places.append(tuple(j[at]) + rest)
                    updates.append(u[at + rest])
            case("scatter_nd", scattered(x, places, updates, f), data=x, indices=j, updates=u, **how)
case("scatter", np.array([1, 7, 3], np.float32), data=np.array([1, 2, 3], np.float32), indices=i(1), updates=np.array([5], np.float32))

for dtype in EVERY:
    for shape, begin, end, how, index in [
        ((5,), [1], [3], {}, np.s_[1:3]), ((2, 3), [0, 1], [2, 3], {}, np.s_[0:2, 1:3]), ((4, 3), [3, 0], [-5, 3], dict(stride=[-2, 1]), np.s_[3::-2, :]),
        ((2, 3, 2), [1, 0, 0], [0, 3, 0], dict(squeeze_mask=[True, False, False], end_mask=[False, False, True]), np.s_[1, 0:3, :]),
        ((2, 3), [0, 0], [0, 0], dict(begin_mask=[True, True], end_mask=[True, True]), np.s_[:, :]), ((3, 2), [-2, -1], [3, 2], {}, np.s_[-2:, -1:]),
    ]:
        x = of(dtype, *shape)
        y = x.copy()
        u = of(dtype, *x[index].shape)
        y[index] = u
        both("slice_update", y, x=x, update=u, begin=i(*begin), end=i(*end), out=dtype, **how)

# Products.
for a, b, equation in [((1, 2, 1, 3), (1, 3, 1, 2), "nchw,nwhu->nchu"), ((2, 3, 2, 4), (2, 4, 2, 5), "nchw,nwhu->nchu"),
                       ((1, 3, 2, 4), (2, 4, 1, 5), "abcd,adce->abce"), ((2, 3, 4), (4, 3, 2), "chw,whr->chr"), ((5, 1, 2), (2, 3, 1), "ijk,kjl->ijl")]:
    for dtype in FLOATS:
        x, y = floats(*a, dtype=dtype), floats(*b, dtype=dtype)
        p, q = x.astype(np.float64), y.astype(np.float64)
        spread = (lambda v, w: np.broadcast_to(v, (max(v.shape[0], w.shape[0]), v.shape[1], max(v.shape[2], w.shape[2]), v.shape[3]))) if len(a) == 4 else \
            (lambda v, w: np.broadcast_to(v, (v.shape[0], max(v.shape[1], w.shape[1]), v.shape[2])))
        case("einsum", np.einsum(equation, spread(p, q), spread(q, p)), values=[x, y], equation=equation)
for a, b, tx, ty in [((1, 1), (1, 1), False, False), ((2, 3), (3, 5), False, False), ((3, 2), (5, 3), True, True), ((2, 1, 2, 3), (3, 3, 1), False, False)]:
    for dtype in FLOATS + (np.int32,):
        x, y = (floats(*a, dtype=dtype), floats(*b, dtype=dtype)) if dtype != np.int32 else (ints(*a), ints(*b))
        p, q = (v.astype(np.float64 if dtype != np.int32 else np.int64) for v in (x, y))
        p, q = (np.swapaxes(p, -1, -2) if tx else p), (np.swapaxes(q, -1, -2) if ty else q)
        case("matmul", p @ q, x=x, y=y, transpose_x=tx, transpose_y=ty, out=dtype)
x, y = i(2**30, 3).reshape(1, 2), i(4, 5).reshape(2, 1)
case("matmul", i(15).reshape(1, 1), x=x, y=y, infer=False)
for shape in [(1, 3), (2, 3), (2, 1, 3)]:
    for dtype in FLOATS + (np.int32,):
        make = (lambda *s: floats(*s, dtype=dtype)) if dtype != np.int32 else ints
        x, w, b = make(*shape), make(5, 3), make(5)
        wide = np.float64 if dtype != np.int32 else np.int64
        case("linear", x.astype(wide) @ w.T.astype(wide) + b.astype(wide), x=x, weight=w, bias=b, out=dtype)
        case("linear", x.astype(wide) @ w.T.astype(wide), x=x, weight=w, out=dtype)
