//! Layers in which a picture and a text attend to each other with weights of their own: what SD3 and
//! FLUX have in common.

use russet_ir::ops::*;
use russet_ir::{Tensor, Value};

use super::super::attention::{Heads, mixture};
use super::super::net::Bias;
use super::super::scope::Scope;
use super::conditions::{gated_sum, modulated, modulation};
use super::latents::Mlp;
use crate::Error;

/// Of norms, as diffusers has it for both.
pub const EPSILON: f32 = 1e-6;

/// Which of the two comes first where they are one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    Picture,
    Text,
}

/// Places of tokens as turns of queries and keys: cosines and sines `[1, 1, tokens, head_dim]`, and what
/// crosses the two columns of each angle, `[head_dim, head_dim]`.
#[derive(Debug, Clone, Copy)]
pub struct Turns {
    pub cos: Value,
    pub sin: Value,
    pub crossing: Value,
}

/// The numbers of joint layers.
#[derive(Debug, Clone, Copy)]
pub struct Joint {
    pub heads: Heads,
    pub n_picture: u64,
    pub n_text: u64,
    /// Are queries and keys normed by head?
    pub normed: bool,
    pub first: First,
    pub turns: Option<Turns>,
    pub mlp: Mlp,
}

/// What sets a layer apart from its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Is what it makes of the text read by nobody?
    pub last: bool,
    /// Does the picture also attend to itself alone?
    pub dual: bool,
}

/// Modules of the projections of one side.
struct Side {
    projections: [&'static str; 3],
    /// Norms of queries and keys.
    norms: [&'static str; 2],
    name: &'static str,
}

const PICTURE: Side =
    Side { projections: ["to_q", "to_k", "to_v"], norms: ["norm_q", "norm_k"], name: "picture" };
const TEXT: Side = Side {
    projections: ["add_q_proj", "add_k_proj", "add_v_proj"],
    norms: ["norm_added_q", "norm_added_k"],
    name: "text",
};

impl Joint {
    /// The layer on a picture and a text, called `output` and `text_output`.
    pub fn layer(
        &self,
        s: &mut Scope,
        kind: Kind,
        condition: Value,
        (picture, text): (Value, Value),
    ) -> Result<(Value, Option<Value>), Error> {
        let width = self.heads.width();
        let n = if kind.dual { 9 } else { 6 };
        let p = modulation(s, "norm1.linear", condition, width, n)?;
        let normed = modulated(s, picture, (p[0], p[1]), EPSILON, "normed")?;
        let mut of_text = s.part("text");
        let (n, module) = (if kind.last { 2 } else { 6 }, "norm1_context.linear");
        let t = modulation(&mut of_text, module, condition, width, n)?;
        // A text that ends here is only scaled and shifted, in this order.
        let parts = if kind.last { (t[1], t[0]) } else { (t[0], t[1]) };
        let text_normed = modulated(&mut of_text, text, parts, EPSILON, "normed")?;
        let both = Some((text_normed, kind.last));
        let (y, text_y) = self.attention(&mut s.inside("attn", "joint"), normed, both)?;
        let mut x = gated_sum(s, picture, p[2], y, "attention_sum")?;
        if kind.dual {
            let normed = modulated(s, picture, (p[6], p[7]), EPSILON, "dual_normed")?;
            let (y, _) = self.attention(&mut s.inside("attn2", "dual"), normed, None)?;
            x = gated_sum(s, x, p[8], y, "dual_sum")?;
        }
        let normed = modulated(s, x, (p[3], p[4]), EPSILON, "attention_normed")?;
        let y = self.mlp.build(s, "ff", normed, width)?;
        let x = gated_sum(s, x, p[5], y, "output")?;
        let Some(y) = text_y else { return Ok((x, None)) };
        let mut s = s.part("text");
        let sum = gated_sum(&mut s, text, t[2], y, "attention_sum")?;
        let normed = modulated(&mut s, sum, (t[3], t[4]), EPSILON, "attention_normed")?;
        let y = self.mlp.build(&mut s, "ff_context", normed, width)?;
        Ok((x, Some(gated_sum(&mut s, sum, t[5], y, "output")?)))
    }

    /// The attention of a picture, or of a picture and a text, which may not be read further.
    fn attention(
        &self,
        s: &mut Scope,
        picture: Value,
        text: Option<(Value, bool)>,
    ) -> Result<(Value, Option<Value>), Error> {
        let width = self.heads.width();
        let square = (width, width);
        let of_picture = self.heads_of(s, &PICTURE, picture, self.n_picture)?;
        let Some((text, ends)) = text else {
            let mixed = self.mixed(s, of_picture, self.n_picture)?;
            return Ok((s.linear("to_out.0", mixed, square, Bias::Present, "attention")?, None));
        };
        let of_text = self.heads_of(s, &TEXT, text, self.n_text)?;
        let all = self.n_picture + self.n_text;
        let mut joined = Vec::new();
        for (i, (p, t)) in of_picture.into_iter().zip(of_text).enumerate() {
            let both = match self.first {
                First::Picture => vec![p, t],
                First::Text => vec![t, p],
            };
            joined.push(s.concat(both, 2, &format!("both_{i}"))?);
        }
        let joined = [joined[0], joined[1], joined[2]];
        let mixed = self.mixed(s, joined, all)?;
        let (picture, text) = match self.first {
            First::Picture => ((0, self.n_picture), (self.n_picture, all)),
            First::Text => ((self.n_text, all), (0, self.n_text)),
        };
        let picture = s.slice(mixed, (1, 3), picture, "picture_mixed")?;
        let picture = s.linear("to_out.0", picture, square, Bias::Present, "attention")?;
        if ends {
            return Ok((picture, None));
        }
        let text = s.slice(mixed, (1, 3), text, "text_mixed")?;
        let text = s.linear("to_add_out", text, square, Bias::Present, "text_attention")?;
        Ok((picture, Some(text)))
    }

    /// Queries, keys and values in heads.
    fn heads_of(
        &self,
        s: &mut Scope,
        side: &Side,
        x: Value,
        length: u64,
    ) -> Result<[Value; 3], Error> {
        let (h, width) = (self.heads, self.heads.width());
        let mut s = s.part(side.name);
        let mut one = |i: usize, name: &str| {
            let module = side.projections[i];
            let y = s.linear(module, x, (width, width), Bias::Present, name)?;
            let mut y =
                s.reshape(y, &[h.batch, length, h.count, h.dim], &format!("{name}_split"))?;
            if self.normed && i < 2 {
                y = s.rms_norm(side.norms[i], y, (h.dim, EPSILON), &format!("{name}_unit"))?;
            }
            s.transpose(y, &[0, 2, 1, 3], &format!("{name}_heads"))
        };
        Ok([one(0, "query")?, one(1, "key")?, one(2, "value")?])
    }

    /// Mixed values with heads side by side, `[batch, length, width]`.
    fn mixed(
        &self,
        s: &mut Scope,
        [query, key, value]: [Value; 3],
        length: u64,
    ) -> Result<Value, Error> {
        let (query, key) = match self.turns {
            None => (query, key),
            Some(t) => (turned(s, t, query, "query")?, turned(s, t, key, "key")?),
        };
        let mixed = mixture(s, [query, key, value], Some(self.heads.scale()), &[])?;
        super::super::attention::merge(s, mixed, self.heads, length, "context")
    }

    /// The attention of a sequence that both have become, before any projection.
    pub fn of_one(&self, s: &mut Scope, x: Value) -> Result<Value, Error> {
        let length = self.n_picture + self.n_text;
        let heads = self.heads_of(s, &PICTURE, x, length)?;
        self.mixed(s, heads, length)
    }
}

/// Each pair of columns turned by its angle.
fn turned(s: &mut Scope, t: Turns, x: Value, name: &str) -> Result<Value, Error> {
    let along = s.mul(x, t.cos, &format!("{name}_along"))?;
    let cross = Matmul { x, y: t.crossing, transpose_x: false, transpose_y: false };
    let crossed = s.op(cross, &format!("{name}_crossed"))?;
    let across = s.mul(crossed, t.sin, &format!("{name}_across"))?;
    s.add(along, across, &format!("{name}_turned"))
}

/// What takes neighbours `(a, b)` to `(-b, a)`, a product from the right.
pub fn crossing(s: &mut Scope, dim: u64) -> Result<Value, Error> {
    let n = dim as usize;
    let mut table = vec![0.0; n * n];
    for i in (0..n.saturating_sub(1)).step_by(2) {
        table[(i + 1) * n + i] = -1.0;
        table[i * n + i + 1] = 1.0;
    }
    s.constant(Tensor::f32(vec![dim, dim], &table), "crossing")
}
