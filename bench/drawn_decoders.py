#!/usr/bin/env python3
"""Decoders of drawn configurations: greedy text by us and by `transformers`.

usage: drawn_decoders.py [FIRST_SEED] [COUNT] [--russet PATH]     (default 1 60)

Each seed draws a family, sizes, biases, norms, windows, a rope variant in the old or the new form, a dtype, shards, a cache
and a chunk; four in ten are also compiled with proof. Prints what differs, and how many do.
Needs: pip install torch transformers tokenizers
"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import tokenizers
import torch
import transformers as t

VOCAB = 96


def rope(r, dim):
    kind = r.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope", None])
    base = dict(rope_type=kind, rope_theta=r.choice([10000.0, 500000.0, 1000.0]))
    original = dict(original_max_position_embeddings=16)
    more = {
        "linear": dict(factor=r.choice([2.0, 3.5])), "dynamic": dict(factor=2.0),
        "yarn": dict(factor=4.0, **original, **r.choice([{}, dict(beta_fast=16.0, beta_slow=2.0), dict(attention_factor=1.3)])),
        "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, **original),
        "longrope": dict(factor=4.0, **original, short_factor=[1.0 + 0.1 * i for i in range(dim // 2)],
                         long_factor=[1.5 + 0.5 * i for i in range(dim // 2)]),
    }
    return dict(base, **more.get(kind, {})) if kind else None


def draw(r):
    family = r.choice(["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi", "phi3", "gpt2"])
    kv = r.choice([1, 2, 3])
    heads, dim = kv * r.choice([1, 2, 3]), r.choice([8, 12, 16])
    hidden = heads * dim if family in ("qwen2", "phi", "phi3", "gpt2") else r.choice([24, 32, 40])
    base = dict(vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads,
                num_key_value_heads=kv, intermediate_size=r.choice([20, 48, 64]), max_position_embeddings=64, bos_token_id=1,
                eos_token_id=2, pad_token_id=0, tie_word_embeddings=r.random() < 0.5)
    rotary, coin = rope(r, dim), lambda: r.random() < 0.5
    scalar = dict(sliding_window=4, query_pre_attn_scalar=r.choice([16, 24]))
    match family:
        case "llama":
            made = t.LlamaForCausalLM, t.LlamaConfig(**base, head_dim=dim, attention_bias=coin(), mlp_bias=coin(), rms_norm_eps=r.choice([1e-5, 1e-2]),
                                                     hidden_act=r.choice(["silu", "gelu", "relu", "gelu_pytorch_tanh"]), rope_parameters=rotary)
        case "mistral":
            made = t.MistralForCausalLM, t.MistralConfig(**base, head_dim=dim, sliding_window=r.choice([None, 3, 6]), rope_parameters=rotary)
        case "qwen2":
            made = t.Qwen2ForCausalLM, t.Qwen2Config(**base, use_sliding_window=coin(), sliding_window=4, max_window_layers=r.choice([0, 1, 2]),
                                                     rope_parameters=rotary)
        case "qwen3":
            made = t.Qwen3ForCausalLM, t.Qwen3Config(**base, head_dim=dim, attention_bias=coin(), rope_parameters=rotary)
        case "gemma":
            made, rotary = (t.GemmaForCausalLM, t.GemmaConfig(**base, head_dim=dim)), None
        case "gemma2":
            made, rotary = (t.Gemma2ForCausalLM, t.Gemma2Config(**base, head_dim=dim, **scalar, attn_logit_softcapping=r.choice([None, 2.0, 50.0]),
                                                                final_logit_softcapping=r.choice([None, 5.0]))), None
        case "gemma3":
            made, rotary = (t.Gemma3ForCausalLM, t.Gemma3TextConfig(**base, head_dim=dim, **scalar)), None
        case "phi":
            made, rotary = (t.PhiForCausalLM, t.PhiConfig(**base, partial_rotary_factor=r.choice([0.5, 1.0]), qk_layernorm=coin(),
                                                          hidden_act=r.choice(["gelu_new", "relu"]))), None
        case "phi3":
            rotary = rotary if rotary and rotary["rope_type"] in ("default", "longrope") else None
            original = 16 if rotary and rotary["rope_type"] == "longrope" else 64
            made = t.Phi3ForCausalLM, t.Phi3Config(**base, original_max_position_embeddings=original, sliding_window=r.choice([None, 5]),
                                                   rope_parameters=rotary)
        case _:
            made, rotary = (t.GPT2LMHeadModel, t.GPT2Config(vocab_size=VOCAB, n_embd=hidden, n_layer=base["num_hidden_layers"], n_head=heads,
                                                            n_positions=64, n_inner=r.choice([None, 40]), bos_token_id=1, eos_token_id=2,
                                                            activation_function=r.choice(["gelu_new", "relu", "gelu"]))), None
    # Between the two lists of longrope `transformers` changes within a text: stay below it.
    context = 16 if rotary and rotary["rope_type"] == "longrope" else 40
    return family, made, context


def old_form(config):
    """The config as older versions of transformers wrote it."""
    rotary = config.get("rope_parameters") or {}
    if "rope_theta" not in rotary:
        return config
    config = {k: v for k, v in config.items() if k != "rope_parameters"}
    rotary = dict(rotary)
    config["rope_theta"] = rotary.pop("rope_theta")
    if "partial_rotary_factor" in rotary:
        config["partial_rotary_factor"] = rotary.pop("partial_rotary_factor")
    if rotary.get("rope_type") != "default":
        config["rope_scaling"] = rotary
    return config


def one(seed, folder, russet, tokenizer):
    r = random.Random(seed)
    torch.manual_seed(seed)
    try:
        family, (model_class, config), context = draw(r)
        config._attn_implementation = "eager"
        model = model_class(config).eval()
    except Exception as e:
        if "alidation" not in type(e).__name__ + str(e):
            raise
        return None
    dtype = r.choice([torch.float32, torch.bfloat16, torch.float16])
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    model.to(dtype).save_pretrained(folder, max_shard_size=r.choice(["20KB", "5GB"]))
    model = model.to(torch.float32)
    if r.random() < 0.5:
        file = folder / "config.json"
        file.write_text(json.dumps(old_form(json.loads(file.read_text()))))
    ids = torch.randint(3, VOCAB, (1, r.choice([1, 2, 5, 9])))
    n = min(12, context - ids.shape[1])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=0)
    theirs = [i for i in out[0, ids.shape[1]:].tolist() if i != 2]
    shapes = ["--context", str(context), "--seq", str(r.choice([1, 3, 4])), "--cache", r.choice(["state", "io"])]
    text = " ".join(f"t{i}" for i in ids[0].tolist())
    done = subprocess.run([russet, "run", folder, "--tokenizer", tokenizer, "--text", text, "--max-tokens", str(n), "--json", *shapes],
                          capture_output=True, text=True)
    if done.returncode:
        return f"{family}: {done.stdout}{done.stderr}"
    ours = json.loads(done.stdout)["generated"][0]["ids"]
    if ours != theirs:
        return f"{family} {shapes}: {ours}, expected {theirs}"
    if r.random() < 0.4:
        done = subprocess.run([russet, "compile", folder, "-o", folder / "out.mlpackage", *shapes], capture_output=True, text=True)
        if done.returncode:
            return f"{family} {shapes}: {done.stderr}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=1)
    parser.add_argument("count", type=int, nargs="?", default=60)
    parser.add_argument("--russet", default=str(pathlib.Path(__file__).resolve().parent.parent / "target/release/russet"))
    args = parser.parse_args()
    t.logging.set_verbosity_error()
    wrong = tried = 0
    with tempfile.TemporaryDirectory() as temporary:
        tokenizer = pathlib.Path(temporary) / "tokenizer.json"
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        words.save(str(tokenizer))
        for seed in range(args.first, args.first + args.count):
            said = one(seed, pathlib.Path(temporary) / str(seed), args.russet, tokenizer)
            tried += said is not None
            if said:
                wrong += 1
                print(f"seed {seed}: {said}", flush=True)
    print(f"{tried} decoders, {wrong} differ")


if __name__ == "__main__":
    main()
