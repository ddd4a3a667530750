//! Qwen 2, 2.5 and 3.

use super::decoder::config::{Biases, Config, Norm};
use super::decoder::{self};
use super::family::Family;
use super::json::Json;
use crate::Error;

pub const QWEN2: Family = Family {
    name: "qwen2",
    model_types: &["qwen2"],
    architectures: &["Qwen2ForCausalLM"],
    check: |json| decoder::check(qwen2, json),
    build: |folder, options| decoder::build(qwen2, folder, options),
};

pub const QWEN3: Family = Family {
    name: "qwen3",
    model_types: &["qwen3"],
    architectures: &["Qwen3ForCausalLM"],
    check: |json| decoder::check(qwen3, json),
    build: |folder, options| decoder::build(qwen3, folder, options),
};

/// Queries, keys and values have a bias.
fn qwen2(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let biases = Biases { qkv: true, ..Biases::default() };
    windowed(Config { biases, ..Config::llama(json, context)? }, json)
}

/// Queries and keys are normed by head.
fn qwen3(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let attention = json.flag("attention_bias", false)?;
    let biases = Biases { qkv: attention, output: attention, ..Biases::default() };
    let config = Config { biases, head_norm: Some(Norm::Rms), ..Config::llama(json, context)? };
    windowed(config, json)
}

/// Layers from `max_window_layers` on see a window, if `use_sliding_window` says so.
fn windowed(config: Config, json: &Json) -> Result<Config, Error> {
    if !json.flag("use_sliding_window", false)? || !json.has("sliding_window") {
        return Ok(config);
    }
    let first = json.number("max_window_layers", Some(28))?;
    config.with_layer_types(json, |i| i >= first)
}
