//! Gemma 1, 2 and 3 (text): norms scaled by one plus the weight, embeddings scaled up.

use super::decoder::config::{Config, Norm, Positions, ROTARY, ROTARY_LOCAL, Residual, SLIDING};
use super::decoder::rotary::{self, Table};
use super::decoder::{self};
use super::family::Family;
use super::json::Json;
use crate::Error;

pub const GEMMA: Family = Family {
    name: "gemma",
    model_types: &["gemma"],
    architectures: &["GemmaForCausalLM"],
    check: |json| decoder::check(gemma, json),
    build: |folder, options| decoder::build(gemma, folder, options),
};

pub const GEMMA2: Family = Family {
    name: "gemma2",
    model_types: &["gemma2"],
    architectures: &["Gemma2ForCausalLM"],
    check: |json| decoder::check(gemma2, json),
    build: |folder, options| decoder::build(gemma2, folder, options),
};

pub const GEMMA3: Family = Family {
    name: "gemma3",
    model_types: &["gemma3_text", "gemma3"],
    architectures: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    check: |json| decoder::check(gemma3, json),
    build: |folder, options| decoder::build(gemma3, folder, options),
};

fn gemma(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let mut config = Config::llama(json, context)?;
    config.norm = Norm::RmsPlusOne;
    // Old configs call it `gelu` in `hidden_act` and mean the other form.
    let named = if json.has("hidden_activation") { "hidden_activation" } else { "hidden_act" };
    let old = named == "hidden_act" && json.text(named) == Some("gelu");
    let field = if old { "" } else { named };
    config.activation = json.activation(field, "gelu_pytorch_tanh")?;
    config.embedding_scale = Some((config.hidden as f64).sqrt() as f32);
    config.tied = json.flag("tie_word_embeddings", true)?;
    let attention = json.flag("attention_bias", false)?;
    config.biases.qkv = attention;
    config.biases.output = attention;
    Ok(config)
}

/// Norms before and after each part, capped scores and logits, every other layer sliding.
fn gemma2(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let mut config = sandwiched(gemma(json, context)?, json)?;
    let cap = |field| match json.has(field) {
        true => json.positive(field, None).map(|c| Some(c as f32)),
        false => Ok(None),
    };
    config.score_cap = cap("attn_logit_softcapping")?;
    config.logit_cap = cap("final_logit_softcapping")?;
    config.with_layer_types(json, |i| i % 2 == 0)
}

/// Queries and keys are normed by head; most layers slide, on a rotary table of their own. Models
/// that also see images keep their text part in `text_config`.
fn gemma3(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let text = json.section("text_config")?;
    let json = text.as_ref().unwrap_or(json);
    let mut config = sandwiched(gemma(json, context)?, json)?;
    config.head_norm = Some(Norm::RmsPlusOne);
    let period = json.count("sliding_window_pattern", Some(6))?;
    let mut config = config.with_layer_types(json, |i| (i + 1) % period != 0)?;
    let context = context.unwrap_or(config.length_max);
    let n_columns = config.head_dim;
    let table = Table { n_columns, length_max: config.length_max, context };
    let full = rotary::read(json, Some("full_attention"), &table)?;
    let local = match json.has("rope_parameters") {
        true => rotary::read(json, Some("sliding_attention"), &table)?,
        false => rotary::plain(json.positive("rope_local_base_freq", Some(10000.0))?, &table),
    };
    let tables = [(ROTARY.to_owned(), full), (ROTARY_LOCAL.to_owned(), local)];
    config.positions = Positions::Rotary { n_columns, tables: tables.into() };
    for layer in config.layers.iter_mut().filter(|l| l.mask == SLIDING) {
        layer.rotary = Some(ROTARY_LOCAL);
    }
    Ok(config)
}

fn sandwiched(mut config: Config, json: &Json) -> Result<Config, Error> {
    config.residual = Residual::Sandwich;
    config.names.mlp_norm = "pre_feedforward_layernorm";
    let scalar = json.positive("query_pre_attn_scalar", Some(256.0))?;
    config.score_scale = (1.0 / scalar.sqrt()) as f32;
    Ok(config)
}
