//! Phi 1 and 2 (parallel parts, part of each head rotated), Phi 3 and 4 (Llama with fused weights).

use super::decoder::config::{Biases, Config, Mlp, Norm, Projections, Residual};
use super::decoder::{self};
use super::family::Family;
use super::json::Json;
use crate::Error;

pub const PHI: Family = Family {
    name: "phi",
    model_types: &["phi"],
    architectures: &["PhiForCausalLM"],
    check: |json| decoder::check(phi, json),
    build: |folder, options| decoder::build(phi, folder, options),
};

pub const PHI3: Family = Family {
    name: "phi3",
    model_types: &["phi3"],
    architectures: &["Phi3ForCausalLM"],
    check: |json| decoder::check(phi3, json),
    build: |folder, options| decoder::build(phi3, folder, options),
};

fn phi(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let mut config = Config::llama(json, context)?;
    config.norm = Norm::Layer;
    config.epsilon = json.epsilon("layer_norm_eps", 1e-5)?;
    config.activation = json.activation("hidden_act", "gelu_new")?;
    config.mlp = Mlp::Plain;
    config.biases = Biases { qkv: true, output: true, mlp: true, head: true };
    config.residual = Residual::Parallel;
    config.head_norm = json.flag("qk_layernorm", false)?.then_some(Norm::Layer);
    config.names.output = "self_attn.dense";
    config.names.query_norm = "self_attn.q_layernorm";
    config.names.key_norm = "self_attn.k_layernorm";
    config.names.up = "mlp.fc1";
    config.names.down = "mlp.fc2";
    config.names.norm = "final_layernorm";
    Ok(config)
}

fn phi3(json: &Json, context: Option<u64>) -> Result<Config, Error> {
    let config = Config::llama(json, context)?.with_window(json)?;
    Ok(Config { projections: Projections::Fused, mlp: Mlp::GatedFused, ..config })
}
