//! Masks that stay finite in fp16.

use russet_ir::ops::{Add, Mul, Select};
use russet_ir::{Edit, Graph, Op, Tensor, Value};

use crate::{Effect, Pass, ProvenAt, Skip};

/// Brings mask constants such as -3.4e38 or -inf to a value that fp16 holds and that still masks.
///
/// In fp16 they are -inf, and 0 * -inf is NaN. Scores of attention are far above -1e4, so
/// exp(score - 1e4) is 0 as well.
pub struct FiniteMasks;

/// Low enough to mask, far from the 32768 at which products become infinite.
const MASK: f32 = -1e4;

/// From here on a constant is a mask or a mistake.
const LARGEST: f32 = 32752.0;

impl Pass for FiniteMasks {
    fn name(&self) -> &'static str {
        "finite-masks"
    }

    fn reason(&self) -> &'static str {
        "a mask of -inf turns into NaN in fp16"
    }

    fn effect(&self) -> Effect {
        Effect::Approximates(1e-6)
    }

    /// The mask itself is meant to differ; what it masks is not.
    fn proven_at(&self) -> ProvenAt {
        ProvenAt::Outputs
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let op = g.op(at).ok_or(Skip::NoMatch)?;
        let (Op::Mul(Mul { x, y }) | Op::Add(Add { x, y }) | Op::Select(Select { a: x, b: y, .. })) =
            op
        else {
            return Err(Skip::NoMatch);
        };
        let Some(mask) = [*x, *y].into_iter().find(|&v| is_mask(g, v)) else {
            return Err(Skip::NoMatch);
        };
        if is_rounded(g, at) {
            let why = "it is rounded to steps, whose size goes by the mask".to_owned();
            return Err(Skip::Blocked(why));
        }
        let finite = clamp(g.constant(mask).ok_or(Skip::NoMatch)?)?;
        let mut edit = Edit::of(g);
        let finite = edit.constant(finite, &format!("{}_finite", g.value(mask).name));
        let mut op = op.clone();
        op.map_values(&mut |v| if v == mask { finite } else { v });
        let new = edit.push(op, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}

/// Readers looked through for one that rounds.
const READERS_MAX: usize = 64;

/// Does a quantizer read the mask before a softmax does?
fn is_rounded(g: &Graph, at: Value) -> bool {
    let mut work = vec![at];
    for _ in 0..READERS_MAX {
        let Some(v) = work.pop() else { return false };
        for node in g.users(v).iter().map(|&id| g.node(id)) {
            match node.op {
                Op::Quantize(_) | Op::Round(_) => return true,
                Op::Add(_)
                | Op::Mul(_)
                | Op::RealDiv(_)
                | Op::Reshape(_)
                | Op::ExpandDims(_)
                | Op::Tile(_) => work.extend(&node.outputs),
                _ => {}
            }
        }
    }
    false
}

/// Constants looked at for mask values: larger ones are weights.
const N_MAX: u64 = 1 << 22;

fn is_mask(g: &Graph, v: Value) -> bool {
    let t = g.constant(v).filter(|t| t.can_be_derived() && t.n_elements() <= N_MAX);
    t.is_some_and(|t| t.to_f32().iter().any(|&x| x < -LARGEST))
}

fn clamp(t: &Tensor) -> Result<Tensor, Skip> {
    let values = t.to_f32();
    if let Some(x) = values.iter().find(|&&x| x > LARGEST || x.is_nan()) {
        return Err(Skip::Blocked(format!("the constant also holds {x}: it is no mask")));
    }
    let finite: Vec<f32> = values.iter().map(|&x| if x < -LARGEST { MASK } else { x }).collect();
    Ok(Tensor::f32(t.shape.clone(), &finite).cast(t.dtype))
}
