//! GPT-2: learned positions, layer norms, weights stored transposed.

use std::collections::BTreeMap;

use super::decoder::config::{
    Biases, Config, FULL, LLAMA_NAMES, Layer, Mlp, Names, Norm, Positions, Projections, Residual,
};
use super::decoder::{self};
use super::family::Family;
use super::json::Json;
use super::usage::Mask;
use crate::Error;

pub const GPT2: Family = Family {
    name: "gpt2",
    model_types: &["gpt2"],
    architectures: &["GPT2"],
    check: |json| decoder::check(config, json),
    build: |folder, options| decoder::build(config, folder, options),
};

const NAMES: Names = Names {
    embeddings: "wte",
    positions: "wpe",
    layers: "h",
    qkv: "attn.c_attn",
    output: "attn.c_proj",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    attention_norm: "ln_1",
    mlp_norm: "ln_2",
    norm: "ln_f",
    ..LLAMA_NAMES
};

fn config(json: &Json, _context: Option<u64>) -> Result<Config, Error> {
    json.require("add_cross_attention", false)?;
    let field = |new: &'static str, old: &'static str| json.first(&[new, old]);
    let hidden = json.count(field("n_embd", "hidden_size"), None)?;
    let n_heads = json.count(field("n_head", "num_attention_heads"), None)?;
    if !hidden.is_multiple_of(n_heads) {
        let expected = format!("a multiple of `n_head`, {n_heads}");
        return Err(json.error("n_embd", hidden.to_string(), expected));
    }
    let head_dim = hidden / n_heads;
    let n_layers = json.count(field("n_layer", "num_hidden_layers"), None)?;
    if n_layers > 4096 {
        return Err(json.error("n_layer", n_layers.to_string(), "at most 4096"));
    }
    json.require("scale_attn_by_inverse_layer_idx", false)?;
    let scaled = json.flag("scale_attn_weights", true)?;
    Ok(Config {
        hidden,
        n_layers,
        n_heads,
        n_kv_heads: n_heads,
        head_dim,
        intermediate: json.count("n_inner", hidden.checked_mul(4))?,
        n_vocab: json.count("vocab_size", None)?,
        length_max: json.count(field("n_positions", "max_position_embeddings"), None)?,
        norm: Norm::Layer,
        epsilon: json.epsilon("layer_norm_epsilon", 1e-5)?,
        activation: json.activation("activation_function", "gelu_new")?,
        mlp: Mlp::Plain,
        projections: Projections::FusedTransposed,
        biases: Biases { qkv: true, output: true, mlp: true, head: false },
        residual: Residual::Sequential,
        head_norm: None,
        positions: Positions::Learned,
        layers: vec![Layer { mask: FULL, rotary: None }; n_layers as usize],
        masks: BTreeMap::from([(FULL.to_owned(), Mask { window: None })]),
        score_scale: if scaled { (1.0 / (head_dim as f64).sqrt()) as f32 } else { 1.0 },
        score_cap: None,
        logit_cap: None,
        embedding_scale: None,
        tied: json.flag("tie_word_embeddings", true)?,
        names: NAMES,
        bos_token_id: json.numbers("bos_token_id")?.first().copied(),
        eos_token_ids: json.numbers("eos_token_id")?,
    })
}
