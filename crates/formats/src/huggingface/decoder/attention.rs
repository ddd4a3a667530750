//! Attention over the past and the new tokens, query heads sharing heads of keys and values.

use russet_ir::Value;
use russet_ir::ops::*;

use super::super::net::{Bias, Net};
use super::capped;
use super::config::Projections;
use super::trunk::Trunk;
use crate::Error;

/// A rotary table as inputs, fp32 `[1, 1, S, n_columns]` each.
pub struct Rotation {
    pub name: String,
    pub n_columns: u64,
    pub cos: Value,
    pub sin: Value,
}

/// Where the keys and values of past tokens are.
pub struct Past {
    /// `[2 * layers, kv_heads, context, head_dim]`.
    pub cache: Value,
    pub layer: u64,
}

/// What attention makes.
pub struct Attended {
    /// `[1, S, hidden]`.
    pub output: Value,
    /// Those of the new tokens, `[1, kv_heads, S, head_dim]`.
    pub keys: Value,
    pub values: Value,
}

/// The attention of layer `i` on `x` `[1, S, hidden]`.
pub fn build(
    trunk: &mut Trunk<'_>,
    i: u64,
    x: Value,
    mask: Value,
    rotation: Option<&Rotation>,
    past: &Past,
) -> Result<Attended, Error> {
    let (config, names) = (trunk.config, trunk.config.names);
    let named = |name: &str| format!("layer_{i}_{name}");
    let (query, key, value) = projections(trunk, i, x)?;
    let query = heads(trunk, i, query, "query", names.query_norm, config.n_heads)?;
    let keys = heads(trunk, i, key, "key", names.key_norm, config.n_kv_heads)?;
    trunk.net.enter(&trunk.module(i, parent(names.query)));
    let values = split(trunk, value, config.n_kv_heads, &named("value"))?;
    let values = trunk.net.transpose(values, &[0, 2, 1, 3], &named("value_heads"))?;
    let (query, keys) = match rotation {
        None => (query, keys),
        Some(r) => (
            rotated(&mut trunk.net, r, query, config.head_dim, &named("query"))?,
            rotated(&mut trunk.net, r, keys, config.head_dim, &named("key"))?,
        ),
    };
    let mixed = mix(trunk, i, query, (keys, values), mask, past)?;
    let net = &mut trunk.net;
    let width = config.widths().0;
    let tokens = net.transpose(mixed, &[0, 2, 1, 3], &named("mixed_split"))?;
    let shape = [1, trunk.n_new as i32, width as i32];
    let context = net.reshape(tokens, &shape, &named("context"))?;
    let columns = (width, config.hidden);
    let bias = Bias::when(config.biases.output);
    let output = trunk.linear(i, names.output, context, columns, bias, &named("projected"))?;
    Ok(Attended { output, keys, values })
}

/// Queries, keys and values `[1, S, heads * head_dim]`.
fn projections(trunk: &mut Trunk<'_>, i: u64, x: Value) -> Result<(Value, Value, Value), Error> {
    let (config, names) = (trunk.config, trunk.config.names);
    let (n_query, n_key) = config.widths();
    let bias = Bias::when(config.biases.qkv);
    if config.projections == Projections::Separate {
        let mut one = |name: &str, n, value: &str| {
            trunk.linear(i, name, x, (config.hidden, n), bias, &format!("layer_{i}_{value}"))
        };
        let query = one(names.query, n_query, "query")?;
        let key = one(names.key, n_key, "key")?;
        return Ok((query, key, one(names.value, n_key, "value")?));
    }
    let module = trunk.module(i, names.qkv);
    let parts = [("query", n_query), ("key", n_key), ("value", n_key)];
    let all = trunk.fused(i, &module, x, &parts, bias)?;
    Ok((all[0], all[1], all[2]))
}

/// `[1, S, heads * head_dim]` as `[1, heads, S, head_dim]`, normed where the family does so.
fn heads(
    trunk: &mut Trunk<'_>,
    i: u64,
    x: Value,
    part: &str,
    norm: &str,
    n_heads: u64,
) -> Result<Value, Error> {
    let config = trunk.config;
    let name = format!("layer_{i}_{part}");
    trunk.net.enter(&trunk.module(i, parent(config.names.query)));
    let mut x = split(trunk, x, n_heads, &name)?;
    if let Some(kind) = config.head_norm {
        let module = trunk.module(i, norm);
        x = trunk.norm_of(kind, &module, x, config.head_dim, &format!("{name}_normed"))?;
    }
    trunk.net.transpose(x, &[0, 2, 1, 3], &format!("{name}_heads"))
}

fn split(trunk: &mut Trunk<'_>, x: Value, n_heads: u64, name: &str) -> Result<Value, Error> {
    let shape = [1, trunk.n_new as i32, n_heads as i32, trunk.config.head_dim as i32];
    trunk.net.reshape(x, &shape, &format!("{name}_split"))
}

/// The module that the names of query, key and value have in common.
fn parent(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |p| p.0)
}

/// `x` with its first columns rotated: the first half of them against the second.
fn rotated(
    net: &mut Net,
    r: &Rotation,
    x: Value,
    head_dim: u64,
    name: &str,
) -> Result<Value, Error> {
    let (n, all) = (r.n_columns as i32, head_dim as i32);
    let part = |net: &mut Net, from: i32, to: i32, part: &str| {
        let end = if to == all { 0 } else { to };
        net.slice(x, &[0, 0, 0, from], &[0, 0, 0, end], &format!("{name}_{part}"))
    };
    let first = part(net, 0, n / 2, "first")?;
    let second = part(net, n / 2, n, "second")?;
    let turned = if n == all { x } else { part(net, 0, n, "turned")? };
    let minus = net.scalar(-1.0, &format!("{name}_minus"))?;
    let negative = net.op(Mul { x: second, y: minus }, &format!("{name}_negative"))?;
    let crossed = Concat { values: vec![negative, first], axis: -1, interleave: false };
    let crossed = net.op(crossed, &format!("{name}_crossed"))?;
    let along = net.op(Mul { x: turned, y: r.cos }, &format!("{name}_along"))?;
    let across = net.op(Mul { x: crossed, y: r.sin }, &format!("{name}_across"))?;
    if n == all {
        return net.op(Add { x: along, y: across }, &format!("{name}_rotated"));
    }
    let rotated = net.op(Add { x: along, y: across }, &format!("{name}_rotated_part"))?;
    let rest = part(net, n, all, "rest")?;
    let values = vec![rotated, rest];
    net.op(Concat { values, axis: -1, interleave: false }, &format!("{name}_rotated"))
}

/// Every new token's mixture of values, `[1, heads, S, head_dim]`. The query heads that share a head
/// of keys are taken as one, one below the other.
fn mix(
    trunk: &mut Trunk<'_>,
    i: u64,
    query: Value,
    (keys, values): (Value, Value),
    mask: Value,
    past: &Past,
) -> Result<Value, Error> {
    let (config, n_new) = (trunk.config, trunk.n_new as i32);
    let named = |name: &str| format!("layer_{i}_{name}");
    let (n_kv, shared) = (config.n_kv_heads as i32, (config.n_heads / config.n_kv_heads) as i32);
    let (dim, n_seen) = (config.head_dim as i32, trunk.context as i32 + n_new);
    let net = &mut trunk.net;
    let mut all = |fresh, row: u64, name: &str| {
        let (row, name) = (row as i32, named(name));
        let held = format!("{name}_past");
        let before = net.slice(past.cache, &[row, 0, 0, 0], &[row + 1, 0, 0, 0], &held)?;
        net.op(Concat { values: vec![before, fresh], axis: 2, interleave: false }, &name)
    };
    let keys = all(keys, 2 * past.layer, "keys_seen")?;
    let values = all(values, 2 * past.layer + 1, "values_seen")?;

    let query = match shared {
        1 => query,
        _ => net.reshape(query, &[1, n_kv, shared * n_new, dim], &named("query_grouped"))?,
    };
    let product = Matmul { x: query, y: keys, transpose_x: false, transpose_y: true };
    let product = net.op(product, &named("scores"))?;
    let scale = net.scalar(config.score_scale, &named("scale"))?;
    let mut scores = net.op(Mul { x: product, y: scale }, &named("scaled_scores"))?;
    if let Some(cap) = config.score_cap {
        scores = capped(net, scores, cap, &named("capped_scores"))?;
    }
    if shared > 1 {
        scores = net.reshape(scores, &[n_kv, shared, n_new, n_seen], &named("head_scores"))?;
    }
    let scores = net.op(Add { x: scores, y: mask }, &named("masked_scores"))?;
    let mut weights = net.op(Softmax { x: scores, axis: -1 }, &named("probabilities"))?;
    if shared > 1 {
        let shape = [1, n_kv, shared * n_new, n_seen];
        weights = net.reshape(weights, &shape, &named("grouped_probabilities"))?;
    }
    let mix = Matmul { x: weights, y: values, transpose_x: false, transpose_y: false };
    let mixed = net.op(mix, &named("mixed_heads"))?;
    match shared {
        1 => Ok(mixed),
        _ => net.reshape(mixed, &[1, n_kv * shared, n_new, dim], &named("mixed")),
    }
}
