#!/usr/bin/env python3
"""Tiny random models of the families beyond text encoders, with what their own code computes.

usage: golden_families_more.py OUTPUT_FOLDER [NAME…]   (committed as crates/testing/data/families)

For each family a folder: config.json, weights as safetensors and golden.npz. An array of it is called
`FUNCTION.in.NAME` or `FUNCTION.out.NAME`: inputs of a function of our program, and values in it, the output of
every layer among them. Weights are seeded, but are only equal between runs of one version of torch.
Needs: pip install torch transformers diffusers safetensors numpy   (made with 2.15, 5.24, 0.39)
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers as t

HIDDEN, BATCH = 16, 2
SIZES = dict(hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
IMAGE = dict(image_size=16, patch_size=4)
T5 = dict(vocab_size=50, d_model=HIDDEN, d_kv=6, num_heads=2, d_ff=24, num_layers=2, num_decoder_layers=1,
          relative_attention_num_buckets=8, relative_attention_max_distance=10)
WAV = dict(SIZES, vocab_size=12, conv_dim=[8, 8, 8], conv_kernel=[10, 3, 2], conv_stride=[5, 2, 2],
           num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
           mask_time_prob=0.0, mask_feature_prob=0.0)
PARAKEET = dict(SIZES, num_mel_bins=16, subsampling_conv_channels=4, conv_kernel_size=5, num_key_value_heads=2)


class Seen:
    """Keeps what modules return while a model runs."""

    def __init__(self):
        self.values = {}

    def layers(self, modules, before="", transform=lambda x: x):
        for i, m in enumerate(modules):
            self.module(m, f"{before}layer_{i}_output", transform)

    def module(self, m, name, transform=lambda x: x):
        def hook(_, __, out):
            out = out[0] if isinstance(out, tuple) else out
            self.values[name] = transform(out)
        m.register_forward_hook(hook)


def pixels(n=16):
    return torch.randn(BATCH, 3, n, n)


def tokens(n, vocab, pad):
    """Ids and their mask; the second row is padded on the right."""
    ids = torch.randint(pad + 1, vocab, (BATCH, n))
    mask = torch.ones_like(ids)
    mask[1, n - 3:] = 0
    ids[mask == 0] = pad
    return ids, mask


def run(model, seen, function, inputs, outputs, call=None):
    """One function: what goes in, what modules said, and the fields of the result that are outputs."""
    seen.values.clear()
    with torch.no_grad():
        result = (call or model)(**inputs)
    arrays = {f"{function}.in.{k}": v for k, v in inputs.items()}
    arrays |= {f"{function}.out.{k}": v for k, v in seen.values.items()}
    for name in outputs:
        value = result[name] if not callable(outputs[name]) else outputs[name](result)
        arrays[f"{function}.out.{name}"] = value
    return arrays


def named(*names):
    return {n: n for n in names}


def vit(model_class, config, base, outputs, layers):
    model = prepared(model_class(config))
    seen = Seen()
    seen.layers(layers(base(model)))
    return model, run(model, seen, "main", {"pixel_values": pixels()}, named(*outputs))


def make_vit():
    config = t.ViTConfig(**SIZES, **IMAGE, num_labels=3)
    return vit(t.ViTForImageClassification, config, lambda m: m.vit, ["logits"], vit_layers)


def vit_layers(base):
    if hasattr(base, "layers"):
        return base.layers
    return base.encoder.layers if hasattr(base.encoder, "layers") else base.encoder.layer


def make_vit_pooler():
    config = t.ViTConfig(**SIZES, **IMAGE, qkv_bias=False)
    return vit(t.ViTModel, config, lambda m: m, ["last_hidden_state", "pooler_output"], vit_layers)


def make_deit():
    config = t.DeiTConfig(**SIZES, **IMAGE, num_labels=3)
    return vit(t.DeiTForImageClassificationWithTeacher, config, lambda m: m.deit, ["logits"], vit_layers)


def make_dinov2():
    sizes = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
    config = t.Dinov2Config(**sizes, **IMAGE, mlp_ratio=2, layerscale_value=1.0)
    return vit(t.Dinov2Model, config, lambda m: m, ["last_hidden_state", "pooler_output"], vit_layers)


def make_dinov2_swiglu():
    sizes = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
    config = t.Dinov2WithRegistersConfig(**sizes, **IMAGE, mlp_ratio=2, layerscale_value=1.0, use_swiglu_ffn=True,
                                         num_register_tokens=2)
    return vit(t.Dinov2WithRegistersModel, config, lambda m: m, ["last_hidden_state", "pooler_output"], vit_layers)


def inner(model):
    return model.encoder.layers if hasattr(model, "encoder") else model.layers


def unwrapped(model, name):
    m = getattr(model, name)
    return getattr(m, name, m)


def make_clip():
    config = t.CLIPConfig(text_config=dict(SIZES, vocab_size=50, max_position_embeddings=12, eos_token_id=49, bos_token_id=48, pad_token_id=1),
                          vision_config=dict(SIZES, **IMAGE), projection_dim=8)
    model = prepared(t.CLIPModel(config))
    seen = Seen()
    seen.layers(inner(unwrapped(model, "vision_model")))
    seen.layers(inner(unwrapped(model, "text_model")))
    ids, mask = tokens(10, 48, 1)
    ids[0, 9] = 49
    ids[1, 6] = 49
    def normed(x):
        x = x.pooler_output if hasattr(x, "pooler_output") else x
        return x / x.norm(dim=-1, keepdim=True)
    arrays = run(model, seen, "image", {"pixel_values": pixels()}, {"image_embeds": normed}, model.get_image_features)
    arrays |= run(model, seen, "text", {"input_ids": ids, "attention_mask": mask}, {"text_embeds": normed}, model.get_text_features)
    return model, arrays


def make_clip_vision():
    model = prepared(t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(**SIZES, **IMAGE, projection_dim=8, hidden_act="gelu")))
    seen = Seen()
    seen.layers(inner(unwrapped(model, "vision_model")))
    return model, run(model, seen, "image", {"pixel_values": pixels()}, named("image_embeds", "last_hidden_state"))


def make_clip_text():
    # An eos_token_id of 2 is that of old configs: the text ends at the largest id.
    config = t.CLIPTextConfig(**SIZES, vocab_size=50, max_position_embeddings=12, eos_token_id=2, pad_token_id=1)
    model = prepared(t.CLIPTextModel(config))
    seen = Seen()
    seen.layers(inner(getattr(model, "text_model", model)))
    ids, mask = tokens(10, 48, 1)
    ids[0, 8] = 49
    ids[1, 6] = 49
    return model, run(model, seen, "text", {"input_ids": ids, "attention_mask": mask}, named("last_hidden_state", "pooler_output"))


def make_siglip():
    config = t.SiglipConfig(text_config=dict(SIZES, vocab_size=50, max_position_embeddings=12, projection_size=HIDDEN),
                            vision_config=dict(SIZES, **IMAGE))
    model = prepared(t.SiglipModel(config))
    seen = Seen()
    seen.layers(inner(unwrapped(model, "vision_model")))
    seen.layers(inner(unwrapped(model, "text_model")))
    def normed(x):
        x = x.pooler_output if hasattr(x, "pooler_output") else x
        return x / x.norm(dim=-1, keepdim=True)
    arrays = run(model, seen, "image", {"pixel_values": pixels()}, {"image_embeds": normed}, model.get_image_features)
    ids = torch.randint(0, 50, (BATCH, 12))
    arrays |= run(model, seen, "text", {"input_ids": ids}, {"text_embeds": normed}, model.get_text_features)
    return model, arrays


def text_encoder(model, encoder, vocab, pad):
    seen = Seen()
    seen.layers(encoder.block)
    ids, mask = tokens(12, vocab, pad)
    arrays = run(model, seen, "main", {"input_ids": ids, "attention_mask": mask}, named("last_hidden_state"), encoder)
    return model, arrays


def make_t5():
    model = prepared(t.T5EncoderModel(t.T5Config(**T5)))
    return text_encoder(model, model.encoder, 50, 0)


def make_t5_gated():
    model = prepared(t.T5ForConditionalGeneration(t.T5Config(**T5, feed_forward_proj="gated-gelu")))
    return text_encoder(model, model.encoder, 50, 0)


def make_umt5():
    model = prepared(t.UMT5EncoderModel(t.UMT5Config(**T5)))
    return text_encoder(model, model.encoder, 50, 0)


def make_whisper():
    config = t.WhisperConfig(
        vocab_size=60, num_mel_bins=8, d_model=HIDDEN, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32, max_source_positions=20, max_target_positions=14,
        pad_token_id=50, bos_token_id=50, eos_token_id=50, decoder_start_token_id=51, suppress_tokens=[], begin_suppress_tokens=[])
    model = prepared(t.WhisperForConditionalGeneration(config))
    encoder, decoder = model.model.encoder, model.model.decoder
    seen = Seen()
    seen.layers(encoder.layers)
    seen.layers(decoder.layers)
    mel = torch.randn(1, 8, 40)
    arrays = run(model, seen, "encoder", {"input_features": mel}, named("last_hidden_state"), encoder)
    hidden = arrays["encoder.out.last_hidden_state"]
    rows = []
    for layer in decoder.layers:
        attention = layer.encoder_attn
        rows += [p(hidden).view(1, 20, 2, 8).transpose(1, 2) for p in (attention.k_proj, attention.v_proj)]
    arrays["encoder.out.cross_cache"] = torch.cat(rows)
    # The decoder as a whole: what all tokens give at once is what they give one after another.
    ids = torch.randint(0, 60, (1, 9))
    seen.values.clear()
    with torch.no_grad():
        out = model(input_features=mel, decoder_input_ids=ids)
    arrays["decoder.in.input_ids"] = ids
    for i in range(2):
        arrays[f"decoder.out.layer_{i}_output"] = seen.values[f"layer_{i}_output"]
    arrays["decoder.out.logits"] = out.logits
    return model, arrays


def wav2vec2(model, base, output, samples=400):
    seen = Seen()
    seen.layers(base.encoder.layers)
    return model, run(model, seen, "main", {"input_values": torch.randn(BATCH, samples)}, named(output))


def make_wav2vec2():
    model = prepared(t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**WAV)))
    return wav2vec2(model, model.wav2vec2, "logits")


def make_wav2vec2_stable():
    config = t.Wav2Vec2Config(**WAV, feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True)
    model = prepared(t.Wav2Vec2Model(config))
    return wav2vec2(model, model, "last_hidden_state")


def make_hubert():
    config = t.HubertConfig(**WAV, feat_proj_layer_norm=True)
    model = prepared(t.HubertForCTC(config))
    return wav2vec2(model, model.hubert, "logits")


def make_conformer_relative():
    config = t.Wav2Vec2ConformerConfig(**WAV, position_embeddings_type="relative", conv_depthwise_kernel_size=5, hidden_act="swish")
    model = prepared(t.Wav2Vec2ConformerForCTC(config))
    return wav2vec2(model, model.wav2vec2_conformer, "logits")


def make_conformer_rotary():
    config = t.Wav2Vec2ConformerConfig(**WAV, position_embeddings_type="rotary", conv_depthwise_kernel_size=5, hidden_act="swish")
    model = prepared(t.Wav2Vec2ConformerModel(config))
    return wav2vec2(model, model, "last_hidden_state")


def make_parakeet_encoder():
    model = prepared(t.ParakeetEncoder(t.ParakeetEncoderConfig(**PARAKEET)))
    seen = Seen()
    seen.layers(model.layers)
    return model, run(model, seen, "main", {"input_features": torch.randn(1, 61, 16)}, named("last_hidden_state"))


def make_parakeet_ctc():
    config = t.ParakeetCTCConfig(vocab_size=13, pad_token_id=12, encoder_config=dict(PARAKEET, attention_bias=False, scale_input=False))
    model = prepared(t.ParakeetForCTC(config))
    seen = Seen()
    seen.layers(model.encoder.layers)
    return model, run(model, seen, "main", {"input_features": torch.randn(1, 64, 16)}, named("logits"))


def make_dit():
    import diffusers as d
    model = prepared(d.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=10, norm_type="ada_norm_zero", attention_bias=True, activation_fn="gelu-approximate"))
    seen = Seen()
    seen.layers(model.transformer_blocks)
    inputs = {"hidden_states": torch.randn(BATCH, 4, 8, 8), "timestep": torch.tensor([3, 500]), "class_labels": torch.tensor([2, 10])}
    return model, run(model, seen, "main", inputs, named("sample"))


def make_pixart():
    import diffusers as d
    model = prepared(d.PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8,
        patch_size=2, cross_attention_dim=16, caption_channels=12, use_additional_conditions=False,
        attention_bias=True, activation_fn="gelu-approximate", norm_type="ada_norm_single"))
    seen = Seen()
    seen.layers(model.transformer_blocks)
    mask = torch.ones(BATCH, 6)
    mask[1, 4:] = 0
    inputs = {"hidden_states": torch.randn(BATCH, 4, 8, 8), "timestep": torch.tensor([3, 500]),
              "encoder_hidden_states": torch.randn(BATCH, 6, 12), "encoder_attention_mask": mask.long()}
    call = lambda **k: model(**k, added_cond_kwargs={"resolution": None, "aspect_ratio": None})
    return model, run(model, seen, "main", inputs, named("sample"), call)


def make_sd3():
    import diffusers as d
    model = prepared(d.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10, out_channels=4, pos_embed_max_size=6,
        qk_norm="rms_norm"))
    seen = Seen()
    for i, block in enumerate(model.transformer_blocks):
        def both(_, __, out, i=i):
            text, image = out
            seen.values[f"layer_{i}_output"] = image
            if text is not None:
                seen.values[f"layer_{i}_text_output"] = text
        block.register_forward_hook(both)
    inputs = {"hidden_states": torch.randn(BATCH, 4, 8, 8), "timestep": torch.tensor([3.0, 500.0]),
              "encoder_hidden_states": torch.randn(BATCH, 6, 12), "pooled_projections": torch.randn(BATCH, 10)}
    return model, run(model, seen, "main", inputs, named("sample"))


def make_flux():
    import diffusers as d
    model = prepared(d.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=12, pooled_projection_dim=10, guidance_embeds=True, axes_dims_rope=(2, 2, 4)))
    seen = Seen()
    def both(name):
        def hook(_, __, out):
            seen.values[f"{name}_text_output"], seen.values[f"{name}_output"] = out
        return hook
    def one(_, __, out):
        seen.values["single_0_output"] = torch.cat(out, 1)
    model.transformer_blocks[0].register_forward_hook(both("layer_0"))
    model.single_transformer_blocks[0].register_forward_hook(one)
    h = w = 4
    ids = torch.zeros(h, w, 3)
    ids[..., 1] += torch.arange(h)[:, None]
    ids[..., 2] += torch.arange(w)[None, :]
    fixed = dict(img_ids=ids.reshape(h * w, 3), txt_ids=torch.zeros(6, 3))
    inputs = {"hidden_states": torch.randn(1, 16, 16), "timestep": torch.tensor([0.3]), "guidance": torch.tensor([3.5]),
              "encoder_hidden_states": torch.randn(1, 6, 12), "pooled_projections": torch.randn(1, 10)}
    return model, run(model, seen, "main", inputs, named("sample"), lambda **k: model(**k, **fixed))


def prepared(model):
    """Ready to run. Initial weights are so small that every layer is nearly the identity; biases are zero."""
    model = model.eval()
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.15)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.add_(torch.randn_like(b) * 0.3)
            if name.endswith("running_var"):
                b.add_(torch.rand_like(b))
    return model


MAKERS = {name[len("make_"):]: f for name, f in list(globals().items()) if name.startswith("make_")}


def write(name, folder):
    torch.manual_seed(sum(name.encode()))
    model, arrays = MAKERS[name]()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    config = folder / "config.json"
    text = json.dumps(json.loads(config.read_text()), indent=1, sort_keys=True) + "\n"
    config.write_text(text)
    (folder / "generation_config.json").unlink(missing_ok=True)
    as_array = lambda v: v.detach().int().numpy() if not v.is_floating_point() else v.detach().float().numpy()
    np.savez(folder / "golden.npz", **{k: np.ascontiguousarray(as_array(v)) for k, v in arrays.items()})
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size / 1000:.0f} kB, " + ", ".join(f"{k} {tuple(v.shape)}" for k, v in arrays.items() if ".out." in k))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or MAKERS:
        write(name, pathlib.Path(sys.argv[1]) / name)
