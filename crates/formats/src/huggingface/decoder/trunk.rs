//! The trunk of a decoder: embeddings, layers, the last norm, the cache.

use russet_ir::ops::*;
use russet_ir::{DType, Graph, Tensor, TensorType, Value};

use super::super::net::{Bias, Net};
use super::super::weights::Weights;
use super::Sizes;
use super::attention::{self, Past, Rotation};
use super::cache::CacheInput;
use super::config::{Config, Mlp, Norm, Positions, Projections, Residual};
use crate::Error;

/// A decoder being built as one function.
pub struct Trunk<'a> {
    pub net: Net,
    pub config: &'a Config,
    pub weights: &'a Weights,
    /// Tokens that are new in a run.
    pub n_new: u64,
    pub context: u64,
}

/// The function `name` for `n_new` tokens at once. Inputs:
/// - `input_ids` int32 `[1, S]`; `position_ids` int32 `[1, S]` where positions are learned
/// - `NAME_cos`, `NAME_sin` fp32 `[1, 1, S, columns]` of each rotary table
/// - masks fp32 `[1, 1, S, context + S]`, what is added to the scores of the past, then of the new tokens
/// - `cache_position` int32 `[1]`, how many tokens the cache holds, where the cache is a state
/// - `kv_cache` fp16 `[2 * layers, kv_heads, context, head_dim]`, the state or an input
///
/// Outputs: `last_hidden_state` fp32 `[1, S, hidden]`, after the last norm; `kv_new` fp16 `[2 * layers,
/// kv_heads, S, head_dim]` where the cache is no state.
pub fn build(
    name: &str,
    config: &Config,
    weights: &Weights,
    sizes: &Sizes,
    n_new: u64,
) -> Result<Graph, Error> {
    let net = Net::new(name, weights.file());
    let mut trunk = Trunk { net, config, weights, n_new, context: sizes.context };
    let ids = trunk.net.graph.add_input("input_ids", TensorType::new(DType::I32, [1, n_new]));
    let mut x = trunk.embeddings(ids)?;
    let rotations = trunk.rotations();
    let masks = trunk.masks();
    let shape = [2 * config.n_layers, config.n_kv_heads, sizes.context, config.head_dim];
    let cache = CacheInput::add(&mut trunk.net, sizes.cache, shape)?;
    let mut fresh = Vec::new();
    for (i, layer) in config.layers.iter().enumerate() {
        let i = i as u64;
        let mask = masks.iter().find(|m| m.0 == layer.mask).expect("a mask for each layer").1;
        let rotation = rotations.iter().find(|r| Some(r.name.as_str()) == layer.rotary);
        let past = Past { cache: cache.held, layer: i };
        let normed = trunk.norm(
            &trunk.module(i, config.names.attention_norm),
            x,
            &format!("layer_{i}_normed"),
        )?;
        let made = attention::build(&mut trunk, i, normed, mask, rotation, &past)?;
        fresh.extend([made.keys, made.values]);
        x = trunk.residuals(i, x, normed, made.output)?;
    }
    x = trunk.norm(config.names.norm, x, "last_hidden_state")?;
    let mut outputs = vec![x];
    outputs.extend(cache.write(&mut trunk.net, n_new, fresh)?);
    trunk.net.graph.set_outputs(outputs);
    Ok(trunk.net.graph)
}

impl Trunk<'_> {
    /// The full name of a module of layer `i`.
    pub fn module(&self, i: u64, name: &str) -> String {
        format!("{}.{i}.{name}", self.config.names.layers)
    }

    fn embeddings(&mut self, ids: Value) -> Result<Value, Error> {
        let config = self.config;
        let names = &config.names;
        let mut x = self.rows(names.embeddings, config.n_vocab, ids, "words")?;
        if let Some(scale) = config.embedding_scale {
            let scale = self.net.scalar(scale, "word_scale")?;
            x = self.net.op(Mul { x, y: scale }, "scaled_words")?;
        }
        if config.positions == Positions::Learned {
            let ty = TensorType::new(DType::I32, [1, self.n_new]);
            let at = self.net.graph.add_input("position_ids", ty);
            let positions = self.rows(names.positions, config.length_max, at, "positions")?;
            x = self.net.op(Add { x, y: positions }, "placed_words")?;
        }
        Ok(x)
    }

    /// Rows of the table `module`.
    fn rows(&mut self, module: &str, n: u64, at: Value, name: &str) -> Result<Value, Error> {
        self.net.enter(module);
        let table = self.weights.get(&format!("{module}.weight"), &[n, self.config.hidden])?;
        let x = self.net.constant(table, &format!("{name}_table"))?;
        self.net
            .op(Gather { x, indices: at, axis: 0, batch_dims: 0, validate_indices: false }, name)
    }

    fn rotations(&mut self) -> Vec<Rotation> {
        let Positions::Rotary { n_columns, tables } = &self.config.positions else {
            return Vec::new();
        };
        let ty = TensorType::new(DType::F32, [1, 1, self.n_new, *n_columns]);
        let graph = &mut self.net.graph;
        let mut one = |name: &String| Rotation {
            name: name.clone(),
            n_columns: *n_columns,
            cos: graph.add_input(&format!("{name}_cos"), ty.clone()),
            sin: graph.add_input(&format!("{name}_sin"), ty.clone()),
        };
        tables.keys().map(&mut one).collect()
    }

    fn masks(&mut self) -> Vec<(String, Value)> {
        let shape = [1, 1, self.n_new, self.context + self.n_new];
        let ty = TensorType::new(DType::F32, shape);
        let graph = &mut self.net.graph;
        let names = self.config.masks.keys();
        names.map(|name| (name.clone(), graph.add_input(name, ty.clone()))).collect()
    }

    /// The norm `module` over the hidden columns.
    fn norm(&mut self, module: &str, x: Value, name: &str) -> Result<Value, Error> {
        self.norm_of(self.config.norm, module, x, self.config.hidden, name)
    }

    /// A norm over the last axis, of `n` columns.
    pub fn norm_of(
        &mut self,
        norm: Norm,
        module: &str,
        x: Value,
        n: u64,
        name: &str,
    ) -> Result<Value, Error> {
        let epsilon = self.config.epsilon;
        if norm == Norm::Layer {
            return self.net.norm(self.weights, module, x, (n, epsilon), name);
        }
        self.net.enter(module);
        let mut gamma = self.weights.get(&format!("{module}.weight"), &[n])?;
        if norm == Norm::RmsPlusOne {
            let grown: Vec<f32> = gamma.to_f32().into_iter().map(|g| 1.0 + g).collect();
            gamma = Tensor::f32(vec![n], &grown);
        }
        self.net.rms_norm(gamma, x, epsilon, name)
    }

    /// What follows attention in layer `i`: `x` is what the layer read, `normed` that after its norm.
    fn residuals(
        &mut self,
        i: u64,
        x: Value,
        normed: Value,
        attended: Value,
    ) -> Result<Value, Error> {
        let names = self.config.names;
        let named = |name: &str| format!("layer_{i}_{name}");
        let out = named("output");
        match self.config.residual {
            Residual::Parallel => {
                let fed = self.mlp(i, normed)?;
                let both = self.net.op(Add { x: attended, y: fed }, &named("parts"))?;
                self.net.op(Add { x: both, y: x }, &out)
            }
            Residual::Sequential => {
                let sum = self.net.op(Add { x, y: attended }, &named("attention_sum"))?;
                let normed =
                    self.norm(&self.module(i, names.mlp_norm), sum, &named("mlp_normed"))?;
                let fed = self.mlp(i, normed)?;
                self.net.op(Add { x: sum, y: fed }, &out)
            }
            Residual::Sandwich => {
                let module = self.module(i, names.after_attention_norm);
                let attended = self.norm(&module, attended, &named("attention_normed"))?;
                let sum = self.net.op(Add { x, y: attended }, &named("attention_sum"))?;
                let normed =
                    self.norm(&self.module(i, names.mlp_norm), sum, &named("mlp_normed"))?;
                let fed = self.mlp(i, normed)?;
                let fed = self.norm(&self.module(i, names.after_mlp_norm), fed, &named("fed"))?;
                self.net.op(Add { x: sum, y: fed }, &out)
            }
        }
    }

    fn mlp(&mut self, i: u64, x: Value) -> Result<Value, Error> {
        let (config, names) = (self.config, self.config.names);
        let named = |name: &str| format!("layer_{i}_{name}");
        let (hidden, n) = (config.hidden, config.intermediate);
        let bias = Bias::when(config.biases.mlp);
        let inner = match config.mlp {
            Mlp::Plain => {
                let up = self.linear(i, names.up, x, (hidden, n), bias, &named("up"))?;
                self.net.activation(config.activation, up, &named("active"))?
            }
            Mlp::Gated | Mlp::GatedFused => {
                let (gate, up) = match config.mlp {
                    Mlp::GatedFused => {
                        let module = self.module(i, names.gate_up);
                        let rows = [("gate", n), ("up", n)];
                        let both = self.fused(i, &module, x, &rows, bias)?;
                        (both[0], both[1])
                    }
                    _ => (
                        self.linear(i, names.gate, x, (hidden, n), bias, &named("gate"))?,
                        self.linear(i, names.up, x, (hidden, n), bias, &named("up"))?,
                    ),
                };
                let active = self.net.activation(config.activation, gate, &named("active"))?;
                self.net.op(Mul { x: active, y: up }, &named("gated"))?
            }
        };
        self.linear(i, names.down, inner, (n, hidden), bias, &named("down"))
    }

    /// The linear layer `name` of layer `i`, however its weight is stored.
    pub fn linear(
        &mut self,
        i: u64,
        name: &str,
        x: Value,
        (n_in, n_out): (u64, u64),
        bias: Bias,
        value: &str,
    ) -> Result<Value, Error> {
        let module = self.module(i, name);
        if self.config.projections != Projections::FusedTransposed {
            return self.net.linear_with(self.weights, &module, x, (n_in, n_out), bias, value);
        }
        let weight = self.weights.get(&format!("{module}.weight"), &[n_in, n_out])?.transposed();
        let bias = self.bias(&module, n_out, bias)?;
        self.net.enter(&module);
        self.net.linear_of(x, weight, bias, value)
    }

    /// Linear layers that are the rows of one weight, each so many.
    pub fn fused(
        &mut self,
        i: u64,
        module: &str,
        x: Value,
        parts: &[(&str, u64)],
        bias: Bias,
    ) -> Result<Vec<Value>, Error> {
        let (n_in, all) = (self.config.hidden, parts.iter().map(|p| p.1).sum());
        let name = format!("{module}.weight");
        let weight = match self.config.projections {
            Projections::FusedTransposed => self.weights.get(&name, &[n_in, all])?.transposed(),
            _ => self.weights.get(&name, &[all, n_in])?,
        };
        let bias = self.bias(module, all, bias)?;
        self.net.enter(module);
        let mut first = 0;
        let mut made = Vec::new();
        for &(part, n) in parts {
            let bias = bias.as_ref().map(|b| b.rows(first, n));
            let weight = weight.rows(first, n);
            made.push(self.net.linear_of(x, weight, bias, &format!("layer_{i}_{part}"))?);
            first += n;
        }
        Ok(made)
    }

    fn bias(&self, module: &str, n: u64, bias: Bias) -> Result<Option<Tensor>, Error> {
        match bias {
            Bias::Present => self.weights.get(&format!("{module}.bias"), &[n]).map(Some),
            Bias::Absent => Ok(None),
        }
    }
}
