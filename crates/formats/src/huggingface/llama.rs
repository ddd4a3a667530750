//! Llama and Mistral.

use super::decoder::config::{Biases, Config};
use super::decoder::{self};
use super::family::Family;
use super::json::Json;
use crate::Error;

pub const LLAMA: Family = Family {
    name: "llama",
    model_types: &["llama"],
    architectures: &["LlamaForCausalLM"],
    check: |json| decoder::check(config, json),
    build: |folder, options| decoder::build(config, folder, options),
};

pub const MISTRAL: Family = Family {
    name: "mistral",
    model_types: &["mistral"],
    architectures: &["MistralForCausalLM"],
    check: |json| decoder::check(mistral, json),
    build: |folder, options| decoder::build(mistral, folder, options),
};

fn config(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let (attention, mlp) = (json.flag("attention_bias", false)?, json.flag("mlp_bias", false)?);
    let biases = Biases { qkv: attention, output: attention, mlp, head: false };
    Ok(Config { biases, ..Config::llama(json, context)? })
}

fn mistral(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    Config::llama(json, context)?.with_window(json)
}
