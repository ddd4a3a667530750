#!/usr/bin/env python3
"""GGUF files for tests: some of the tiny decoders, and one with every quantized type.

usage: golden_gguf.py DECODERS_FOLDER OUTPUT_FOLDER     (crates/testing/data/decoders, crates/testing/data/gguf)

Decoders are written as llama.cpp's converter does it: rows of Llama's queries and keys in its order, one added to
Gemma's norms, rope factors as tensors. `types.gguf` holds random blocks of every type, `types.npz` what the `gguf`
package makes of them. Needs: pip install gguf safetensors numpy
"""
import json
import math
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

MODULES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
SANDWICH = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm"}
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Where the fp16 scales of a block are: random bits there would be NaN.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def permuted(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def rope_factors(rope, dim):
    freqs = rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    out = []
    for f in freqs:
        length, original = 2 * math.pi / f, rope["original_max_position_embeddings"]
        if length < original / rope["high_freq_factor"]:
            out.append(1.0)
        elif length > original / rope["low_freq_factor"]:
            out.append(rope["factor"])
        else:
            smooth = (original / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(out, np.float32)


def decoder(folder, file, name):
    config = json.loads((folder / "config.json").read_text())
    arch = {"gemma3_text": "gemma3"}.get(config["model_type"], config["model_type"])
    w = gguf.GGUFWriter(file, arch)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if arch == "gemma3":
        w.add_sliding_window(config["sliding_window"])
    if arch == "phi3" and config.get("sliding_window"):
        w.add_sliding_window(config["sliding_window"])
    if rope.get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(rope, dim))
    words(w, config["vocab_size"])
    for key, x in load_file(folder / "model.safetensors").items():
        x = x.astype(np.float32)
        name, end = key.removeprefix("model.").rsplit(".", 1)
        if name.startswith("layers."):
            _, i, module = name.split(".", 2)
            sandwich = SANDWICH if arch == "gemma3" else {"post_attention_layernorm": "ffn_norm"}
            new = f"blk.{i}.{sandwich.get(module) or MODULES[module]}"
        else:
            new = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[name]
        if arch == "llama" and new.endswith(("attn_q", "attn_k")):
            x = permuted(x, heads if new.endswith("q") else kv)
        if arch == "gemma3" and "norm" in new:
            x = x + 1
        w.add_tensor(f"{new}.{end}", x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def words(w, n):
    """A vocabulary of the words t0, t1, … with a space in front, and the letters they are made of."""
    tokens = [f"\u2581t{i}" for i in range(n)]
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([-float(i) for i in range(n)])
    w.add_token_types([1] * n)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(False)


def types(folder):
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(folder / "types.gguf", "none")
    expected = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        n, size = gguf.GGML_QUANT_SIZES[kind]
        rows, blocks = 3, 512 // n
        raw = rng.integers(0, 256, (rows, blocks, size), np.uint8)
        for at in SCALES[name]:
            scale = rng.uniform(-0.1, 0.1, (rows, blocks)).astype(np.float16)
            raw[:, :, at:at + 2] = scale.view(np.uint8).reshape(rows, blocks, 2)
        raw = raw.reshape(rows, -1)
        w.add_tensor(name, raw, raw_dtype=kind)
        expected[name] = gguf.dequantize(raw, kind).astype(np.float32).reshape(rows, 512)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    np.savez(folder / "types.npz", **expected)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name in ["llama", "qwen3", "gemma3", "phi3"]:
        decoder(source / name, out / f"{name}.gguf", name)
    types(out)
