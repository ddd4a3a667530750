#!/usr/bin/env python3
"""Makes a small model for every form of every op of com.microsoft that is imported, with what ONNX Runtime computes for it.

usage: onnx_contrib.py [OUTPUT_FOLDER]      (committed as crates/testing/data/onnx_contrib)

Each case is NAME.onnx and NAME.npz, which holds its inputs (`in.*`, int64 as int32) and outputs (`out.*`) by name. Forms that ONNX
Runtime's CPU provider does not run are said and left out, except where what its other providers compute is written out here in numpy.
Dimensions are tiny, numbers seeded.

Needs: pip install onnx==1.23 onnxruntime==1.32 numpy
"""
import itertools
import math
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
MS = "com.microsoft"
OPSET = 17
rng = np.random.default_rng(11)


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def ints(low, high, shape, dtype=np.int32):
    return rng.integers(low, high, shape).astype(dtype)


class Cases:
    def __init__(self, folder):
        self.folder, self.n, self.refused = folder, 0, []

    def add(self, name, op, inputs, n_out=1, given=1, domain=MS, expect=None, **attrs):
        """A node; its first `given` inputs, or those named, are the graph's, the others constants. None is an absent operand."""
        names = [f"x{i}" if v is not None else "" for i, v in enumerate(inputs)]
        is_given = (lambda i: i < given) if isinstance(given, int) else (lambda i: i in given)
        outs = [f"y{i}" if want else "" for i, want in enumerate(n_out if isinstance(n_out, list) else [True] * n_out)]
        node = helper.make_node(op, names, outs, name=f"{op}_0", domain=domain, **attrs)
        graph_inputs, constants, feeds = [], [], {}
        for i, v in enumerate(inputs):
            if v is None:
                continue
            if is_given(i):
                graph_inputs.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(v.dtype), v.shape))
                feeds[names[i]] = v
            else:
                constants.append(numpy_helper.from_array(v, names[i]))
        graph_outputs = [helper.make_empty_tensor_value_info(o) for o in outs if o]
        graph = helper.make_graph([node], name, graph_inputs, graph_outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MS, 1)], ir_version=8)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            values = [expect]
            if expect is None:
                session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
                values = session.run(None, feeds)
        except Exception as e:
            self.refused.append((name, str(e).splitlines()[0][:200]))
            return
        # Types and shapes as they came out.
        for info, v in zip(graph.output, values):
            info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape))
        onnx.save(model, self.folder / f"{name}.onnx")
        arrays = {f"in.{k}": v for k, v in feeds.items()} | {f"out.{o.name}": v for o, v in zip(graph.output, values)}
        narrow = {np.dtype(np.int64): np.int32, np.dtype(np.uint8): np.int32, np.dtype(np.int8): np.int32, np.dtype(bool): np.int32}
        arrays = {k: v.astype(narrow.get(v.dtype, v.dtype)) for k, v in arrays.items()}
        np.savez_compressed(self.folder / f"{name}.npz", **arrays)
        self.n += 1


def activations(c):
    x, bias = f(2, 3, 8), f(8)
    c.add("gelu", "Gelu", [x])
    c.add("fast_gelu", "FastGelu", [x])
    c.add("fast_gelu_bias", "FastGelu", [x, bias])
    c.add("bias_gelu", "BiasGelu", [x, bias])
    c.add("quick_gelu", "QuickGelu", [x])
    c.add("quick_gelu_alpha", "QuickGelu", [x], alpha=1.0)
    wide, wide_bias, skip = f(2, 3, 16), f(16), f(2, 3, 8)
    left, right = np.split(wide + wide_bias, 2, axis=-1)
    gate = np.vectorize(lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2)(right).astype(np.float32)
    c.add("bias_split_gelu", "BiasSplitGelu", [wide, wide_bias], expect=left * gate)
    c.add("bias_add", "BiasAdd", [x, bias, skip], expect=x + bias + skip)


def norms(c):
    x, skip, gamma, beta, bias = f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)
    c.add("skip_layer_norm", "SkipLayerNormalization", [x, skip, gamma], given=2)
    c.add("skip_layer_norm_all", "SkipLayerNormalization", [x, skip, gamma, beta, bias], given=2, n_out=[True, False, False, True], epsilon=1e-5)
    c.add("skip_layer_norm_beta", "SkipLayerNormalization", [x, skip, gamma, beta], given=2, epsilon=1e-3)
    c.add("skip_layer_norm_spread", "SkipLayerNormalization", [x, f(1, 3, 8), gamma, beta], given=2)
    c.add("skip_layer_norm_spread2", "SkipLayerNormalization", [x, f(3, 8), gamma, beta], given=2)
    c.add("skip_rms_norm", "SkipSimplifiedLayerNormalization", [x, skip, gamma], given=2)
    c.add("skip_rms_norm_all", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], given=2, n_out=[True, False, False, True], epsilon=1e-5)
    c.add("rms_norm", "SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-5)
    c.add("rms_norm_axis", "SimplifiedLayerNormalization", [x, f(3, 8)], domain="", axis=1)
    ids, types, mask = ints(0, 10, (2, 4)), ints(0, 2, (2, 4)), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    tables = [f(10, 8), f(6, 8), f(2, 8)]
    c.add("embed", "EmbedLayerNormalization", [ids, types, *tables, gamma, beta, mask], given=[0, 1, 7], n_out=2)
    c.add("embed_sum", "EmbedLayerNormalization", [ids, types, *tables, gamma, beta, mask], given=[0, 1, 7], n_out=3, epsilon=1e-5)
    c.add("embed_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, gamma, beta], given=1, n_out=2)
    c.add("embed_places", "EmbedLayerNormalization", [ids, types, *tables, gamma, beta, None, ints(0, 6, (2, 4))], given=[0, 1, 8], n_out=2)
    image, more = f(2, 4, 4, 8), f(2, 1, 1, 8)

    def grouped(x, groups, epsilon, silu):
        parts = x.reshape(2, 4, 4, groups, -1)
        axes = (1, 2, 4)
        parts = (parts - parts.mean(axes, keepdims=True)) / np.sqrt(parts.var(axes, keepdims=True) + epsilon)
        y = parts.reshape(x.shape) * gamma + beta
        return (y / (1 + np.exp(-y)) if silu else y).astype(np.float32)

    c.add("group_norm", "GroupNorm", [image, gamma, beta], groups=2, activation=0, channels_last=1, expect=grouped(image, 2, 1e-5, False))
    c.add("group_norm_silu", "GroupNorm", [image, gamma, beta], groups=4, activation=1, channels_last=1, epsilon=1e-3, expect=grouped(image, 4, 1e-3, True))
    c.add("group_norm_second", "GroupNorm", [np.ascontiguousarray(image.transpose(0, 3, 1, 2)), gamma, beta], groups=2, activation=0, channels_last=0,
          expect=np.ascontiguousarray(grouped(image, 2, 1e-5, False).transpose(0, 3, 1, 2)))
    c.add("skip_group_norm", "SkipGroupNorm", [image, gamma, beta, more, bias], given=[0, 3], groups=2, activation=1, channels_last=1,
          expect=grouped(image + more + bias, 2, 1e-5, True))


def attentions(c):
    B, S, H, N = 2, 4, 8, 2
    D = H // N
    x, w, b = f(B, S, H), f(H, 3 * H) * 0.5, f(3 * H)
    past = f(2, B, N, 3, D)
    lengths = np.array([4, 2], np.int32)
    c.add("attention", "Attention", [x, w, b], num_heads=N)
    c.add("attention_no_bias", "Attention", [x, w], num_heads=N)
    c.add("attention_scale", "Attention", [x, w, b], num_heads=N, scale=0.3)
    c.add("attention_lengths", "Attention", [x, w, b, lengths], given=[0, 3], num_heads=N)
    c.add("attention_mask2", "Attention", [x, w, b, np.array([[1, 1, 1, 1], [0, 1, 1, 0]], np.int32)], given=[0, 3], num_heads=N)
    c.add("attention_mask3", "Attention", [x, w, b, ints(0, 2, (B, S, S)) | np.eye(S, dtype=np.int32)], given=[0, 3], num_heads=N)
    c.add("attention_mask_value", "Attention", [x, w, b, lengths], given=[0, 3], num_heads=N, mask_filter_value=-3.0)
    c.add("attention_ends_begins", "Attention", [x, w, b, np.array([4, 3, 0, 1], np.int32)], given=[0, 3], num_heads=N)
    c.add("attention_bias", "Attention", [x, w, b, None, None, f(B, N, S, S)], given=[0, 5], num_heads=N)
    c.add("attention_bias_spread", "Attention", [x, w, b, lengths, None, f(1, N, S, S)], given=[0, 3, 5], num_heads=N)
    c.add("attention_causal", "Attention", [x, w, b], num_heads=N, unidirectional=1)
    c.add("attention_causal_lengths", "Attention", [x, w, b, lengths], given=[0, 3], num_heads=N, unidirectional=1)
    c.add("attention_past", "Attention", [x, w, b, None, past], given=[0, 4], n_out=2, num_heads=N)
    c.add("attention_past_causal", "Attention", [x, w, b, None, past], given=[0, 4], n_out=2, num_heads=N, unidirectional=1)
    mask = np.ones((B, S + 3), np.int32)
    mask[1, 5:] = 0
    c.add("attention_past_mask", "Attention", [x, w, b, mask, past], given=[0, 3, 4], n_out=2, num_heads=N, unidirectional=1)
    c.add("attention_present", "Attention", [x, w, b], n_out=2, num_heads=N)
    c.add("attention_sizes", "Attention", [x, f(H, 8 + 8 + 12), f(28)], num_heads=N, qkv_hidden_sizes=[8, 8, 12])

    q, k, v = f(B, S, H), f(B, 5, H), f(B, 5, H)
    c.add("mha", "MultiHeadAttention", [q, k, v], given=3, num_heads=N)
    c.add("mha_bias", "MultiHeadAttention", [q, k, v, f(3 * H)], given=3, num_heads=N)
    c.add("mha_scale", "MultiHeadAttention", [q, k, v], given=3, num_heads=N, scale=0.7)
    c.add("mha_values", "MultiHeadAttention", [q, k, f(B, 5, 12)], given=3, num_heads=N)
    c.add("mha_mask2", "MultiHeadAttention", [q, k, v, None, np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)], given=[0, 1, 2, 4], num_heads=N)
    c.add("mha_mask1", "MultiHeadAttention", [q, k, v, None, np.array([5, 2], np.int32)], given=[0, 1, 2, 4], num_heads=N)
    c.add("mha_mask3", "MultiHeadAttention", [q, k, v, None, ints(0, 2, (B, S, 5)) | 1], given=[0, 1, 2, 4], num_heads=N)
    c.add("mha_bias4", "MultiHeadAttention", [q, k, v, None, None, f(B, N, S, 5)], given=[0, 1, 2, 5], num_heads=N)
    c.add("mha_bias4_spread", "MultiHeadAttention", [q, k, v, None, None, f(1, 1, S, 5)], given=[0, 1, 2, 5], num_heads=N)
    c.add("mha_heads", "MultiHeadAttention", [q, f(B, N, 5, D), f(B, N, 5, D)], given=3, num_heads=N)
    c.add("mha_past", "MultiHeadAttention", [q, f(B, S, H), f(B, S, H), None, None, None, f(B, N, 3, D), f(B, N, 3, D)], given=[0, 1, 2, 6, 7], n_out=3, num_heads=N)
    c.add("mha_past_causal", "MultiHeadAttention", [q, f(B, S, H), f(B, S, H), None, None, None, f(B, N, 3, D), f(B, N, 3, D)], given=[0, 1, 2, 6, 7], n_out=3, num_heads=N, unidirectional=1)
    c.add("mha_causal", "MultiHeadAttention", [q, f(B, S, H), f(B, S, H)], given=3, num_heads=N, unidirectional=1)

    def plain(q, k, v):
        """Of [B, S, N, D] each."""
        scores = np.einsum("bsnd,btnd->bnst", q, k) / math.sqrt(D)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("bnst,btnd->bsnd", weights, v).reshape(q.shape[0], q.shape[1], -1).astype(np.float32)

    kv, qkv = f(B, 5, N, 2, D), f(B, S, N, 3, D)
    c.add("mha_packed_kv", "MultiHeadAttention", [q, kv], given=2, num_heads=N, expect=plain(q.reshape(B, S, N, D), kv[:, :, :, 0], kv[:, :, :, 1]))
    c.add("mha_packed", "MultiHeadAttention", [qkv], num_heads=N, expect=plain(*(qkv[:, :, :, i] for i in range(3))))


def group_query(c):
    B, S, N, G, D = 2, 3, 4, 2, 16
    half = D // 2
    q, k, v = f(B, S, N * D), f(B, S, G * D), f(B, S, G * D)
    cos, sin = np.cos(f(16, half)).astype(np.float32), np.sin(f(16, half)).astype(np.float32)
    last, total = np.array([S - 1, S - 1], np.int32), np.array(S, np.int32)
    heads = dict(num_heads=N, kv_num_heads=G)
    empty = f(B, G, 0, D)

    def prompt(name, q=q, k=k, v=v, last=last, extra=(), **attrs):
        c.add(name, "GroupQueryAttention", [q, k, v, None, None, last, total, *extra], given=[0, 1, 2, 5], n_out=3, **heads, **attrs)

    prompt("gqa")
    prompt("gqa_scale", scale=0.4)
    prompt("gqa_softcap", softcap=2.0)
    prompt("gqa_window", local_window_size=2)
    prompt("gqa_ragged", last=np.array([2, 1], np.int32))
    prompt("gqa_smooth", smooth_softmax=1)
    prompt("gqa_sink", extra=[None, None, None, None, f(N)])
    prompt("gqa_rotary", extra=[cos, sin], do_rotary=1)
    prompt("gqa_rotary_pairs", extra=[cos, sin], do_rotary=1, rotary_interleaved=1)
    prompt("gqa_bias", extra=[None, None, None, f(B, N, S, S)])
    c.add("gqa_packed", "GroupQueryAttention", [f(B, S, (N + 2 * G) * D), None, None, None, None, last, total], given=[0, 5], n_out=3, **heads)
    c.add("gqa_packed_rotary", "GroupQueryAttention", [f(B, S, (N + 2 * G) * D), None, None, None, None, last, total, cos, sin], given=[0, 5], n_out=3, do_rotary=1, **heads)
    # A step with a cache that is as long as the keys before it.
    P = 5
    step = [f(B, 1, N * D), f(B, 1, G * D), f(B, 1, G * D), f(B, G, P, D), f(B, G, P, D), np.array([P, P], np.int32), np.array(P + 1, np.int32)]
    for name, attrs, extra in [("gqa_step", {}, ()), ("gqa_step_rotary", dict(do_rotary=1), (cos, sin)), ("gqa_step_window", dict(local_window_size=3), ()),
                               ("gqa_step_pairs", dict(do_rotary=1, rotary_interleaved=1, softcap=3.0), (cos, sin))]:
        c.add(name, "GroupQueryAttention", [*step, *extra], given=[0, 1, 2, 3, 4, 5], n_out=3, **heads, **attrs)
    many = [f(1, 2, N * D), f(1, 2, G * D), f(1, 2, G * D), f(1, G, P, D), f(1, G, P, D), np.array([P + 1], np.int32), np.array(P + 2, np.int32)]
    c.add("gqa_chunk_rotary", "GroupQueryAttention", [*many, cos, sin], given=[0, 1, 2, 3, 4, 5], n_out=3, do_rotary=1, **heads)
    c.add("gqa_places", "GroupQueryAttention", [*many, cos, sin, np.array([[4, 9]], np.int64)], given=[0, 1, 2, 3, 4, 5, 9], n_out=3, do_rotary=1, **heads)


def rotaries(c):
    B, S, N, D = 2, 3, 2, 8
    cos, sin = f(12, D // 2), f(12, D // 2)
    places = ints(0, 12, (B, S), np.int64)
    c.add("rotary", "RotaryEmbedding", [f(B, S, N * D), places, cos, sin], given=2)
    c.add("rotary_pairs", "RotaryEmbedding", [f(B, S, N * D), places, cos, sin], given=2, interleaved=1)
    c.add("rotary_offset", "RotaryEmbedding", [f(B, S, N * D), np.array([4], np.int64), cos, sin], given=2)
    c.add("rotary_heads", "RotaryEmbedding", [f(B, N, S, D), places, cos, sin], given=2)
    c.add("rotary_scale", "RotaryEmbedding", [f(B, N, S, D), places, cos, sin], given=2, scale=0.5)
    c.add("rotary_part", "RotaryEmbedding", [f(B, N, S, D), places, f(12, 2), f(12, 2)], given=2, rotary_embedding_dim=4, num_heads=N)
    c.add("rotary_part_flat", "RotaryEmbedding", [f(B, S, N * D), places, f(12, 2), f(12, 2)], given=2, rotary_embedding_dim=4, num_heads=N, interleaved=1)


def low_bits(c):
    """Weights in blocks of few bits."""
    N = 4
    for bits, block, K, zeros, bias in itertools.product([2, 4, 8], [16, 32], [32, 48], [None, "packed", "float"], [False, True]):
        if bits == 8 and zeros == "float":
            continue
        if bias and zeros or (K == 48 and zeros == "float") or (bits == 2 and bias):
            continue
        blocks = -(-K // block)
        data = ints(0, 256, (N, blocks, block * bits // 8), np.uint8)
        scales = np.abs(f(N * blocks)) * 0.1
        per_row = -(-blocks * bits // 8)
        zero = {None: None, "packed": ints(0, 256, (N * per_row,), np.uint8), "float": f(N * blocks) + 2 ** (bits - 1)}[zeros]
        inputs = [f(2, 3, K), data, scales, zero] + ([None, f(N)] if bias else [])
        name = f"nbits{bits}_{block}_{K}" + (f"_{zeros}" if zeros else "") + ("_bias" if bias else "")
        c.add(name, "MatMulNBits", inputs, K=K, N=N, bits=bits, block_size=block)
    order = np.array([0, 1] * 16, np.int32)
    c.add("nbits4_order", "MatMulNBits", [f(2, 32), ints(0, 256, (N, 2, 8), np.uint8), f(N * 2) * 0.1, None, order], K=32, N=N, bits=4, block_size=16)
    for kind in (0, 1):
        c.add(f"bnb4_{kind}", "MatMulBnb4", [f(2, 32), ints(0, 256, (N * 16,), np.uint8), np.abs(f(N * 2))], K=32, N=N, block_size=16, quant_type=kind)
    for bits in (4, 8):
        table, scales = ints(0, 256, (5, 32 * bits // 8), np.uint8), np.abs(f(5, 2))
        zero = ints(0, 256, (5, 2 * bits // 8), np.uint8)
        places = ints(0, 5, (2, 3), np.int64)
        c.add(f"gather_blocks{bits}", "GatherBlockQuantized", [table, places, scales], given=[1], block_size=16, bits=bits, gather_axis=0, quantize_axis=1)
        c.add(f"gather_blocks{bits}_zero", "GatherBlockQuantized", [table, places, scales, zero], given=[1], block_size=16, bits=bits, gather_axis=0, quantize_axis=1)


def products(c):
    a, b = f(2, 3, 4), f(2, 4, 5)
    t = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))  # noqa: E731
    c.add("fused_matmul", "FusedMatMul", [a, b], given=2, alpha=0.5)
    c.add("fused_matmul_a", "FusedMatMul", [t(a), b], given=2, transA=1)
    c.add("fused_matmul_b", "FusedMatMul", [a, t(b)], given=2, transB=1, alpha=2.0)
    c.add("fused_matmul_batch_a", "FusedMatMul", [np.ascontiguousarray(a.transpose(1, 0, 2)), b], given=2, transBatchA=1)
    c.add("fused_matmul_batch_b", "FusedMatMul", [a, np.ascontiguousarray(b.transpose(1, 0, 2))], given=2, transBatchB=1)
    c.add("fused_matmul_batch_ab", "FusedMatMul", [np.ascontiguousarray(a.transpose(2, 0, 1)), b], given=2, transBatchA=1, transA=1)
    c.add("transpose_matmul", "TransposeMatMul", [t(a), b], given=2, transA=1)
    z = a @ b
    c.add("fused_matmul_activation", "FusedMatMulActivation", [a, b], given=2, activation="LeakyRelu", activation_alpha=0.2, expect=np.where(z < 0, z * np.float32(0.2), z))
    for activation, extra in [("Relu", {}), ("LeakyRelu", dict(activation_alpha=0.2)), ("Tanh", {}), ("Sigmoid", {}), ("HardSigmoid", dict(activation_alpha=0.3, activation_beta=0.4))]:
        c.add(f"fused_gemm_{activation}", "FusedGemm", [f(3, 4), f(4, 5), f(5)], activation=activation, **extra)
    x, w, bias = f(1, 3, 5, 5), f(4, 3, 3, 3), f(4)
    for activation, params in [("Relu", []), ("LeakyRelu", [0.2]), ("Sigmoid", []), ("Tanh", []), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.2, 0.5])]:
        extra = dict(activation_params=params) if params else {}
        c.add(f"fused_conv_{activation}", "FusedConv", [x, w, bias], activation=activation, pads=[1, 1, 1, 1], **extra)
    c.add("fused_conv_sum", "FusedConv", [x, w, bias, f(1, 4, 3, 3)], given=[0, 3], activation="Relu")


def quantized(c):
    q8 = lambda *s: ints(0, 256, s, np.uint8)  # noqa: E731
    s8 = lambda *s: ints(-128, 128, s, np.int8)  # noqa: E731
    scale = lambda x: np.array(x, np.float32)  # noqa: E731
    u = lambda x: np.array(x, np.uint8)  # noqa: E731
    i = lambda x: np.array(x, np.int8)  # noqa: E731
    a, b = q8(2, 3, 4), q8(2, 3, 4)
    c.add("q_add", "QLinearAdd", [a, scale(0.1), u(120), b, scale(0.07), u(3), scale(0.15), u(100)], given=[0, 3])
    c.add("q_add_signed", "QLinearAdd", [s8(2, 3), scale(0.1), i(12), s8(2, 1), scale(0.07), i(-3), scale(0.15), i(10)], given=[0, 3])
    c.add("q_mul", "QLinearMul", [a, scale(0.1), u(120), b, scale(0.07), u(3), scale(0.5), u(100)], given=[0, 3])
    c.add("q_sigmoid", "QLinearSigmoid", [a, scale(0.05), u(128), scale(1 / 255), u(0)])
    c.add("q_leaky", "QLinearLeakyRelu", [a, scale(0.05), u(128), scale(0.04), u(30)], alpha=0.2)
    c.add("q_concat", "QLinearConcat", [scale(0.1), u(100), q8(2, 3), scale(0.1), u(100), q8(2, 2), scale(0.2), u(50)], given=[2, 5], axis=1)
    image = q8(1, 2, 4, 4)
    c.add("q_pool", "QLinearAveragePool", [image, scale(0.1), u(128), scale(0.08), u(120)], kernel_shape=[2, 2], strides=[2, 2])
    c.add("q_pool_padded", "QLinearAveragePool", [image, scale(0.1), u(128), scale(0.08), u(120)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    c.add("q_pool_nhwc", "QLinearAveragePool", [q8(1, 4, 4, 2), scale(0.1), u(128), scale(0.08), u(120)], kernel_shape=[2, 2], channels_last=1)
    c.add("q_global_pool", "QLinearGlobalAveragePool", [image, scale(0.1), u(128), scale(0.05), u(120)])
    c.add("q_global_pool_nhwc", "QLinearGlobalAveragePool", [q8(1, 4, 4, 2), scale(0.1), u(128), scale(0.05), u(120)], channels_last=1)
    c.add("q_softmax", "QLinearSoftmax", [a, scale(0.05), u(128), scale(1 / 255), u(0)], axis=-1, opset=13)
    c.add("q_where", "QLinearWhere", [np.array([[True, False, True]]), q8(2, 3), scale(0.1), u(100), q8(2, 3), scale(0.2), u(50), scale(0.3), u(20)], given=[0, 1, 4])
    c.add("q_gemm", "QGemm", [q8(3, 4), scale(0.1), u(120), s8(4, 5), scale(0.05), i(3), ints(-50, 50, 5), scale(0.2), u(128)])
    c.add("q_gemm_float", "QGemm", [q8(3, 4), scale(0.1), u(120), s8(5, 4), f(5) * f(5) * 0.1 + 0.01, i([0] * 5), ints(-50, 50, 5)], transB=1)
    c.add("q_conv", "QLinearConv", [q8(1, 5, 5, 3), scale(0.1), u(120), s8(4, 3, 3, 3), scale(0.05), i(0), scale(0.8), u(128), ints(-50, 50, 4)], channels_last=1)
    c.add("q_matmul_float", "MatMulIntegerToFloat", [q8(2, 3, 4), s8(4, 5), scale(0.1), scale(0.05), u(120), i(3), f(5)])
    c.add("q_matmul_float_columns", "MatMulIntegerToFloat", [q8(3, 4), s8(4, 5), scale(0.1), np.abs(f(5)), u(7), s8(5)])
    c.add("q_matmul_dynamic", "DynamicQuantizeMatMul", [f(2, 3, 4), s8(4, 5), scale(0.05), i(3), f(5)])
    c.add("q_matmul_dynamic_columns", "DynamicQuantizeMatMul", [f(3, 4), q8(4, 5), np.abs(f(5)), q8(5)])
    H, N = 8, 2
    c.add("q_attention", "QAttention", [q8(2, 4, H), s8(H, 3 * H), f(3 * H), scale(0.02), scale(0.03), np.array([4, 2], np.int32), u(128), i(0)], given=[0, 5], num_heads=N)
    c.add("q_attention_causal", "QAttention", [q8(2, 4, H), s8(H, 3 * H), f(3 * H), scale(0.02), np.abs(f(3 * H)) * 0.05, None, u(128), s8(3 * H)], num_heads=N, unidirectional=1)
    c.add("q_dequantize", "DequantizeLinear", [q8(2, 3), scale(0.1), u(100)])
    c.add("q_dequantize_constant", "DequantizeLinear", [s8(2, 3), np.abs(f(3)), s8(3)], given=0, axis=1)
    c.add("q_dequantize_16", "DequantizeLinear", [ints(0, 65536, (2, 3), np.uint16), scale(0.001), np.array(32768, np.uint16)], given=0)
    c.add("q_quantize", "QuantizeLinear", [f(2, 3), scale(0.02), u(100)])
    c.add("q_quantize_signed", "QuantizeLinear", [f(2, 3), np.abs(f(3)) * 0.05, i([0, 1, -2])], axis=1)
    ids, types, mask = ints(0, 10, (2, 4)), ints(0, 2, (2, 4)), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    parts = [q8(10, 8), q8(6, 8), q8(2, 8), q8(8), q8(8)]
    scales = [scale(0.01 * (k + 1)) for k in range(5)]
    zeros = [u(100 + k) for k in range(5)]
    c.add("q_embed", "QEmbedLayerNormalization", [ids, types, *parts, mask, *scales, *zeros], given=[0, 1, 7], n_out=2)
    c.add("nhwc_max_pool", "NhwcMaxPool", [q8(1, 4, 4, 2)], kernel_shape=[2, 2], strides=[2, 2])


def others(c):
    c.add("trilu", "Trilu", [f(3, 4), np.array(1, np.int64)], upper=0)
    c.add("expand_dims", "ExpandDims", [f(3, 4), np.array(1, np.int32)])
    c.add("pad", "Pad", [f(2, 3), np.array([0, 1, 0, 2], np.int64), np.array(0.5, np.float32)], mode="constant")
    c.add("range", "Range", [np.array(1, np.int32), np.array(9, np.int32), np.array(3, np.int32)], given=0)
    c.add("gather_nd", "GatherND", [f(3, 4), np.array([[0, 1], [2, 3]], np.int64)])


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "crates/testing/data/onnx_contrib"
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.onnx"), *folder.glob("*.npz")]:
        old.unlink()
    cases = Cases(folder)
    for make in (activations, norms, attentions, group_query, rotaries, low_bits, products, quantized, others):
        make(cases)
    for name, why in cases.refused:
        print(f"ONNX Runtime does not run {name}: {why}")
    n_bytes = sum(p.stat().st_size for p in folder.iterdir())
    print(f"{cases.n} cases, {n_bytes} bytes")


if __name__ == "__main__":
    main()
