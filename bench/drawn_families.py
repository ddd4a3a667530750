#!/usr/bin/env python3
"""Text encoders, vision, speech and diffusion models of drawn configurations: outputs by us and by their own code.

usage: drawn_families.py [FIRST_SEED] [COUNT] [--russet PATH] [--only FAMILY]     (default 1 60)

Each seed draws a family and its sizes, saves it (in fp32, bf16 or fp16) with random weights, runs both on the same inputs, and in half of
the cases compiles it with proof. Prints what is more than 1e-4 (of the largest number) away.
Needs: pip install torch transformers diffusers numpy
"""
import argparse
import collections
import pathlib
import random
import subprocess
import tempfile

import diffusers
import numpy as np
import torch
import transformers as t

BOUND = 1e-4
FUNCTIONS = {"clip": "image", "siglip": "image", "whisper": "encoder"}


def hidden(out):
    return {"logits": out.logits} if hasattr(out, "logits") else {"last_hidden_state": out.last_hidden_state}


def usual(r):
    heads = r.choice([1, 2, 3, 4])
    return dict(hidden_size=heads * r.choice([8, 12]), num_hidden_layers=r.choice([1, 2, 3]), num_attention_heads=heads,
                intermediate_size=r.choice([24, 40]))


def text(r, family):
    ids = torch.randint(2, 60, (1, 11))
    inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    sizes = usual(r)
    if family == "distilbert":
        model = t.DistilBertModel(t.DistilBertConfig(vocab_size=60, max_position_embeddings=40, dim=sizes["hidden_size"], n_layers=sizes["num_hidden_layers"],
                                                     n_heads=sizes["num_attention_heads"], hidden_dim=sizes["intermediate_size"]))
    elif family == "t5":
        model = t.T5EncoderModel(t.T5Config(
            vocab_size=60, d_model=sizes["hidden_size"], num_layers=sizes["num_hidden_layers"], num_heads=sizes["num_attention_heads"],
            d_kv=r.choice([6, 8]), d_ff=sizes["intermediate_size"], feed_forward_proj=r.choice(["relu", "gated-gelu", "gated-silu"]),
            relative_attention_num_buckets=r.choice([8, 32]), relative_attention_max_distance=r.choice([20, 128])))
    else:
        name = {"bert": "Bert", "roberta": "Roberta", "mpnet": "MPNet"}[family]
        config = getattr(t, name + "Config")(vocab_size=60, max_position_embeddings=40, hidden_act=r.choice(["gelu", "relu", "gelu_new", "silu"]),
                                             layer_norm_eps=r.choice([1e-12, 1e-5]), **sizes)
        model = getattr(t, name + "Model")(config)
    return model, inputs, lambda: hidden(model(**inputs)), ["--seq", "11"]


def vision(r, family):
    patch = r.choice([4, 8])
    common = dict(image_size=patch * r.choice([2, 3]), patch_size=patch, hidden_act=r.choice(["gelu", "relu"]), qkv_bias=r.random() < 0.5)
    sizes = usual(r)
    if family == "dinov2":
        del sizes["intermediate_size"]
        model = t.Dinov2Model(t.Dinov2Config(**sizes, **common, mlp_ratio=r.choice([2, 4]), use_swiglu_ffn=r.random() < 0.5))
    elif family == "deit":
        model = t.DeiTModel(t.DeiTConfig(**sizes, **common), add_pooling_layer=False)
    else:
        config = t.ViTConfig(**sizes, **common, num_labels=5, num_channels=r.choice([1, 3]))
        model = t.ViTForImageClassification(config) if r.random() < 0.5 else t.ViTModel(config, add_pooling_layer=r.random() < 0.5)
    inputs = dict(pixel_values=torch.randn(1, model.config.num_channels, common["image_size"], common["image_size"]))
    return model, inputs, lambda: hidden(model(**inputs)), []


def pairs(r, family):
    patch, sizes = r.choice([4, 8]), usual(r)
    acts = ["quick_gelu", "gelu"]
    size = patch * r.choice([2, 3])
    words = dict(sizes, vocab_size=60, hidden_act=r.choice(acts), max_position_embeddings=12)
    sees = dict(usual(r) if family == "clip" else sizes, image_size=size, patch_size=patch, hidden_act=r.choice(acts))
    if family == "clip":
        words.update(bos_token_id=0, eos_token_id=59)
        model = t.CLIPModel(t.CLIPConfig(text_config=words, vision_config=sees, projection_dim=r.choice([8, 20])))
    else:
        words.update(projection_size=sizes["hidden_size"])
        model = t.SiglipModel(t.SiglipConfig(text_config=words, vision_config=sees))
    inputs = dict(pixel_values=torch.randn(1, 3, size, size))

    def run():
        out = model.get_image_features(**inputs)
        out = getattr(out, "pooler_output", out)
        return {"image_embeds": out / out.norm(dim=-1, keepdim=True)}
    return model, inputs, run, []


def speech(r, family):
    sizes = usual(r)
    if family == "whisper":
        both = {f"{side}_{name}": sizes[key] for side in ("encoder", "decoder")
                for name, key in (("layers", "num_hidden_layers"), ("attention_heads", "num_attention_heads"), ("ffn_dim", "intermediate_size"))}
        config = t.WhisperConfig(vocab_size=60, d_model=sizes["hidden_size"], **both, num_mel_bins=r.choice([80, 128]), max_source_positions=20,
                                 max_target_positions=24, activation_function=r.choice(["gelu", "relu"]), pad_token_id=0, bos_token_id=1, eos_token_id=2,
                                 decoder_start_token_id=3)
        model = t.WhisperForConditionalGeneration(config)
        inputs = dict(input_features=torch.randn(1, config.num_mel_bins, 40))
        return model, inputs, lambda: hidden(model.model.encoder(**inputs)), []
    common = dict(sizes, vocab_size=20, conv_dim=[12, 12], conv_kernel=[r.choice([8, 10]), 3], conv_stride=[r.choice([4, 5]), 2],
                  num_feat_extract_layers=2, conv_bias=r.random() < 0.5, feat_extract_norm=r.choice(["group", "layer"]),
                  num_conv_pos_embeddings=r.choice([8, 5]), num_conv_pos_embedding_groups=2, hidden_act=r.choice(["gelu", "relu"]))
    name = {"wav2vec2": "Wav2Vec2", "hubert": "Hubert", "conformer": "Wav2Vec2Conformer"}[family]
    if family == "conformer":
        common.update(position_embeddings_type=r.choice(["relative", "rotary", None]), conv_depthwise_kernel_size=r.choice([5, 9]))
    else:
        common.update(do_stable_layer_norm=r.random() < 0.5)
    config = getattr(t, name + "Config")(**common)
    model = getattr(t, name + r.choice(["Model", "ForCTC"]))(config)
    inputs = dict(input_values=torch.randn(1, 400))
    return model, inputs, lambda: hidden(model(**inputs)), ["--seq", "400"]


def diffusion(r, family):
    heads, size, layers = r.choice([1, 2, 3, 4]), r.choice([4, 8]), r.choice([1, 2, 3])
    common = dict(num_attention_heads=heads, attention_head_dim=8, num_layers=layers, sample_size=size, patch_size=2)
    if family == "dit":
        channels = r.choice([3, 4])
        model = diffusers.DiTTransformer2DModel(**common, in_channels=channels, num_embeds_ada_norm=10)
        inputs = dict(hidden_states=torch.randn(1, channels, size, size), timestep=torch.tensor([r.choice([3, 500])]), class_labels=torch.tensor([4]))
        return model, inputs, lambda: {"sample": model(**inputs).sample}, []
    width = r.choice([10, 16])
    model = diffusers.PixArtTransformer2DModel(**common, in_channels=4, out_channels=8, cross_attention_dim=heads * 8, caption_channels=width)
    inputs = dict(hidden_states=torch.randn(1, 4, size, size), timestep=torch.tensor([77]), encoder_hidden_states=torch.randn(1, 7, width),
                  encoder_attention_mask=torch.tensor([[1] * 5 + [0] * 2]))
    return model, inputs, lambda: {"sample": model(**inputs, added_cond_kwargs=dict(resolution=None, aspect_ratio=None)).sample}, ["--seq", "7"]


FAMILIES = {**dict.fromkeys(["bert", "roberta", "distilbert", "mpnet", "t5"], text), **dict.fromkeys(["vit", "deit", "dinov2"], vision),
            **dict.fromkeys(["clip", "siglip"], pairs), **dict.fromkeys(["wav2vec2", "hubert", "conformer", "whisper"], speech),
            **dict.fromkeys(["dit", "pixart"], diffusion)}
# Their tables are no weights: rounded with the model, they are another model.
WIDE = ("dit", "pixart", "conformer")


def one(seed, family, r, folder, russet):
    model, inputs, run, shapes = FAMILIES[family](r, family)
    model = model.eval()
    dtype = torch.float32 if family in WIDE else r.choice([torch.float32, torch.bfloat16, torch.float16])
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
        model.to(dtype).save_pretrained(folder)
        model.to(torch.float32)
        expected = run()
    given = {k: (v.int() if v.dtype == torch.int64 else v.float()).numpy() for k, v in inputs.items()}
    np.savez(folder / "in.npz", **given)
    done = subprocess.run([russet, "run", folder, "--inputs", folder / "in.npz", "-o", folder / "out.npz", "--function", FUNCTIONS.get(family, "main"), *shapes],
                          capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    made = np.load(folder / "out.npz")
    for name, x in expected.items():
        x = x.numpy()
        moved = np.abs(made[name].reshape(x.shape) - x).max() / max(1e-6, np.abs(x).max())
        if not moved < BOUND:
            return f"{name} is {moved:.1e} away"
    if r.random() < 0.5:
        done = subprocess.run([russet, "compile", folder, "-o", folder / "out.mlpackage", *shapes], capture_output=True, text=True)
        if done.returncode:
            return done.stderr
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, nargs="?", default=1)
    parser.add_argument("count", type=int, nargs="?", default=60)
    parser.add_argument("--russet", default=str(pathlib.Path(__file__).resolve().parent.parent / "target/release/russet"))
    parser.add_argument("--only", choices=FAMILIES)
    args = parser.parse_args()
    t.logging.set_verbosity_error()
    diffusers.logging.set_verbosity_error()
    tried, wrong = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(args.first, args.first + args.count):
            r = random.Random(seed)
            torch.manual_seed(seed)
            family = args.only or r.choice(list(FAMILIES))
            said = one(seed, family, r, pathlib.Path(temporary) / str(seed), args.russet)
            tried[family] += 1
            if said:
                wrong += 1
                print(f"seed {seed}, {family}: {said}", flush=True)
    print(f"{sum(tried.values())} models, {wrong} differ: {dict(sorted(tried.items()))}")


if __name__ == "__main__":
    main()
