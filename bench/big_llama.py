#!/usr/bin/env python3
"""Compiles a random Llama of a given size, and says how fast and in how much memory.

usage: big_llama.py [--layers N] [--russet PATH] [--keep FOLDER] [--proof]

Writes the model as people publish them, sharded bf16 safetensors (Llama 3.2 1B's sizes: 2048 wide, 16 layers, 32 heads
on 8, 8192 intermediate, 128256 tokens, tied), compiles it, and prints seconds and peak memory beside those of copying
the files. The second model has three weights beyond fp16, which must be named.
Needs: pip install numpy
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, DIM, VOCAB = 2048, 8192, 32, 8, 64, 128256
SHARD_BYTES = 1_000_000_000


def shapes(n_layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(n_layers):
        at = f"model.layers.{i}."
        for name, shape in [
            ("self_attn.q_proj", (HEADS * DIM, HIDDEN)), ("self_attn.k_proj", (KV_HEADS * DIM, HIDDEN)),
            ("self_attn.v_proj", (KV_HEADS * DIM, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HEADS * DIM)),
            ("mlp.gate_proj", (INTERMEDIATE, HIDDEN)), ("mlp.up_proj", (INTERMEDIATE, HIDDEN)),
            ("mlp.down_proj", (HIDDEN, INTERMEDIATE)), ("input_layernorm", (HIDDEN,)),
            ("post_attention_layernorm", (HIDDEN,)),
        ]:
            yield f"{at}{name}.weight", shape
    yield "model.norm.weight", (HIDDEN,)


def weights(name, shape, rng, too_large):
    """bf16 as uint16: the upper half of float32."""
    if len(shape) == 1:
        x = np.ones(shape, np.float32)
    else:
        x = rng.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
    if name in too_large:
        x.flat[7] = 1e5
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def write_shard(file, tensors):
    header, at = {}, 0
    for name, x in tensors:
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, x in tensors:
            x.tofile(f)


def write_model(folder, n_layers, too_large=()):
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True)
    config = dict(
        model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=HIDDEN, intermediate_size=INTERMEDIATE,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM, num_hidden_layers=n_layers,
        vocab_size=VOCAB, max_position_embeddings=131072, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=True,
        torch_dtype="bfloat16", bos_token_id=128000, eos_token_id=128001, rope_theta=500000.0,
        rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=8192))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    all_shapes = list(shapes(n_layers))
    groups, size = [[]], 0
    for name, shape in all_shapes:
        n = 2 * int(np.prod(shape))
        if groups[-1] and size + n > SHARD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append((name, shape))
        size += n
    index = {}
    for i, group in enumerate(groups):
        file = f"model-{i + 1:05}-of-{len(groups):05}.safetensors"
        write_shard(folder / file, [(n, weights(n, s, rng, too_large)) for n, s in group])
        index.update({n: file for n, _ in group})
    total = sum(2 * int(np.prod(s)) for _, s in all_shapes)
    (folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=total), weight_map=index)))
    return total


def run(command):
    """Seconds, and the peak of resident memory in bytes."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    return time.perf_counter() - start, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status), out.decode(), err.decode()


def copy_seconds(folder, to):
    """Reading every byte and writing as many, synced: what a disk can do."""
    start = time.perf_counter()
    to.mkdir()
    for file in folder.iterdir():
        shutil.copyfile(file, to / file.name)
    seconds = time.perf_counter() - start
    shutil.rmtree(to)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--russet", default=str(pathlib.Path(__file__).resolve().parent.parent / "target/release/russet"))
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--proof", action="store_true", help="also compile with proof")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = args.keep or pathlib.Path(temporary)
        model = base / "llama"
        n_bytes = write_model(model, args.layers) if not model.exists() else sum(f.stat().st_size for f in model.glob("*.safetensors"))
        print(f"{n_bytes / 2e9:.2f} B parameters, {n_bytes / 1e9:.2f} GB of bf16 in {len(list(model.glob('*.safetensors')))} files")
        out = base / "llama.mlpackage"
        copied = copy_seconds(model, base / "copy")
        print(f"copying the files        {copied:6.1f} s")
        for more in [["--no-proof"]] + ([[]] if args.proof else []):
            s, peak, code, text, err = run([args.russet, "compile", str(model), "-o", str(out), "--quiet", *more])
            if code:
                sys.exit(err)
            print(f"russet compile {' '.join(more):10} {s:6.1f} s, {s / copied:.2f}x the copy, peak memory {peak / 1e6:.0f} MB")
            print("  " + text.splitlines()[-3])
        shutil.rmtree(out)
        bad = base / "overflowing"
        names = ("model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight")
        if not bad.exists():
            write_model(bad, 2, names)
        _, _, code, text, err = run([args.russet, "compile", str(bad), "-o", str(out), "--no-proof", "--quiet"])
        print(f"with weights beyond fp16: exit code {code}")
        print("\n".join("  " + line for line in (text + err).splitlines() if "fp16" in line or any(n.removesuffix(".weight") in line for n in names)))


if __name__ == "__main__":
    main()
