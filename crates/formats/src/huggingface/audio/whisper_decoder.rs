//! Whisper's decoder: like any other, and each layer also reads what the encoder heard.

use russet_ir::ops::*;
use russet_ir::{DType, Graph, TensorType, Value};

use super::super::attention::{Heads, merge, mixture, mlp, split};
use super::super::decoder::cache::CacheInput;
use super::super::decoder::config::FULL;
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Cache;
use super::super::weights::Weights;
use super::whisper::{Config, EPSILON, LAYER};
use crate::Error;

/// How many tokens there are in a run, and where the past ones are.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub n_new: u64,
    pub context: u64,
    pub cache: Cache,
}

/// What all layers read.
struct Shared {
    mask: Value,
    /// `[2 layers, heads, context, head_dim]` of past tokens.
    past: Value,
    /// `[2 layers, heads, frames, head_dim]` of the sound.
    heard: Value,
}

/// The function `name`: inputs as those of any decoder, and `cross_cache`, which the encoder makes.
pub fn trunk(name: &str, config: &Config, weights: &Weights, sizes: Sizes) -> Result<Graph, Error> {
    let half = &config.decoder;
    let (heads, n) = (half.heads, sizes.n_new);
    let mut net = Net::new(name, weights.file());
    let mut whole = Scope::new(&mut net, weights);
    let mut s = whole.inside("decoder", "");
    let row = TensorType::new(DType::I32, [1, n]);
    let ids = s.net.graph.add_input("input_ids", row.clone());
    let at = s.net.graph.add_input("position_ids", row);
    let words = s.embedding("embed_tokens", ids, [config.n_vocab, config.hidden], "words")?;
    let shape = [config.n_positions, config.hidden];
    let places = s.embedding("embed_positions", at, shape, "positions")?;
    let mut x = s.add(words, places, "embedded")?;
    let ty = TensorType::new(DType::F32, [1, 1, n, sizes.context + n]);
    let mask = s.net.graph.add_input(FULL, ty);
    let shape = [2 * half.n_layers, heads.count, config.n_frames, heads.dim];
    let heard = s.net.graph.add_input("cross_cache", TensorType::new(DType::F32, shape));
    let shape = [2 * half.n_layers, heads.count, sizes.context, heads.dim];
    let cache = CacheInput::add(s.net, sizes.cache, shape)?;
    let shared = Shared { mask, past: cache.held, heard };
    let mut fresh = Vec::new();
    for i in 0..half.n_layers {
        let mut s = s.inside(&format!("layers.{i}"), &format!("layer_{i}"));
        let (y, new) = layer(&mut s, config, &shared, (i, n), x)?;
        fresh.extend(new);
        x = y;
    }
    let x = s.norm("layer_norm", x, (config.hidden, EPSILON), "last_hidden_state")?;
    let mut outputs = vec![x];
    outputs.extend(cache.write(s.net, n, fresh)?);
    net.graph.set_outputs(outputs);
    Ok(net.graph)
}

/// The layer's result, and the keys and values of the new tokens.
fn layer(
    s: &mut Scope,
    config: &Config,
    shared: &Shared,
    (i, n): (u64, u64),
    x: Value,
) -> Result<(Value, [Value; 2]), Error> {
    let norm = (config.hidden, EPSILON);
    let normed = s.norm(LAYER.attention_norm, x, norm, "normed")?;
    let (y, fresh) = itself(s, config, shared, (i, n), normed)?;
    let x = s.add(x, y, "attention_sum")?;
    let normed = s.norm("encoder_attn_layer_norm", x, norm, "attended")?;
    let y = sound(&mut s.inside("encoder_attn", "cross"), config, shared, (i, n), normed)?;
    let x = s.add(x, y, "cross_sum")?;
    let normed = s.norm(LAYER.mlp_norm, x, norm, "cross_attended")?;
    let sizes = (config.hidden, config.decoder.intermediate);
    let y = mlp(s, [LAYER.up, LAYER.down], normed, sizes, config.activation, "down")?;
    Ok((s.add(x, y, "output")?, fresh))
}

/// Row `row` of a cache, `[1, heads, length, head_dim]`.
fn row(s: &mut Scope, cache: Value, row: u64, name: &str) -> Result<Value, Error> {
    s.slice(cache, (0, 4), (row, row + 1), name)
}

/// Attention over past and new tokens.
fn itself(
    s: &mut Scope,
    config: &Config,
    shared: &Shared,
    (i, n): (u64, u64),
    x: Value,
) -> Result<(Value, [Value; 2]), Error> {
    let h = config.decoder.heads;
    let square = (config.hidden, config.hidden);
    let a = &LAYER.attention;
    let mut heads = |(module, bias), name: &str| {
        let y = s.linear(module, x, square, bias, name)?;
        split(s, y, h, n, name)
    };
    let query = heads(a.query, "query")?;
    let key = heads(a.key, "key")?;
    let value = heads(a.value, "value")?;
    let mut behind = |fresh, at: u64, name: &str| {
        let past = row(s, shared.past, at, &format!("{name}_past"))?;
        s.concat(vec![past, fresh], 2, &format!("{name}_seen"))
    };
    let keys = behind(key, 2 * i, "key")?;
    let values = behind(value, 2 * i + 1, "value")?;
    let mixed = mixture(s, [query, keys, values], Some(h.scale()), &[shared.mask])?;
    let context = merge(s, mixed, h, n, "context")?;
    let y = s.linear(a.output.0, context, square, a.output.1, "attention")?;
    Ok((y, [key, value]))
}

/// Attention over what was heard, whose keys and values are there.
fn sound(
    s: &mut Scope,
    config: &Config,
    shared: &Shared,
    (i, n): (u64, u64),
    x: Value,
) -> Result<Value, Error> {
    let h: Heads = config.decoder.heads;
    let square = (config.hidden, config.hidden);
    let query = s.linear("q_proj", x, square, Bias::Present, "query")?;
    let query = split(s, query, h, n, "query")?;
    let keys = row(s, shared.heard, 2 * i, "key_heard")?;
    let values = row(s, shared.heard, 2 * i + 1, "value_heard")?;
    let mixed = mixture(s, [query, keys, values], Some(h.scale()), &[])?;
    let context = merge(s, mixed, h, n, "context")?;
    s.linear("out_proj", context, square, Bias::Present, "attention")
}

/// `lm_head`: `hidden_state` `[1, 1, hidden]` of one token to `logits` `[1, 1, vocab]`, by the table of
/// words or weights of its own.
pub fn head(config: &Config, weights: &Weights) -> Result<Graph, Error> {
    let mut net = Net::new("lm_head", weights.file());
    let x = net.graph.add_input("hidden_state", TensorType::new(DType::F32, [1, 1, config.hidden]));
    let outside = weights.outside();
    let shape = [config.n_vocab, config.hidden];
    net.enter("proj_out");
    let weight = match outside.has("proj_out.weight") {
        true => outside.get("proj_out.weight", &shape)?,
        false => weights.get("decoder.embed_tokens.weight", &shape)?,
    };
    let weight = net.constant(weight, "logits_weight")?;
    let logits = net.op(Linear { x, weight, bias: None }, "logits")?;
    net.graph.set_outputs(vec![logits]);
    Ok(net.graph)
}
