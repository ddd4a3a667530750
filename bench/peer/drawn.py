"""Every op that coremltools' builder can make from drawn shapes, types and parameters.

A recipe is a generator: it yields the inputs it wants as `(shape, type)`, gets their values, and returns what it makes.
`None` in a shape is an extent that is not known before running. What a drawn parameter makes impossible is refused by the
builder, and drawn again.
"""

import numpy as np

from .common import mb, types

RECIPES = {}
KINDS = {"fp32": types.fp32, "fp16": types.fp16, "int32": types.int32}
NUMPY = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32}
# Since iOS 17 some ops move narrow integers too.
NARROW = ["int8", "uint8", "int16", "uint16"]


def recipe(*names):
    def register(function):
        for name in names:
            RECIPES[name] = (lambda d, f=function, n=name: f(d, n)) if len(names) > 1 else function
        return function
    return register


class Draw:
    """Choices for one program."""

    def __init__(self, seed, opset, flexible):
        self.r = np.random.default_rng(seed)
        self.opset = opset
        self.flexible = flexible
        self.n_casts = 0

    @property
    def since17(self):
        return self.opset >= "ios17"

    def int(self, low, high):
        return int(self.r.integers(low, high + 1))

    def maybe(self, chance=0.5):
        return bool(self.r.random() < chance)

    def one(self, options):
        return options[self.int(0, len(options) - 1)]

    def dims(self, low, high, most=5):
        return [self.int(1, most) for _ in range(self.int(low, high))]

    def loose(self, shape, keep=()):
        """The shape with some extents unknown, but those that must be known."""
        if not self.flexible:
            return tuple(shape)
        return tuple(None if i not in keep and self.maybe(0.4) else n for i, n in enumerate(shape))

    def any(self, low=1, high=5, most=5):
        return self.loose(self.dims(low, high, most))

    def float(self):
        return "fp32" if self.opset == "ios15" else self.one(["fp32", "fp16"])

    def number(self):
        return self.one([self.float(), "int32"])

    def kind(self):
        """A type an op that only moves elements takes; beyond those of inputs, by a cast."""
        return self.one([self.float(), "int32", "bool"] + (NARROW if self.since17 else []))

    def axis(self, rank):
        return np.int32(self.int(-rank, rank - 1))

    def axes(self, rank, some=True):
        n = self.int(1 if some else 0, rank)
        chosen = self.r.permutation(rank)[:n]
        return np.array([a - rank if self.maybe(0.3) else a for a in sorted(chosen)], np.int32)

    def of(self, kind, *shape, low=-2, high=3):
        return np.asarray(self.r.integers(low, high, shape), NUMPY[kind])

    def weight(self, kind, *shape):
        return np.asarray(self.r.normal(size=shape), NUMPY[kind])

    def like(self, x):
        return np.float16 if types.builtin_to_string(x.dtype) == "fp16" else np.float32

    def options(self, **all_of_them):
        """Some of the parameters that may be left out."""
        return {k: v for k, v in all_of_them.items() if self.maybe()}


def kind_of(x):
    return types.builtin_to_string(x.dtype)


def as_kind(x, kind):
    """`x` in a type that no input has."""
    return mb.cast(x=x, dtype=kind) if kind in NARROW + ["bool"] else x


def base(kind):
    """The type of an input that stands for `kind`."""
    return kind if kind in KINDS else "int32"


# One number to one number
@recipe("acos", "asin", "atan", "atanh", "ceil", "cos", "cosh", "erf", "floor", "relu", "relu6", "round", "sigmoid", "silu", "sin", "sinh",
        "softplus", "softsign", "sqrt", "tan", "tanh")
def unary(d, name):
    x, = yield [(d.any(0, 5), d.float())]
    return getattr(mb, name)(x=x)


@recipe("abs", "sign", "square", "exp2", "identity", "exp")
def unary_of_numbers(d, name):
    x, = yield [(d.any(0, 5), d.number() if name != "exp" else d.float())]
    return getattr(mb, name)(x=x)


@recipe("inverse", "log", "rsqrt")
def unary_with_epsilon(d, name):
    x, = yield [(d.any(), d.float())]
    return getattr(mb, name)(x=x, **d.options(epsilon=d.like(x)(0.5)))


@recipe("elu", "leaky_relu", "threshold", "thresholded_relu")
def with_alpha(d, name):
    x, = yield [(d.any(), d.float())]
    return getattr(mb, name)(x=x, alpha=d.like(x)(0.3))


@recipe("clamped_relu", "clip", "linear_activation", "scaled_tanh", "sigmoid_hard")
def with_alpha_and_beta(d, name):
    x, = yield [(d.any(), d.float())]
    return getattr(mb, name)(x=x, alpha=d.like(x)(0.3), beta=d.like(x)(0.7))


@recipe("prelu", "softplus_parametric")
def with_channels(d, name):
    shape = d.dims(3, 5)
    x, = yield [(d.loose(shape, keep=[1]), d.float())]
    alpha = d.weight(kind_of(x), shape[1])
    return getattr(mb, name)(x=x, alpha=alpha, **({"beta": alpha} if name == "softplus_parametric" else {}))


@recipe("gelu")
def gelu(d):
    x, = yield [(d.any(), d.float())]
    return mb.gelu(x=x, **d.options(mode=d.one(["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"])))


@recipe("cast")
def cast(d):
    x, = yield [(d.any(), d.number())]
    to = d.one(["int32", "fp16", "fp32", "bool"] + (NARROW if d.since17 else []))
    return mb.cast(x=x, dtype=to)


@recipe("logical_not")
def logical_not(d):
    x, = yield [(d.any(), "int32")]
    return mb.logical_not(x=mb.cast(x=x, dtype="bool"))


# Two to one
def broadcast(d):
    """Two shapes that broadcast."""
    whole = d.dims(1, 5)
    def part():
        shape = [1 if d.maybe(0.25) else n for n in whole]
        return shape[d.int(0, len(shape)) if d.maybe(0.3) else 0:]
    return whole, part()


@recipe("add", "sub", "mul", "real_div", "floor_div", "mod", "maximum", "minimum", "pow", "equal", "not_equal", "greater", "greater_equal",
        "less", "less_equal")
def binary(d, name):
    a, b = broadcast(d)
    kind = d.number()
    a, b = d.one([(a, b), (b, a)])
    if d.maybe(0.3):  # one of them a constant
        x, = yield [(d.loose(a), kind)]
        pair = (x, d.of(kind, *b))
        x, y = d.one([pair, pair[::-1]])
    else:
        x, y = yield [(d.loose(a), kind), (d.loose(b), kind)]
    return getattr(mb, name)(x=x, y=y)


@recipe("logical_and", "logical_or", "logical_xor")
def logical(d, name):
    a, b = broadcast(d)
    x, y = yield [(d.loose(a), "int32"), (d.loose(b), "int32")]
    return getattr(mb, name)(x=mb.cast(x=x, dtype="bool"), y=mb.cast(x=y, dtype="bool"))


@recipe("select")
def select(d):
    whole, b = broadcast(d)
    kind = d.number()
    c = [1 if d.maybe(0.3) else n for n in whole]
    cond, a, b = yield [(d.loose(c), "int32"), (d.loose(whole), kind), (d.loose(b), kind)]
    return mb.select(cond=mb.cast(x=cond, dtype="bool"), a=a, b=b)


@recipe("matmul")
def matmul(d):
    n, k, m = d.int(1, 5), d.int(1, 5), d.int(1, 5)
    batch, other = d.dims(0, 3), None
    other = [1 if d.maybe(0.3) else b for b in batch][d.int(0, len(batch)) if d.maybe(0.3) else 0:]
    tx, ty = d.maybe(), d.maybe()
    a, b = batch + ([k, n] if tx else [n, k]), other + ([m, k] if ty else [k, m])
    kind = d.number()
    x, y = yield [(d.loose(a), kind), (d.loose(b), kind)]
    return mb.matmul(x=x, y=y, **d.options(transpose_x=tx, transpose_y=ty) if not (tx or ty) else {"transpose_x": tx, "transpose_y": ty})


@recipe("linear")
def linear(d):
    k, n = d.int(1, 5), d.int(1, 5)
    shape = d.dims(0, 2 if d.opset < "ios17" else 4) + [k]
    kind = d.float()
    x, = yield [(d.loose(shape, keep=[len(shape) - 1]), kind)]
    return mb.linear(x=x, weight=d.weight(kind, n, k), **d.options(bias=d.weight(kind, n)))


@recipe("einsum")
def einsum(d):
    kind = d.float()
    c, h, w, u = (d.int(1, 4) for _ in range(4))
    if d.maybe():
        n = d.int(1, 3)
        x, y = yield [(d.loose((n, c, h, w)), kind), (d.loose((n, w, h, u)), kind)]
        return mb.einsum(values=(x, y), equation="nchw,nwhu->nchu")
    x, y = yield [(d.loose((c, h, w)), kind), (d.loose((w, h, u)), kind)]
    return mb.einsum(values=(x, y), equation="chw,whr->chr")


@recipe("scaled_dot_product_attention")
def attention(d):
    kind, batch = d.float(), d.dims(1, 2)
    n, m, k, v = d.int(1, 5), d.int(1, 5), d.int(1, 5), d.int(1, 5)
    mask = [(d.loose(d.one([batch, [1] * len(batch)]) + [n, m]), kind)] if d.maybe() else []
    q, key, value, *mask = yield [(d.loose(batch + [n, k]), kind), (d.loose(batch + [m, k]), kind), (d.loose(batch + [m, v]), kind)] + mask
    return mb.scaled_dot_product_attention(query=q, key=key, value=value, **({"attn_mask": mask[0]} if mask else {}))


# Windows
def padding(d, rank, kinds=("valid", "same", "same_lower", "custom")):
    kind = d.one([k for k in kinds if k != "same_lower" or d.opset > "ios15"])
    return {"pad_type": kind} | ({"pad": np.array([d.int(0, 2) for _ in range(2 * rank)], np.int32)} if kind == "custom" else {})


@recipe("conv", "conv_transpose")
def conv(d, name):
    rank, groups, kind = d.int(1, 3), d.int(1, 2), d.float()
    i, o = groups * d.int(1, 3), groups * d.int(1, 3)
    kernel = [d.int(1, 3) for _ in range(rank)]
    shape = [d.int(1, 2), i] + [d.int(5, 9) for _ in range(rank)]
    weight = [o, i // groups] + kernel if name == "conv" else [i, o // groups] + kernel
    x, = yield [(d.loose(shape, keep=[1]), kind)]
    more = d.options(strides=np.array([d.int(1, 3) for _ in kernel], np.int32), dilations=np.array([d.int(1, 2) for _ in kernel], np.int32),
                     bias=d.weight(kind, o))
    kinds = ("valid", "same", "same_lower", "custom") if name == "conv" else ("valid", "same", "custom")
    return getattr(mb, name)(x=x, weight=d.weight(kind, *weight), groups=np.int32(groups), **padding(d, rank, kinds), **more)


@recipe("avg_pool", "max_pool", "l2_pool")
def pool(d, name):
    rank = d.int(1, 3 if name != "l2_pool" else 2)
    shape = d.dims(2, 2) + [d.int(5, 9) for _ in range(rank)]
    x, = yield [(d.loose(shape), d.float())]
    more = d.options(strides=np.array([d.int(1, 3) for _ in range(rank)], np.int32))
    pads = padding(d, rank)
    if pads["pad_type"] in ("valid", "custom"):
        more |= d.options(ceil_mode=d.maybe())
    if name == "avg_pool":
        more |= d.options(exclude_padding_from_average=d.maybe())
    return getattr(mb, name)(x=x, kernel_sizes=np.array([d.int(1, 3) for _ in range(rank)], np.int32), **pads, **more)


# Norms and reductions
@recipe("batch_norm", "instance_norm")
def channel_norm(d, name):
    shape, kind = d.dims(3, 5 if name == "batch_norm" else 4), d.float()
    x, = yield [(d.loose(shape, keep=[1]), kind)]
    row = lambda: np.abs(d.weight(kind, shape[1]))  # noqa: E731
    more = {"gamma": row(), "beta": row()} if d.maybe() else {}
    more |= {"mean": row(), "variance": row()} if name == "batch_norm" else {}
    return getattr(mb, name)(x=x, **more)


@recipe("layer_norm")
def layer_norm(d):
    shape, kind = d.dims(1, 5), d.float()
    first = d.int(0, len(shape) - 1)
    axes = np.arange(first, len(shape), dtype=np.int32)
    x, = yield [(d.loose(shape, keep=axes), kind)]
    more = {"gamma": d.weight(kind, *shape[first:]), "beta": d.weight(kind, *shape[first:])} if d.maybe() else {}
    return mb.layer_norm(x=x, axes=axes - (len(shape) if d.maybe() else 0), **more)


@recipe("l2_norm", "local_response_norm")
def other_norm(d, name):
    x, = yield [(d.any(3, 5), d.float())]
    return getattr(mb, name)(x=x, **({"size": np.int32(3)} if name != "l2_norm" else {}))


@recipe("softmax")
def softmax(d):
    x, = yield [(d.any(), d.float())]
    return mb.softmax(x=x, **d.options(axis=d.axis(x.rank)))


@recipe("reduce_l1_norm", "reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
        "reduce_sum", "reduce_sum_square")
def reduce(d, name):
    x, = yield [(d.any(), d.number())]
    return getattr(mb, name)(x=x, **d.options(axes=d.axes(x.rank), keep_dims=d.maybe()))


@recipe("reduce_argmax", "reduce_argmin")
def reduce_place(d, name):
    x, = yield [(d.any(), d.number())]
    more = d.options(axis=d.axis(x.rank), keep_dims=d.maybe())
    more |= d.options(output_dtype=d.one(["int32", "uint16"])) if d.since17 else {}
    return getattr(mb, name)(x=x, **more)


@recipe("argsort")
def argsort(d):
    x, = yield [(d.any(), d.number())]
    return mb.argsort(x=x, **d.options(axis=d.axis(x.rank), ascending=d.maybe()))


@recipe("topk")
def topk(d):
    shape, kind = d.dims(1, 5), d.number()
    x, = yield [(d.loose(shape), kind)]
    axis = d.axis(x.rank)
    more = d.options(ascending=d.maybe())
    more |= d.options(sort=d.maybe(), return_indices=d.maybe()) if d.opset > "ios15" else {}
    more |= d.options(output_indices_dtype=d.one(["int32", "uint16"])) if d.since17 else {}
    k = {"k": np.int32(d.int(1, shape[axis]))}
    if d.since17 and d.maybe(0.2):
        k = {"k": mb.squeeze(x=mb.slice_by_size(x=mb.shape(x=x), begin=np.array([0], np.int32), size=np.array([1], np.int32)))}
        axis = np.int32(0)
    return mb.topk(x=x, axis=axis, **k, **more)


@recipe("cumsum")
def cumsum(d):
    x, = yield [(d.any(), d.number())]
    return mb.cumsum(x=x, axis=np.int32(d.int(-1, x.rank - 1)), **d.options(exclusive=d.maybe(), reverse=d.maybe()))


# Moving elements
@recipe("concat", "stack")
def joined(d, name):
    shape, kind, n = d.dims(1, 4), d.kind(), d.int(1, 3)
    axis = d.axis(len(shape))
    shapes = [list(shape) for _ in range(n)]
    interleave = d.maybe(0.2)
    if name == "concat" and not interleave:
        for s in shapes:
            s[axis] = d.int(1, 4)
    values = yield [(d.loose(s), base(kind)) for s in shapes]
    values = [as_kind(v, kind) for v in values]
    return getattr(mb, name)(values=values, axis=axis, **({"interleave": True} if name == "concat" and interleave else {}))


@recipe("split")
def split(d):
    n, kind = d.int(1, 4), d.kind()
    shape = d.dims(1, 5)
    axis = d.axis(len(shape))
    shape[axis] = n * d.int(1, 3)
    more = {"num_splits": np.int32(n)}
    if d.maybe():
        cut = d.int(1, shape[axis])
        more = {"split_sizes": np.array([cut, shape[axis] - cut] if cut < shape[axis] else [cut], np.int32)} | (d.options(
            num_splits=np.int32(1 if cut == shape[axis] else 2)))
    x, = yield [(d.loose(shape, keep=[axis % len(shape)]), base(kind))]
    made = mb.split(x=as_kind(x, kind), axis=axis, **more)
    return list(made) if isinstance(made, (list, tuple)) else made


@recipe("transpose", "reverse", "expand_dims", "squeeze", "flatten2d", "shape", "band_part", "non_zero", "tile")
def moved(d, name):
    shape, kind = d.dims(1, 5), d.kind()
    rank = len(shape)
    more = {}
    if name == "transpose":
        more = {"perm": d.r.permutation(rank).astype(np.int32) - (rank if d.maybe(0.3) else 0)}
    elif name == "reverse":
        more = d.options(axes=d.axes(rank))
    elif name == "expand_dims":
        shape = shape[:3]
        more = {"axes": np.sort(d.r.permutation(len(shape) + 1)[:d.int(1, 2)]).astype(np.int32) - (len(shape) + 1 if d.maybe(0.3) else 0)}
    elif name == "squeeze":
        axes = d.axes(rank)
        for a in axes:
            shape[a] = 1
        more = {"axes": axes} if d.maybe(0.8) else {}
    elif name == "flatten2d":
        more = d.options(axis=d.axis(rank))
    elif name == "tile":
        more = {"reps": np.array([d.int(1, 3) for _ in shape], np.int32)}
    elif name == "band_part":
        more = d.options(lower=np.int32(d.int(-1, 2)), upper=np.int32(d.int(-1, 2)))
    keep = [i for i, n in enumerate(shape) if n == 1] if name == "squeeze" else []
    x, = yield [(d.loose(shape, keep), base(kind))]
    return getattr(mb, name)(x=as_kind(x, kind), **more)


@recipe("reshape")
def reshape(d):
    shape, kind = d.dims(1, 5), d.kind()
    to = list(d.r.permutation(shape)) + [1] * d.int(0, 1)
    if len(to) > 2 and d.maybe():
        to = [to[0] * to[1]] + to[2:]
    if d.maybe():
        to[d.int(0, len(to) - 1)] = -1
    to = to[:5] if len(to) <= 5 else [-1]
    x, = yield [(d.loose(shape), base(kind))]
    return mb.reshape(x=as_kind(x, kind), shape=np.array(to, np.int32))


@recipe("reshape_dynamic")
def reshape_dynamic(d):
    """To the shape of another, which is found out when it runs."""
    shape = d.dims(2, 4)
    x, y = yield [(d.loose(shape), "fp32"), (d.loose(shape), "fp32")]
    return mb.reshape(x=x, shape=mb.concat(values=[mb.shape(x=y), np.array([1], np.int32)], axis=0))


@recipe("reshape_like")
def reshape_like(d):
    a, b = d.int(1, 4), d.int(1, 4)
    x, y, z = yield [((a, b), d.number()), ((b, a), "fp32"), ((a * b, 3), "int32")]
    if d.maybe():
        return mb.reshape_like(x=x, ref_tensors=(y,), begins=(np.int32(0),), ends=(np.int32(0),), end_masks=(True,))
    return mb.reshape_like(x=x, ref_tensors=(y, z), begins=(np.int32(1), np.int32(1)), ends=(np.int32(2), np.int32(1)), end_masks=(False, False)) \
        if False else mb.reshape_like(x=x, ref_tensors=(z,), begins=(np.int32(0),), ends=(np.int32(1),), end_masks=(False,))


@recipe("slice_by_index")
def slice_by_index(d):
    shape, kind = d.dims(1, 5), d.kind()
    rank = len(shape)
    begin = np.array([d.int(-n, n - 1) for n in shape], np.int32)
    stride = np.array([d.one([1, 1, 2, -1]) for _ in shape], np.int32)
    end = np.array([min(n, b % n + d.int(1, 3)) if s > 0 else max(-n - 1, (b % n) - d.int(1, 3) - n) for n, b, s in zip(shape, begin, stride)], np.int32)
    masks = {m: np.array([d.maybe(0.3) for _ in range(rank)]) for m in ("begin_mask", "end_mask")}
    if d.maybe(0.4):
        masks["squeeze_mask"] = np.array([d.maybe(0.3) for _ in range(rank)])
    x, = yield [(d.loose(shape), base(kind))]
    more = d.options(**masks)
    if (stride != 1).any() or d.maybe():
        more["stride"] = stride
    return mb.slice_by_index(x=as_kind(x, kind), begin=begin, end=end, **more)


@recipe("slice_by_index_dynamic")
def slice_by_index_dynamic(d):
    shape, kind = d.dims(1, 4), d.kind()
    rank = len(shape)
    x, begin, end = yield [(d.loose(shape), base(kind)), ((rank,), "int32"), ((rank,), "int32")]
    masks = {m: np.array([d.maybe(0.3) for _ in range(rank)]) for m in ("begin_mask", "end_mask", "squeeze_mask")}
    if d.maybe():
        end = mb.add(x=begin, y=np.int32(1))
    return mb.slice_by_index(x=as_kind(x, kind), begin=begin, end=end, **d.options(**masks))


@recipe("slice_by_size")
def slice_by_size(d):
    shape, kind = d.dims(1, 5), d.kind()
    begin = [d.int(0, n - 1) for n in shape]
    size = [-1 if d.maybe(0.2) else d.int(1, n - b) for n, b in zip(shape, begin)]
    x, at = yield [(d.loose(shape), base(kind)), ((len(shape),), "int32")]
    return mb.slice_by_size(x=as_kind(x, kind), begin=np.array(begin, np.int32) if d.maybe(0.7) else at, size=np.array(size, np.int32))


@recipe("slice_update")
def slice_update(d):
    shape, kind = d.dims(1, 4), d.number()
    begin = np.array([d.int(0, n - 1) for n in shape], np.int32)
    end = np.array([d.int(b + 1, n) for n, b in zip(shape, begin)], np.int32)
    x, update = yield [(d.loose(shape), kind), (tuple(int(e - b) for b, e in zip(begin, end)), kind)]
    return mb.slice_update(x=x, update=update, begin=begin, end=end)


@recipe("gather")
def gather(d):
    shape, kind = d.dims(1, 4), d.kind()
    kind = "int32" if kind == "bool" else kind
    indices = d.dims(0, 2)
    more = {"axis": d.axis(len(shape))}
    if d.since17:
        more["validate_indices"] = d.maybe()
        if d.maybe(0.3):
            indices, more["batch_dims"] = [shape[0]] + indices, np.int32(1)
            more["axis"] = np.int32(d.int(1, len(shape) - 1)) if len(shape) > 1 else more["axis"]
    x, i = yield [(d.loose(shape), base(kind)), (d.loose(indices), "int32")]
    return mb.gather(x=as_kind(x, kind), indices=as_kind(i, d.one(["uint16", "int16", "int32"])) if d.since17 else i, **more)


@recipe("gather_along_axis")
def gather_along_axis(d):
    shape, kind = d.dims(1, 5), d.number()
    axis = d.axis(len(shape))
    at = list(shape)
    at[axis] = d.int(1, 6)
    x, i = yield [(d.loose(shape), kind), (d.loose(at), "int32")]
    return mb.gather_along_axis(x=x, indices=i, axis=axis, **({"validate_indices": d.maybe()} if d.since17 else {}))


@recipe("gather_nd")
def gather_nd(d):
    shape, kind = d.dims(1, 4), d.number()
    depth = d.int(1, len(shape))
    x, i = yield [(d.loose(shape), kind), (d.loose(d.dims(0, 2)) + (depth,), "int32")]
    return mb.gather_nd(x=x, indices=i, **({"validate_indices": d.maybe()} if d.since17 else {}))


@recipe("scatter", "scatter_along_axis", "scatter_nd")
def scatter(d, name):
    shape, kind, n = d.dims(1, 4), d.number(), d.int(1, 5)
    more = d.options(mode=d.one(["add", "update", "min", "max", "mul"]))
    more |= {"validate_indices": d.maybe()} if d.since17 else {}
    if name == "scatter":
        axis = d.int(0, len(shape) - 1)
        indices, updates, more["axis"] = [n], shape[:axis] + [n] + shape[axis + 1:], np.int32(axis)
    elif name == "scatter_along_axis":
        axis = d.int(0, len(shape) - 1)
        indices = updates = shape[:axis] + [n] + shape[axis + 1:]
        more["axis"] = np.int32(axis)
    else:
        depth = d.int(1, len(shape))
        indices, updates = [n, depth], [n] + shape[depth:]
    keep = range(5) if name != "scatter_nd" else ()
    x, i, u = yield [(d.loose(shape, keep), kind), (tuple(indices), "int32"), (tuple(updates), kind)]
    return getattr(mb, name)(data=x, indices=i, updates=u, **more)


@recipe("pad")
def pad(d):
    shape = d.dims(1, 4)
    n = d.int(1, len(shape))
    mode = d.one(["constant", "reflect", "replicate"])
    n = min(n, 2) if mode != "constant" else n
    x, = yield [(d.loose(shape), d.float())]
    return mb.pad(x=x, pad=np.array([d.int(0, 1 if mode == "reflect" else 3) for _ in range(2 * n)], np.int32), mode=mode, **d.options(
        constant_val=d.like(x)(0.5)))


@recipe("depth_to_space", "space_to_depth", "pixel_shuffle", "pixel_unshuffle", "space_to_batch", "batch_to_space", "crop")
def blocks(d, name):
    b = d.int(2, 3)
    shape = [d.int(1, 2), d.int(1, 3), b * d.int(1, 3), b * d.int(1, 3)]
    more = {"block_size": np.int32(b)}
    if name in ("depth_to_space", "pixel_shuffle"):
        shape[1] *= b * b
    if name == "pixel_shuffle":
        more = {"upscale_factor": np.int32(b)}
    if name == "pixel_unshuffle":
        more = {"downscale_factor": np.uint32(b)}
    if name == "space_to_batch":
        more = {"block_shape": np.array([b, b], np.int32), "paddings": np.array([[b, 0], [0, b]], np.int32)}
    if name == "batch_to_space":
        shape[0] *= b * b
        more = {"block_shape": np.array([b, b], np.int32), "crops": np.array([[1, 0], [0, 1]], np.int32)}
    if name == "crop":
        more = {"crop_height": np.array([0, 1], np.int32), "crop_width": np.array([1, 0], np.int32)}
    x, = yield [(d.loose(shape, keep=[1] if name in ("depth_to_space", "pixel_shuffle") else [0, 1] if "batch" in name else []), d.float())]
    return getattr(mb, name)(x=x, **more)


@recipe("sliding_windows")
def sliding_windows(d):
    shape = d.dims(1, 4)
    axis = d.axis(len(shape))
    shape[axis] = d.int(3, 8)
    x, = yield [(d.loose(shape, keep=[axis % len(shape)] if d.maybe() else []), d.number())]
    return mb.sliding_windows(x=x, axis=axis, size=np.int32(d.int(1, 3)), **d.options(stride=np.int32(d.int(1, 3))))


@recipe("reverse_sequence")
def reverse_sequence(d):
    shape = d.dims(2, 4)
    x, n = yield [(d.loose(shape, keep=[0]), d.number()), ((shape[0],), "int32")]
    return mb.reverse_sequence(x=x, lengths=n, seq_axis=np.int32(1), batch_axis=np.int32(0))


# Made from shapes
@recipe("fill", "random_bernoulli", "random_normal", "random_uniform")
def filled(d, name):
    shape = np.array(d.dims(1, 4), np.int32)
    at, = yield [((len(shape),), "int32")]
    kind = d.one([np.float32, np.float16]) if d.opset > "ios15" else np.float32
    more = {"fill": {"value": d.one([kind(2), np.int32(3), True])}, "random_bernoulli": {"prob": kind(0.5)},
            "random_normal": {"mean": kind(0), "stddev": kind(1)}, "random_uniform": {"low": kind(0), "high": kind(1)}}[name]
    return getattr(mb, name)(shape=shape if d.maybe(0.7) else at, **(more if d.maybe(0.8) else {}))


@recipe("random_categorical")
def random_categorical(d):
    x, = yield [(d.any(1, 4), d.float())]
    return mb.random_categorical(x=x, **d.options(mode=d.one(["logits", "probs"]), size=np.int32(d.int(1, 4))))


@recipe("fill_like")
def fill_like(d):
    x, = yield [(d.any(), d.number())]
    return mb.fill_like(ref_tensor=x, **d.options(value=d.one([np.float32(1), np.int32(2), True])))


@recipe("one_hot")
def one_hot(d):
    x, = yield [(d.any(0, 4), "int32")]
    kind = d.one([np.int32, np.float32])
    more = {"on_value": kind(3), "off_value": kind(1)} if d.maybe() else {}
    return mb.one_hot(indices=x, one_hot_vector_size=np.int32(d.int(1, 6)), **more, **d.options(axis=d.axis(x.rank + 1)))


@recipe("range_1d")
def range_1d(d):
    x, = yield [((1,), "int32")]
    kind = d.one([np.int32, np.float32])
    if d.maybe():
        return mb.range_1d(start=np.int32(0), end=mb.squeeze(x=x), step=np.int32(d.int(1, 2)))
    return mb.range_1d(start=kind(1), end=kind(d.int(2, 9)), step=kind(d.int(1, 3)))


# Images
@recipe("upsample_bilinear", "upsample_nearest_neighbor", "resize_bilinear", "resize_nearest_neighbor", "resize")
def resized(d, name):
    shape = d.dims(3, 5)
    x, = yield [(d.loose(shape, keep=[len(shape) - 2, len(shape) - 1]), d.float())]
    h, w = d.int(1, 3), d.int(1, 3)
    if name.startswith("upsample"):
        scale = d.one([np.int32, np.float32])
        half = d.one([0, 0.5]) if scale is np.float32 else 0
        more = d.options(scale_factor_height=scale(h + half), scale_factor_width=scale(w + half))
        more |= d.options(align_corners=d.maybe()) if name == "upsample_bilinear" else {}
        return getattr(mb, name)(x=x, **more)
    if name == "resize":
        n = d.int(1, 2)
        return mb.resize(x=x, shape=np.array([0 if d.maybe(0.2) else d.int(1, 6) for _ in range(n)], np.int32), resized_dims=np.uint32(n),
                         interpolation_mode=d.one(["LINEAR", "NEAREST_NEIGHBOR"]), sampling_mode=d.one(["DEFAULT", "STRICT_ALIGN_CORNERS"]))
    return getattr(mb, name)(x=x, target_size_height=np.int32(h * 2), target_size_width=np.int32(w + 1))


@recipe("affine", "resample")
def warped(d, name):
    b, c, h, w = d.int(1, 2), d.int(1, 3), d.int(2, 4), d.int(2, 4)
    kind = d.float() if d.opset > "ios15" else "fp32"
    extra = ((b, 6) if name == "affine" else (b, d.int(1, 4), d.int(1, 4), 2), kind)
    x, y = yield [((b, c, h, w), kind), extra]
    more = {"sampling_mode": "bilinear", "padding_mode": "constant", "padding_value": d.like(x)(0), "coordinates_mode": "normalized_minus_one_to_one",
            "align_corners": d.maybe()}
    if name == "affine":
        return mb.affine(x=x, transform_matrix=y, output_height=np.int32(d.int(1, 5)), output_width=np.int32(d.int(1, 5)), **more)
    return mb.resample(x=x, coordinates=y, **more)


@recipe("crop_resize")
def crop_resize(d):
    n, c, kind = d.int(1, 3), d.int(1, 3), d.float()
    h, w = np.int32(d.int(1, 4)), np.int32(d.int(1, 4))
    if d.since17:
        at = [((n,), "int32")] if d.maybe() else []
        x, boxes, *at = yield [((2 if at else n, c, 5, 6), kind), ((n, 4), kind)] + at
        return mb.crop_resize(x=x, boxes=boxes, target_height=h, target_width=w, **({"box_indices": at[0]} if at else {}))
    x, roi = yield [((2, c, 5, 6), kind), ((n, 1, 5, 1, 1), kind)]
    return mb.crop_resize(x=x, roi=roi, target_height=h, target_width=w)


@recipe("non_maximum_suppression")
def boxes(d):
    b, n, k, kind = d.int(1, 2), d.int(1, 6), d.int(1, 3), d.float()
    limits = {"iou_threshold": NUMPY[kind](0.5), "max_boxes": np.int32(d.int(1, 4))} | d.options(per_class_suppression=d.maybe())
    shapes = [((b, 4, n), kind), ((b, k, n), kind)] if d.since17 else [((b, n, 4), kind), ((b, n, k), kind)]
    x, y = yield shapes
    return mb.non_maximum_suppression(boxes=x, scores=y, **limits, **({} if d.since17 else {"score_threshold": NUMPY[kind](0.1)}))


# Recurrent layers
@recipe("lstm", "gru", "rnn")
def recurrent(d, name):
    s, b, i, h, kind = d.int(1, 4), d.int(1, 3), d.int(1, 4), d.int(1, 4), d.float()
    both = name == "lstm" and d.maybe()
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[name]
    width = 2 * h if both else h
    states = [((b, width), kind)] * (2 if name == "lstm" else 1)
    x, *states = yield [(d.loose((s, b, i), keep=[1, 2]), kind)] + states
    more = {"weight_ih": d.weight(kind, gates * h, i), "weight_hh": d.weight(kind, gates * h, h), "initial_h": states[0]}
    if name == "lstm":
        more |= {"initial_c": states[1]}
    if both:
        more |= {"direction": "bidirectional", "weight_ih_back": more["weight_ih"], "weight_hh_back": more["weight_hh"]}
    elif d.maybe():
        more["direction"] = d.one(["forward", "reverse"])
    made = getattr(mb, name)(x=x, **more, **d.options(output_sequence=d.maybe(), bias=d.weight(kind, gates * h)))
    return list(made)


# Quantized activations
@recipe("quantize", "dequantize")
def quantized(d, name):
    shape, kind = d.dims(1, 5), d.float()
    x, = yield [(d.loose(shape, keep=range(5)), kind)]
    to = d.one(["int8", "uint8"])
    if d.maybe():
        axis = d.axis(len(shape))
        more = {"scale": np.full(shape[axis], 0.1, NUMPY[kind]), "axis": axis} | d.options(zero_point=np.full(shape[axis], 3, to))
    else:
        more = {"scale": NUMPY[kind](0.1)} | d.options(zero_point=np.dtype(to).type(3))
    q = mb.quantize(input=x, output_dtype=to, **more)
    return q if name == "quantize" else mb.dequantize(input=q, **more)


# Blocks and lists
@recipe("cond")
def cond(d):
    shape, kind = d.any(1, 4), d.float()
    p, x = yield [((1,), "int32"), (shape, kind)]
    pred = mb.squeeze(x=mb.cast(x=p, dtype="bool"))
    return mb.cond(pred=pred, _true_fn=lambda: mb.relu(x=x), _false_fn=lambda: mb.tanh(x=x))


@recipe("while_loop")
def while_loop(d):
    shape, kind = d.any(1, 4), d.float()
    i, x = yield [((1,), "int32"), (shape, kind)]
    return list(mb.while_loop(_cond=lambda i, x: mb.squeeze(x=mb.less(x=i, y=np.int32(3))),
                              _body=lambda i, x: (mb.add(x=i, y=np.int32(1)), mb.tanh(x=x)), loop_vars=(i, x)))


@recipe("make_list", "list_read", "list_write", "list_gather", "list_scatter", "list_length")
def lists(d, name):
    shape, kind, n = d.dims(1, 3), d.number(), d.int(1, 4)
    value, many = yield [(tuple(shape), kind), ((2, *shape), kind)]
    made = mb.make_list(init_length=np.int32(n), dynamic_length=d.maybe(), elem_shape=tuple(np.int32(s) for s in shape), dtype=kind)
    made = mb.list_write(ls=made, index=np.int32(0), value=value)
    if name == "list_scatter":
        made = mb.list_scatter(ls=made, indices=np.array([0, n - 1], np.int32), value=many)
    if name == "list_length":
        return mb.list_length(ls=made)
    if name == "list_gather":
        return mb.list_gather(ls=made, indices=np.array([0, 0, n - 1], np.int32))
    return mb.list_read(ls=made, index=np.int32(0))


# Compressed weights
@recipe("constexpr_affine_dequantize", "constexpr_cast", "constexpr_blockwise_shift_scale")
def compressed(d, name):
    x, = yield [((1,), "fp32")]
    a, b = d.int(1, 4), d.int(1, 4)
    data = d.of("int32", a, b, low=-100, high=100).astype(np.int8)
    if name == "constexpr_cast":
        return mb.constexpr_cast(source_val=data.astype(np.float16), output_dtype="fp32")
    if name == "constexpr_blockwise_shift_scale":
        return mb.constexpr_blockwise_shift_scale(data=data, scale=np.full((a, 1), 0.5, np.float16), **d.options(offset=np.full((a, 1), 1, np.int8)))
    return mb.constexpr_affine_dequantize(quantized_data=data, zero_point=np.int8(1), scale=np.float16(0.5), axis=np.int32(d.int(-2, 1)))
