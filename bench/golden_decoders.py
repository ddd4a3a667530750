#!/usr/bin/env python3
"""Tiny random decoders of every family we read, with what `transformers` computes for them.

usage: golden_decoders.py OUTPUT_FOLDER [NAME ...]   (committed as crates/testing/data/decoders)

Also tokenizer.json, whose token N is the word tN. For each a folder: config.json, model.safetensors and golden.npz, which holds input_ids (int32 [1, N]), the
output of every layer (`layer_0_output` …, float32 [1, N, hidden]), `last_hidden_state` (after the last norm),
`logits` and `greedy` (int32 [1, M]: what greedy generation adds to the first four ids).
Weights are seeded, but are only equal between runs of one version of torch.
Needs: pip install torch transformers safetensors numpy (made with torch 2.15, transformers 5.24)
"""
import json
import pathlib
import sys

import numpy as np
import tokenizers
import torch
import transformers as t

N, PROMPT, VOCAB = 12, 4, 96
USUAL = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
GQA = dict(USUAL, num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=16,
            short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0])
DECODERS = {
    "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                             bos_token_id=1, eos_token_id=2)),
    "llama": (t.LlamaForCausalLM, t.LlamaConfig(**GQA, rope_parameters=LLAMA3)),
    "llama-bias-tied": (t.LlamaForCausalLM, t.LlamaConfig(
        **USUAL, num_key_value_heads=4, head_dim=12, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters=YARN)),
    "mistral": (t.MistralForCausalLM, t.MistralConfig(**GQA, sliding_window=5, rope_parameters=LINEAR)),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(**GQA, tie_word_embeddings=True, use_sliding_window=True,
                                                sliding_window=5, max_window_layers=1)),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(**GQA, head_dim=16)),
    "gemma": (t.GemmaForCausalLM, t.GemmaConfig(**GQA, head_dim=16)),
    "gemma2": (t.Gemma2ForCausalLM, t.Gemma2Config(**GQA, head_dim=16, sliding_window=5, query_pre_attn_scalar=24,
                                                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig(
        **GQA, head_dim=16, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=16, rope_parameters={
            "full_attention": dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
            "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
    "phi": (t.PhiForCausalLM, t.PhiConfig(
        **GQA, partial_rotary_factor=0.5, qk_layernorm=True, tie_word_embeddings=True)),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config(**GQA, sliding_window=7)),
    "phi3-long": (t.Phi3ForCausalLM, t.Phi3Config(**GQA, original_max_position_embeddings=16, rope_parameters=LONG)),
}


def layers_of(model):
    base = model.transformer if hasattr(model, "transformer") else model.model
    return base.h if hasattr(base, "h") else base.layers


def make(name, folder):
    torch.manual_seed(sum(name.encode()))
    model_class, config = DECODERS[name]
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    with torch.no_grad():
        # Initial weights are so small that every layer is nearly the identity; biases are zero.
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
    ids = torch.randint(3, VOCAB, (1, N))
    made = {}

    def keep(i):
        def hook(_module, _inputs, output):
            made[f"layer_{i}_output"] = output[0] if isinstance(output, tuple) else output
        return hook

    hooks = [layer.register_forward_hook(keep(i)) for i, layer in enumerate(layers_of(model))]
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, use_cache=False)
        [h.remove() for h in hooks]
        made["last_hidden_state"] = out.hidden_states[-1]
        made["logits"] = out.logits
        greedy = model.generate(ids[:, :PROMPT], attention_mask=torch.ones(1, PROMPT, dtype=torch.long),
                                max_new_tokens=N - PROMPT, do_sample=False, pad_token_id=0)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config_file = folder / "config.json"
    config_file.write_text(json.dumps(json.loads(config_file.read_text()), indent=2, sort_keys=True) + "\n")
    arrays = {k: v.float().numpy() for k, v in made.items()}
    np.savez(folder / "golden.npz", input_ids=ids.int().numpy(), greedy=greedy[:, PROMPT:].int().numpy(), **arrays)


def words(file):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(file))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    words(pathlib.Path(sys.argv[1]) / "tokenizer.json")
    for name in sys.argv[2:] or DECODERS:
        make(name, pathlib.Path(sys.argv[1]) / name)
