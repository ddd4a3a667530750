//! How a model gets better: rewrites, each proven by running both sides.
//!
//! A [`Pass`] looks at one value and returns an [`Edit`](russet_ir::Edit) or a reason to decline.
//! [`compile`] runs the one ordered [`pipeline`] over a program: it applies each edit, verifies the
//! graph, runs both sides on the proof's inputs and refuses an edit that moves the result further
//! than the pass says it may.

mod activation;
mod angles;
mod attention;
mod batch_norm;
mod driver;
mod fold;
mod fp16;
mod integers;
mod layout;
mod linear;
mod masks;
mod names;
mod norm;
mod pipeline;
mod proof;

pub use activation::{FuseGelu, FuseSilu};
pub use attention::{AttentionPerHead, FuseAttention};
pub use batch_norm::FoldBatchNorm;
pub use driver::{Inputs, PassError, Report, Rewrite, Skipped, compile, run_pass};
pub use fold::{FoldConstants, FoldScale, RemoveNoops};
pub use fp16::{Fp16Outputs, ToFp16};
pub use integers::ScaleFirst;
pub use layout::{CancelLayout, LinearToConv, SinkLayout};
pub use linear::{FuseLinear, SplitLinear};
pub use masks::FiniteMasks;
pub use names::tidy_names;
pub use norm::{DecomposeNorm, FuseLayerNorm, FuseRmsNorm, NormOverChannels};
pub use pipeline::{Options, pipeline};
pub use proof::{Distance, Proof, distance, random_inputs};

use russet_ir::{Edit, Graph, OpError, Value};

/// One kind of rewrite.
pub trait Pass {
    /// What a user types to name it: `linear-to-conv`.
    fn name(&self) -> &'static str;

    /// Why one wants it, in a sentence.
    fn reason(&self) -> &'static str;

    /// How far it may move a result.
    fn effect(&self) -> Effect;

    /// Where the result is compared.
    fn proven_at(&self) -> ProvenAt {
        ProvenAt::Replaced
    }

    /// The edit that replaces `at`, or why there is none.
    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip>;
}

/// How far a rewrite may move a result in f32, as relative L2 distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// Not at all: every bit is the same.
    Exact,
    /// By the order in which sums are taken.
    Reorders,
    /// By at most this.
    Approximates(f64),
}

impl Effect {
    /// The largest relative L2 distance that is accepted.
    pub fn bound(self) -> f64 {
        match self {
            Effect::Exact => 0.0,
            Effect::Reorders => 1e-5,
            Effect::Approximates(bound) => bound,
        }
    }
}

/// Which values must agree after an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProvenAt {
    /// The replaced values themselves.
    Replaced,
    /// The outputs of the function: the replaced value is meant to differ (a mask's constant).
    Outputs,
}

/// Why a pass leaves a value alone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Skip {
    /// Not what the pass looks for; not worth a word.
    #[error("no match")]
    NoMatch,
    #[error("no gain: {0}")]
    NoGain(String),
    /// What the pass looks for, but something stands in its way.
    #[error("blocked: {0}")]
    Blocked(String),
}

/// An op the edit wanted cannot be typed: the pattern was not what it looked like.
impl From<OpError> for Skip {
    fn from(e: OpError) -> Skip {
        Skip::Blocked(e.to_string())
    }
}

/// May `existing` take the place of `at`? Not where two outputs would become one value, or an
/// output an input: each has a name of its own.
fn keeps_interface(g: &Graph, at: Value, existing: Value) -> Result<(), Skip> {
    if g.is_output(at) && (g.inputs().contains(&existing) || g.is_output(existing)) {
        return Err(Skip::Blocked("two names of the interface would be one value".into()));
    }
    Ok(())
}
