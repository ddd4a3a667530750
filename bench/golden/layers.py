"""Cases of windows, norms, recurrent layers, images and attention.

Expected values are ONNX Runtime's where ONNX has the op, else loops over numpy written from Core ML's
documentation.
"""

import itertools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from .common import CONSTANTS, SCALARS, case, floats, ints

CONSTANTS.update({"weight", "weight_ih", "weight_hh", "bias", "peephole", "weight_ih_back", "weight_hh_back", "bias_back",
                  "peephole_back", "input_bias", "mean", "variance", "gamma", "beta", "zero_point", "scale"})
SCALARS.update({"zero_point", "scale"})
f32 = np.float32


def onnx(op, inputs, n_outputs=1, opset=19, **attributes):
    """What ONNX Runtime makes of one node; inputs by name, in order, `None` where one is left out."""
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    outputs = [f"o{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, **attributes)
    given = {n: np.asarray(x) for n, x in zip(names, inputs) if x is not None}
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()]
    made = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    model = helper.make_model(helper.make_graph([node], "g", values, made), opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    out = session.run(None, given)
    return out[0] if n_outputs == 1 else out


def pads(pad):
    """before and after of each axis -> all befores, then all afters."""
    return list(pad[0::2]) + list(pad[1::2])


# Windows
POOLS = [((1, 2, 7), [3], [2]), ((2, 3, 5, 6), [2, 3], [2, 1]), ((1, 1, 9, 7), [3, 3], [1, 2]), ((1, 2, 4, 5, 3), [2, 2, 2], [1, 2, 1]),
         ((1, 1, 1, 1), [1, 1], [1, 1]), ((1, 2, 8, 8), [4, 4], [4, 4])]
for (shape, kernel, strides), dtype in itertools.product(POOLS, (np.float32, np.float16)):
    n = len(kernel)
    x = floats(*shape, dtype=dtype)
    how = {"kernel_shape": kernel, "strides": strides}
    wide = x.astype(f32)
    kinds = {"valid": ("VALID", None), "same": ("SAME_UPPER", None), "same_lower": ("SAME_LOWER", None), "custom": ("NOTSET", [1, 0] * n)}
    if min(kernel) == 1:
        kinds.pop("custom")
    for kind, (auto, pad) in kinds.items():
        more = {"auto_pad": auto} if pad is None else {"pads": pads(pad)}
        # The operand list of a pool always has `pad`.
        mine = {"kernel_sizes": kernel, "strides": strides, "pad_type": kind, "pad": pad or [0] * 2 * n}
        case("max_pool", onnx("MaxPool", [wide], **how, **more), x=x, ceil_mode=False, **mine)
        for exclude in (False, True):
            y = onnx("AveragePool", [wide], count_include_pad=int(not exclude), **how, **more)
            case("avg_pool", y, x=x, exclude_padding_from_average=exclude, ceil_mode=False, **mine)
        if n < 3:
            case("l2_pool", onnx("LpPool", [wide], p=2, opset=17, **how, **more), x=x, ceil_mode=False, **mine)
    if n < 3:
        mine = {"kernel_sizes": kernel, "strides": strides, "pad_type": "valid", "pad": [0] * 2 * n}
        case("max_pool", onnx("MaxPool", [wide], ceil_mode=1, **how), x=x, ceil_mode=True, **mine)
x = np.array([[[np.nan, 1, 2, -np.inf, -np.inf, np.inf, 0]]], f32)
case("max_pool", np.array([[[np.nan, 2, 2, -np.inf, np.inf, np.inf]]], f32), x=x, kernel_sizes=[2], strides=[1], pad_type="valid", pad=[0, 0], ceil_mode=False)

TRANSPOSED = [((1, 2, 5), (2, 3, 3), [2], 1), ((2, 4, 3, 4), (4, 2, 3, 2), [2, 1], 2), ((1, 3, 4, 4), (3, 1, 4, 4), [2, 2], 1),
              ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), [1, 2, 2], 1), ((1, 1, 1, 1), (1, 1, 1, 1), [1, 1], 1), ((1, 4, 3, 3), (4, 1, 3, 3), [2, 2], 4)]
for (shape, kernel, strides, groups), with_bias in itertools.product(TRANSPOSED, (False, True)):
    n = len(strides)
    x, w = floats(*shape), floats(*kernel, low=-1, high=1)
    b = floats(kernel[1] * groups) if with_bias else None
    bias = {"bias": b} if with_bias else {}
    for dilation in (1, 2):
        how = {"strides": strides, "dilations": [dilation] * n, "group": groups}
        mine = {"strides": strides, "dilations": [dilation] * n, "groups": groups}
        y = onnx("ConvTranspose", [x, w, b], **how)
        case("conv_transpose", y, x=x, weight=w, pad=[0] * 2 * n, pad_type="valid", **mine, **bias)
        if min(kernel[2:]) > 1:
            pad = [1, 0] * n
            y = onnx("ConvTranspose", [x, w, b], pads=pads(pad), **how)
            case("conv_transpose", y, x=x, weight=w, pad=pad, pad_type="custom", **mine, **bias)
            # Twice the extent exactly, as encoders and decoders pair them: one row more than falls out.
            if max(strides) == 2 and dilation == 1:
                more = [s - 1 for s in strides]
                y = onnx("ConvTranspose", [x, w, b], pads=pads(pad), output_padding=more, **how)
                case("conv_transpose", y, x=x, weight=w, pad=pad, pad_type="custom", output_shape=list(y.shape), **mine, **bias)

# Norms
for shape, dtype in itertools.product([(1, 1, 1), (2, 3, 5), (1, 4, 3, 2), (2, 2, 1, 2, 3)], (np.float32, np.float16)):
    x, c = floats(*shape, dtype=dtype), shape[1]
    wide = x.astype(f32)
    mean, variance = floats(c, dtype=dtype), floats(c, low=0.1, high=2, dtype=dtype)
    gamma, beta = floats(c, dtype=dtype), floats(c, dtype=dtype)
    ones, zeros = np.ones(c, f32), np.zeros(c, f32)
    for eps in (1e-5, 0.25):
        e = dtype(eps)
        y = onnx("BatchNormalization", [wide, gamma.astype(f32), beta.astype(f32), mean.astype(f32), variance.astype(f32)], epsilon=float(e))
        case("batch_norm", y, x=x, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=e)
        y = onnx("BatchNormalization", [wide, ones, zeros, mean.astype(f32), variance.astype(f32)], epsilon=float(e))
        case("batch_norm", y, x=x, mean=mean, variance=variance, epsilon=e)
        # ONNX Runtime's loses digits of single numbers.
        planes = x.reshape(shape[0], c, -1).astype(np.float64)
        y = (planes - planes.mean(2, keepdims=True)) / np.sqrt(planes.var(2, keepdims=True) + float(e))
        case("instance_norm", (y * gamma[:, None].astype(np.float64) + beta[:, None].astype(np.float64)).reshape(shape), x=x, gamma=gamma, beta=beta, epsilon=e)
        case("instance_norm", y.reshape(shape), x=x, epsilon=e)
        block = wide.reshape(-1, int(np.prod(shape[-3:]))).astype(np.float64)
        y = (block / np.sqrt((block**2).sum(1, keepdims=True) + e)).reshape(shape)
        case("l2_norm", y, x=x, epsilon=e)
    for size in (1, 3, 5):
        y = onnx("LRN", [wide], size=size, alpha=0.5, beta=0.75, bias=1.5) if len(shape) == 4 else None
        if y is not None:
            case("local_response_norm", y, x=x, size=size, alpha=dtype(0.5), beta=dtype(0.75), k=dtype(1.5))

# Recurrent layers; ONNX orders the gates of an LSTM i, o, f, c and Core ML i, f, o, c.
def reorder(w, order):
    parts = np.split(w, len(order))
    return np.concatenate([parts[i] for i in order])


ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "linear": "Affine", "hard_sigmoid": "HardSigmoid"}
ALPHAS = {"HardSigmoid": 0.2, "Affine": 1.0}
BETAS = {"HardSigmoid": 0.5, "Affine": 0.0}


def activations(names, directions=1):
    theirs = [ACTIVATIONS[n] for n in names] * directions
    alphas, betas = [ALPHAS[n] for n in theirs if n in ALPHAS], [BETAS[n] for n in theirs if n in BETAS]
    return {"activations": theirs} | ({"activation_alpha": alphas, "activation_beta": betas} if alphas else {})


for (s, b, i, h), direction in itertools.product([(1, 1, 1, 1), (3, 2, 4, 3), (5, 1, 3, 7)], ("forward", "reverse", "bidirectional")):
    ways = 2 if direction == "bidirectional" else 1
    x, h0, c0 = floats(s, b, i), floats(b, ways * h), floats(b, ways * h)
    ih, hh, bias, peep = ([floats(*shape, low=-1, high=1) for _ in range(ways)] for shape in ((4 * h, i), (4 * h, h), (4 * h,), (3 * h,)))
    split = lambda state: np.stack(np.split(state, ways, axis=1))
    join = lambda state: np.concatenate(list(state), axis=1)
    for (with_bias, with_peep, whole), acts in itertools.product([(True, False, True), (False, False, False), (True, True, True)],
                                                                 [("sigmoid", "tanh", "tanh"), ("hard_sigmoid", "relu", "linear")]):
        w = np.stack([reorder(w, [0, 2, 1, 3]) for w in ih])
        r = np.stack([reorder(w, [0, 2, 1, 3]) for w in hh])
        zeros = np.zeros((ways, 4 * h), f32)
        bb = np.concatenate([np.stack([reorder(v, [0, 2, 1, 3]) for v in bias]) if with_bias else zeros, zeros], axis=1)
        p = np.stack([reorder(v, [0, 2, 1]) for v in peep]) if with_peep else None
        y, yh, yc = onnx("LSTM", [x, w, r, bb, None, split(h0), split(c0), p], 3, hidden_size=h, direction=direction, **activations(acts, ways))
        y, yh, yc = y.transpose(0, 2, 1, 3).reshape(s, b, ways * h), join(yh), join(yc)
        more = {"weight_ih": ih[0], "weight_hh": hh[0]}
        if with_bias:
            more["bias"] = bias[0]
        if with_peep:
            more["peephole"] = peep[0]
        if ways == 2:
            more |= {"weight_ih_back": ih[1], "weight_hh_back": hh[1]}
            more |= {"bias_back": bias[1]} if with_bias else {}
            more |= {"peephole_back": peep[1]} if with_peep else {}
        case("lstm", [y if whole else yh[None], yh, yc], x=x, initial_h=h0, initial_c=c0, **more, direction=direction, output_sequence=whole,
             recurrent_activation=acts[0], cell_activation=acts[1], activation=acts[2])
    if ways == 2:
        continue
    # Core ML's gates of a GRU are reset, output, update; ONNX's update, reset, output.
    gi, gh, gb, gr = floats(3 * h, i, low=-1, high=1), floats(3 * h, h, low=-1, high=1), floats(3 * h), floats(3 * h)
    for acts in (("sigmoid", "tanh"), ("hard_sigmoid", "relu")):
        w, r = reorder(gi, [2, 0, 1])[None], reorder(gh, [2, 0, 1])[None]
        how = {"hidden_size": h, "direction": direction, "linear_before_reset": 1, **activations(acts)}
        mine = {"x": x, "initial_h": h0, "weight_ih": gi, "weight_hh": gh, "direction": direction, "recurrent_activation": acts[0], "activation": acts[1]}
        zeros = np.zeros(3 * h, f32)
        # The bias is added outside of what is reset ...
        y, yh = onnx("GRU", [x, w, r, np.concatenate([reorder(gb, [2, 0, 1]), zeros])[None], None, h0[None]], 2, **how)
        case("gru", [y[:, 0], yh[0]], **mine, bias=gb, output_sequence=True)
        case("gru", [yh, yh[0]], **mine, bias=gb, output_sequence=False)
        # ... unless `reset_after` asks for the other.
        y, yh = onnx("GRU", [x, w, r, np.concatenate([reorder(gr, [2, 0, 1]), reorder(gb, [2, 0, 1])])[None], None, h0[None]], 2, **how)
        case("gru", [y[:, 0], yh[0]], **mine, bias=gb, input_bias=gr, reset_after=True, output_sequence=True)
    wi, wh, wb = floats(h, i, low=-1, high=1), floats(h, h, low=-1, high=1), floats(h)
    for act in ("tanh", "relu", "sigmoid"):
        y, yh = onnx("RNN", [x, wi[None], wh[None], np.concatenate([wb, np.zeros(h, f32)])[None], None, h0[None]], 2, hidden_size=h, direction=direction, **activations([act]))
        case("rnn", [y[:, 0], yh[0]], x=x, initial_h=h0, weight_ih=wi, weight_hh=wh, bias=wb, direction=direction, output_sequence=True, activation=act)
        case("rnn", [yh, yh[0]], x=x, initial_h=h0, weight_ih=wi, weight_hh=wh, bias=wb, direction=direction, output_sequence=False, activation=act)


# Images
def grid(mode, n, out):
    """Where Core ML's documentation of `resize_bilinear` puts the output's points."""
    i = np.arange(out, dtype=np.float64)
    if mode == "ALIGN_CORNERS" and out == 1:
        at = np.array([(n - 1) / 2])
    elif mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        at = i * (n - 1) / max(out - 1, 1)
    elif mode == "DEFAULT":
        at = i * (n - n / out) / max(out - 1, 1)
    elif mode == "OFFSET_CORNERS":
        delta = max(1, n - 1) / out
        at = 0.5 * delta + i * delta
    else:
        at = i * n / out + 0.5 * n / out - 0.5
    return np.clip(at, 0, n - 1)


def linear(x, axis, at):
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    part = np.expand_dims(at - low, tuple(range(1, x.ndim - axis)))
    return np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part


MODES = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS")
for shape, (h, w), dtype in itertools.product([(1, 2, 3), (1, 2, 3, 4), (2, 1, 1, 5)], [(5, 7), (2, 2), (1, 1), (3, 8)], (np.float32, np.float16)):
    x = floats(*shape, dtype=dtype)
    wide = x.astype(np.float64)
    for mode in MODES:
        y = linear(linear(wide, x.ndim - 2, grid(mode, shape[-2], h)), x.ndim - 1, grid(mode, shape[-1], w))
        case("resize_bilinear", y, x=x, target_size_height=h, target_size_width=w, sampling_mode=mode)
        case("resize", y, x=x, shape=np.array([h, w], np.int32), resized_dims=2, interpolation_mode="LINEAR", sampling_mode=mode)
        # An extent that is kept is sampled like any other.
        y = linear(linear(wide, x.ndim - 2, grid(mode, shape[-2], shape[-2])), x.ndim - 1, grid(mode, shape[-1], w))
        case("resize", y, x=x, shape=np.array([9, 0, w], np.int32), resized_dims=2, interpolation_mode="LINEAR", sampling_mode=mode)
    rows, cols = (np.arange(h) * shape[-2]) // h, (np.arange(w) * shape[-1]) // w
    y = wide[..., rows, :][..., cols]
    case("resize_nearest_neighbor", y, x=x, target_size_height=h, target_size_width=w)
    case("resize", y, x=x, shape=np.array([h, w], np.int32), resized_dims=2, interpolation_mode="NEAREST_NEIGHBOR", sampling_mode="DEFAULT")

for shape, dtype in itertools.product([(1, 2, 3), (1, 2, 3, 4), (2, 1, 1, 5)], (np.float32, np.float16)):
    x = floats(*shape, dtype=dtype)
    wide = x.astype(f32)
    for kh, kw in [(2, 2), (1, 3), (4, 1)]:
        y = np.repeat(np.repeat(wide, kh, -2), kw, -1)
        case("upsample_nearest_neighbor", y, x=x, scale_factor_height=kh, scale_factor_width=kw)
    for kh, kw in [(2, 2), (1, 3), (f32(1.5), f32(2.5))]:
        h, w = int(np.floor(float(kh) * shape[-2])), int(np.floor(float(kw) * shape[-1]))
        for align in (True, False):
            mode = "STRICT_ALIGN_CORNERS" if align else "UNALIGN_CORNERS"
            y = linear(linear(wide.astype(np.float64), x.ndim - 2, grid(mode, shape[-2], h)), x.ndim - 1, grid(mode, shape[-1], w))
            case("upsample_bilinear", y, x=x, scale_factor_height=kh, scale_factor_width=kw, align_corners=align)
            if x.ndim == 4 and shape[-2] > 1:
                # PyTorch's interpolation is ONNX's, with these names.
                theirs = onnx("Resize", [wide, None, None, np.array([*shape[:-2], h, w])], mode="linear",
                              coordinate_transformation_mode="align_corners" if align else "half_pixel")
                assert np.allclose(y, theirs, atol=1e-5), (shape, kh, kw, align)
        i, j = np.arange(h) * shape[-2] / h, np.arange(w) * shape[-1] / w
        y = linear(linear(wide.astype(np.float64), x.ndim - 2, np.minimum(i, shape[-2] - 1)), x.ndim - 1, np.minimum(j, shape[-1] - 1))
        case("upsample_bilinear", y, x=x, scale_factor_height=kh, scale_factor_width=kw, align_corners=False, half_pixel_centers=False)

PADDING = {"constant": "zeros", "border": "border", "reflection": "reflection"}
for shape, (h, w), dtype in itertools.product([(1, 2, 3, 4), (2, 1, 5, 3)], [(2, 3), (4, 4)], (np.float32,)):
    x = floats(*shape)
    at = floats(shape[0], h, w, 2, low=-1.6, high=1.6)
    for (mode, theirs), align, sampling in itertools.product(PADDING.items(), (True, False), ("bilinear", "nearest")):
        # ONNX reflects at the edges of pixels when corners are not aligned, Core ML at their centres.
        if mode == "reflection" and not align:
            continue
        y = onnx("GridSample", [x, at], mode=sampling, padding_mode=theirs, align_corners=int(align), opset=16)
        case("resample", y, x=x, coordinates=at, sampling_mode=sampling, padding_mode=mode, padding_value=f32(0), coordinates_mode="normalized_minus_one_to_one", align_corners=align)
        if align:
            unit = (at + f32(1)) / f32(2)
            case("resample", y, x=x, coordinates=unit.astype(f32), sampling_mode=sampling, padding_mode=mode, padding_value=f32(0), coordinates_mode="normalized_zero_to_one", align_corners=align)
    whole = np.stack([np.random.default_rng(5).integers(-3, shape[3] + 3, (shape[0], h, w)), np.random.default_rng(6).integers(-3, shape[2] + 3, (shape[0], h, w))], -1).astype(np.int32)
    for mode, how in (("constant", None), ("border", "edge"), ("reflection", "reflect"), ("symmetric", "symmetric")):
        padded = np.pad(x, ((0, 0), (0, 0), (9, 9), (9, 9)), **({"mode": "constant", "constant_values": 7.5} if how is None else {"mode": how}))
        y = np.stack([padded[b][:, whole[b, ..., 1] + 9, whole[b, ..., 0] + 9] for b in range(shape[0])])
        case("resample", y, x=x, coordinates=whole, sampling_mode="nearest", padding_mode=mode, padding_value=f32(7.5), coordinates_mode="unnormalized", align_corners=True)
    for n in {1, shape[0]}:
        m = floats(n, 6, low=-1, high=1)
        yy, xx = np.meshgrid(np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij")
        places = np.stack([np.stack([a[0] * xx + a[1] * yy + a[2], a[3] * xx + a[4] * yy + a[5]], -1) for a in np.broadcast_to(m, (shape[0], 6))]).astype(f32)
        y = onnx("GridSample", [x, places], mode="bilinear", padding_mode="zeros", align_corners=1, opset=16)
        case("affine", y, x=x, transform_matrix=m, output_height=h, output_width=w, sampling_mode="bilinear", padding_mode="constant", padding_value=f32(0),
             coordinates_mode="normalized_minus_one_to_one", align_corners=True)


def crop(image, box, size, mode, pad):
    """One box [top, left, bottom, right] of [C, H, W], brought to `size`."""
    c, h, w = image.shape
    out = np.full((c, *size), pad, np.float64)
    places = []
    for axis in range(2):
        start, end, n = box[axis], box[axis + 2], size[axis]
        span = end - start
        i = np.arange(n)
        if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
            at = np.array([span / 2]) if mode == "ALIGN_CORNERS" and n == 1 else i * span / max(n - 1, 1)
        elif mode == "DEFAULT":
            at = i * ((span + 1) - (span + 1) / n) / max(n - 1, 1)
        elif mode == "OFFSET_CORNERS":
            at = (i + 0.5) * max(1, span) / n
        else:
            at = (i + 0.5) * (span + 1) / n - 0.5
        places.append(start + at)
    for i, y in enumerate(places[0]):
        for j, x in enumerate(places[1]):
            if 0 <= y <= h - 1 and 0 <= x <= w - 1:
                row = linear(image.astype(np.float64), 1, np.array([y]))
                out[:, i, j] = linear(row, 2, np.array([x]))[:, 0, 0]
    return out


x = floats(2, 3, 5, 6)
corners = np.array([[0, 0, 4, 5], [1, 1, 2.5, 4], [0.5, 2, 3, 2], [2, -1, 6, 7]], f32)
for mode, size in itertools.product(MODES, [(2, 3), (1, 1), (4, 4)]):
    which = np.array([0, 1, 1, 0], np.int32)
    pad = f32(0.5)
    y = np.stack([crop(x[b], box, size, mode, pad) for b, box in zip(which, corners)])
    mine = {"target_height": size[0], "target_width": size[1], "sampling_mode": mode}
    case("crop_resize", y, x=x, boxes=corners, box_indices=which, pad_value=pad, box_coordinate_mode="CORNERS_HEIGHT_FIRST", **mine)
    case("crop_resize", y, x=x, boxes=corners[:, [1, 0, 3, 2]], box_indices=which, pad_value=pad, box_coordinate_mode="CORNERS_WIDTH_FIRST", **mine)
    inside = np.array([[0, 0, 1, 1], [0.25, 0.2, 0.75, 1]], f32)
    y = np.stack([crop(x[b], inside[b] * [4, 5, 4, 5], size, mode, 0) for b in range(2)])
    case("crop_resize", y, x=x, boxes=inside, normalized_coordinates=True, box_coordinate_mode="CORNERS_HEIGHT_FIRST", **mine)
    y = np.stack([crop(x[b], corners[b] * 0.5, size, mode, 0) for b in range(2)])
    case("crop_resize", y, x=x, boxes=corners[:2], spatial_scale=f32(0.5), box_coordinate_mode="CORNERS_HEIGHT_FIRST", **mine)

# Attention
for lead, l, s, e, v in [((1,), 1, 1, 1, 1), ((2, 3), 4, 5, 8, 6), ((1, 2, 2), 3, 7, 4, 4)]:
    for dtype in (np.float32, np.float16):
        q, k, val = floats(*lead, l, e, dtype=dtype), floats(*lead, s, e, dtype=dtype), floats(*lead, s, v, dtype=dtype)
        for mask in (None, "bool", "float", "row"):
            added = 0
            more = {}
            if mask == "bool":
                m = np.random.default_rng(3).integers(0, 2, (*lead, l, s)).astype(bool)
                m[..., 0] = True
                added, more = np.where(m, 0.0, -np.inf), {"attn_mask": m}
            elif mask is not None:
                m = floats(*((l, s) if mask == "float" else (1, s)), dtype=dtype)
                added, more = m.astype(np.float64), {"attn_mask": m}
            scores = q.astype(np.float64) @ np.swapaxes(k.astype(np.float64), -1, -2) / np.sqrt(e) + added
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            y = weights / weights.sum(-1, keepdims=True) @ val.astype(np.float64)
            case("scaled_dot_product_attention", y, query=q, key=k, value=val, **more)

# Between integers and floats
for shape, axis in [((7,), None), ((2, 3), 0), ((2, 3, 4), 1), ((2, 3), -1), ((1, 1, 5, 2), 2)]:
    for target, dtype in itertools.product(("int8", "uint8"), (np.float32, np.float16)):
        info = np.iinfo(target)
        n = 1 if axis is None else shape[axis]
        x = floats(*shape, low=-40, high=300, dtype=dtype)
        scale = floats(n, low=0.3, high=2, dtype=dtype)
        zero = np.random.default_rng(n).integers(0, 9, n).astype(target)
        over = [1] * len(shape)
        if axis is not None:
            over[axis] = n
        s, z = scale.astype(f32).reshape(over), zero.astype(f32).reshape(over)
        y = np.clip(np.round(x.astype(f32) / s) + z, info.min, info.max).astype(target)
        along = {} if axis is None else {"axis": axis}
        parts = {"scale": scale if axis is not None else scale[0].reshape(()), "zero_point": zero if axis is not None else zero[0].reshape(())}
        case("quantize", y, out=target, input=x, **parts, output_dtype=target, **along)
        q = ints(*shape, low=info.min, high=info.max + 1, dtype=np.dtype(target))
        case("dequantize", (q.astype(f32) - z) * s, out=dtype, input=q, **parts, **along)
