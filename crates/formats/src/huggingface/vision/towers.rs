//! The two transformers of CLIP and SigLIP, one for pictures and one for texts, which share their
//! layers and the names in them.

use russet_ir::{DType, Dim, TensorType, Value};

use super::super::attention::{Heads, Layer, LayerSizes, Norms, Projections};
use super::super::json::{Activation, Json};
use super::super::scope::Scope;
use super::patches::Patches;
use crate::Error;

pub const LAYER: Layer = Layer {
    attention: Projections::biased(
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.out_proj",
    ),
    norms: Norms::Before,
    attention_norm: "layer_norm1",
    mlp_norm: "layer_norm2",
    up: "mlp.fc1",
    down: "mlp.fc2",
    factors: None,
};

/// The numbers both have; files leave those out that are usual.
#[derive(Debug, Clone, Copy)]
pub struct Tower {
    pub hidden: u64,
    pub n_layers: u64,
    pub n_heads: u64,
    pub intermediate: u64,
    pub epsilon: f32,
    pub activation: Activation,
}

/// What is usual.
pub struct Usual {
    pub hidden: u64,
    pub intermediate: u64,
    pub n_heads: u64,
    pub epsilon: f64,
    pub activation: &'static str,
}

impl Tower {
    pub fn parse(json: &Json, usual: &Usual) -> Result<Tower, Error> {
        let tower = Tower {
            hidden: json.count("hidden_size", Some(usual.hidden))?,
            n_layers: json.count("num_hidden_layers", Some(12))?,
            n_heads: json.count("num_attention_heads", Some(usual.n_heads))?,
            intermediate: json.count("intermediate_size", Some(usual.intermediate))?,
            epsilon: json.epsilon("layer_norm_eps", usual.epsilon)?,
            activation: json.activation("hidden_act", usual.activation)?,
        };
        if !tower.hidden.is_multiple_of(tower.n_heads) {
            let expected = format!("a multiple of `num_attention_heads`, {}", tower.n_heads);
            return Err(json.error("hidden_size", tower.hidden.to_string(), expected));
        }
        Ok(tower)
    }

    pub fn sizes(&self, batch: u64, length: u64) -> LayerSizes {
        LayerSizes {
            heads: Heads { batch, count: self.n_heads, dim: self.hidden / self.n_heads },
            length,
            intermediate: self.intermediate,
            epsilon: self.epsilon,
            activation: self.activation,
        }
    }

    /// The layers `encoder.layers`.
    pub fn layers(
        &self,
        s: &mut Scope,
        (batch, length): (u64, u64),
        mut x: Value,
        added: &[Value],
    ) -> Result<Value, Error> {
        let sizes = self.sizes(batch, length);
        for i in 0..self.n_layers {
            let mut s = s.inside(&format!("encoder.layers.{i}"), &format!("layer_{i}"));
            x = LAYER.build(&mut s, &sizes, x, added)?;
        }
        Ok(x)
    }
}

/// The numbers of a text.
#[derive(Debug, Clone, Copy)]
pub struct Texts {
    pub n_vocab: u64,
    pub n_positions: u64,
}

impl Texts {
    pub fn parse(json: &Json, n_vocab: u64, n_positions: u64) -> Result<Texts, Error> {
        Ok(Texts {
            n_vocab: json.count("vocab_size", Some(n_vocab))?,
            n_positions: json.count("max_position_embeddings", Some(n_positions))?,
        })
    }

    /// The input `name`, int32 `[batch, length]`.
    pub fn input(s: &mut Scope, name: &str, batch: u64, length: u64) -> Value {
        let shape = [batch, length].map(Dim::Fixed);
        s.net.graph.add_input(name, TensorType::new(DType::I32, shape))
    }

    /// Words and their positions.
    pub fn embed(
        &self,
        s: &mut Scope,
        ids: Value,
        length: u64,
        hidden: u64,
    ) -> Result<Value, Error> {
        let mut s = s.inside("embeddings", "");
        let words = s.embedding("token_embedding", ids, [self.n_vocab, hidden], "words")?;
        let shape = [self.n_positions, hidden];
        let table = s.tensor("position_embedding.weight", &shape)?;
        let table = table.rows(0, length).reshaped(vec![1, length, hidden]);
        let places = s.constant(table, "positions")?;
        s.add(words, places, "embedded")
    }
}

/// The positions of patches, after `n_before` other tokens: `[1, patches, hidden]`, and those before.
pub fn positions(
    s: &mut Scope,
    patches: &Patches,
    hidden: u64,
    n_before: u64,
) -> Result<(Option<Value>, Value), Error> {
    let n = patches.count() + n_before;
    let table = s.tensor("position_embedding.weight", &[n, hidden])?;
    let rows =
        |from: u64, to: u64| table.rows(from, to - from).reshaped(vec![1, to - from, hidden]);
    let before = match n_before {
        0 => None,
        k => Some(s.constant(rows(0, k), "first_position")?),
    };
    Ok((before, s.constant(rows(n_before, n), "patch_positions")?))
}
