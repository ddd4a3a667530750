//! Folding: what is known before running is computed before running.

use russet_ir::ops::{Add, Conv, Linear, Mul};
use russet_ir::{Edit, Graph, Op, Tensor, Type, Value};

use crate::{Effect, Pass, Skip};

/// Replaces shape arithmetic and slices of constants by their results.
pub struct FoldConstants;

/// Elements up to which a folded constant may grow beyond the constants it is made of.
const GROWTH_MAX: u64 = 1024;

impl Pass for FoldConstants {
    fn name(&self) -> &'static str {
        "fold-constants"
    }

    fn reason(&self) -> &'static str {
        "what is known before running need not run, and dynamic slices run on the CPU"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let op = g.op(at).ok_or(Skip::NoMatch)?;
        let one = g.def(at).is_none_or(|n| n.outputs.len() == 1);
        if op.is_const() || op.is_random() || !one {
            return Err(Skip::NoMatch);
        }
        let folded = known(g, at).or_else(|| rows(g, op, at)).or_else(|| computed(g, op, at));
        let mut edit = Edit::of(g);
        let new = edit.constant(folded.ok_or(Skip::NoMatch)?, &g.value(at).name);
        Ok(edit.replace(at, new))
    }
}

/// Shape arithmetic whose every element is a number.
fn known(g: &Graph, at: Value) -> Option<Tensor> {
    let ty = g.ty(at).tensor()?;
    let ints = g.types().ints(at)?;
    if ty.dtype != russet_ir::DType::I32 {
        return None;
    }
    let ints: Option<Vec<i32>> = ints.into_iter().map(|i| i32::try_from(i).ok()).collect();
    Some(Tensor::i32(ty.fixed_shape()?, &ints?))
}

/// A slice of a constant that is a run of its bytes: nothing is computed, nothing copied.
fn rows(g: &Graph, op: &Op, at: Value) -> Option<Tensor> {
    let Op::SliceBySize(op) = op else { return None };
    let (x, types) = (g.constant(op.x)?, g.types());
    // Rows of sub-byte elements may begin within a byte.
    if x.dtype != russet_ir::DType::String && x.dtype.bits() < 8 {
        return None;
    }
    let (begin, out) = (types.ints(op.begin)?, g.ty(at).tensor()?.fixed_shape()?);
    // Leading axes of extent 1, then the axis that is cut, then whole axes.
    let cut = (0..out.len()).find(|&i| out[i] != x.shape[i])?;
    let whole = |i: usize| begin[i] == 0 && out[i] == x.shape[i];
    if !(0..out.len()).all(|i| i == cut || (whole(i) && (i > cut || out[i] == 1))) {
        return None;
    }
    let rows = x.reshaped(x.shape[cut..].to_vec());
    Some(rows.rows(u64::try_from(begin[cut]).ok()?, out[cut]).reshaped(out))
}

/// A small op on constants, run.
fn computed(g: &Graph, op: &Op, at: Value) -> Option<Tensor> {
    let Type::Tensor(ty) = g.ty(at) else { return None };
    let operands = op.operands();
    let inputs: Option<Vec<u64>> =
        operands.iter().map(|&v| Some(g.constant(v)?.n_elements())).collect();
    let largest = inputs?.into_iter().max()?;
    let n = ty.n_elements()?;
    if n > largest.max(GROWTH_MAX) || n.max(largest) > 1 << 20 {
        return None;
    }
    let result = russet_exec::evaluate(g, op).ok()?;
    result.into_iter().next()?.to_tensor(ty.dtype)
}

/// Removes ops that change nothing.
pub struct RemoveNoops;

impl Pass for RemoveNoops {
    fn name(&self) -> &'static str {
        "remove-noops"
    }

    fn reason(&self) -> &'static str {
        "an op that changes nothing still costs a task"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let same = match g.op(at).ok_or(Skip::NoMatch)? {
            Op::Identity(op) => op.x,
            Op::Cast(op) if g.ty(op.x) == g.ty(at) => op.x,
            Op::Reshape(op) if g.ty(op.x) == g.ty(at) && rank(g, at) > 0 => op.x,
            Op::Transpose(op) if op.perm.iter().copied().eq(0..op.perm.len() as i32) => op.x,
            Op::Mul(Mul { x, y }) if g.ty(*x) == g.ty(at) && is_scalar(g, *y, 1.0) => *x,
            Op::Add(Add { x, y }) if g.ty(*x) == g.ty(at) && is_scalar(g, *y, 0.0) => *x,
            _ => return Err(Skip::NoMatch),
        };
        crate::keeps_interface(g, at, same)?;
        Ok(Edit::of(g).replace(at, same))
    }
}

fn rank(g: &Graph, v: Value) -> usize {
    g.shape(v).len()
}

fn is_scalar(g: &Graph, v: Value, number: f32) -> bool {
    g.constant(v).filter(|t| t.dtype.is_float()).and_then(Tensor::item_f32) == Some(number)
}

/// Multiplies the weights of a linear layer or convolution once, instead of its output each time.
pub struct FoldScale;

impl Pass for FoldScale {
    fn name(&self) -> &'static str {
        "fold-scale"
    }

    fn reason(&self) -> &'static str {
        "a factor known before running costs nothing inside the weights"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::Mul(mul)) = g.op(at) else { return Err(Skip::NoMatch) };
        let factor = |v| g.constant(v).filter(|t| t.dtype.is_float()).and_then(Tensor::item_f32);
        let (product, k) = match (factor(mul.x), factor(mul.y)) {
            (None, Some(k)) => (mul.x, k),
            (Some(k), None) => (mul.y, k),
            _ => return Err(Skip::NoMatch),
        };
        if g.ty(product) != g.ty(at) {
            return Err(Skip::NoMatch);
        }
        let mut edit = Edit::of(g);
        let mut scaled = |v: Value| {
            let t = g.constant(v).filter(|t| t.can_be_derived()).ok_or(Skip::NoMatch)?;
            Ok::<Value, Skip>(edit.constant(t.scaled(k), &format!("{}_scaled", g.value(v).name)))
        };
        let op: Op = match g.op(product) {
            Some(Op::Conv(op)) => {
                let weight = scaled(op.weight)?;
                let bias = op.bias.map(scaled).transpose()?;
                Conv { weight, bias, ..op.clone() }.into()
            }
            Some(Op::Linear(op)) => {
                let weight = scaled(op.weight)?;
                let bias = op.bias.map(scaled).transpose()?;
                Linear { weight, bias, ..op.clone() }.into()
            }
            _ => return Err(Skip::NoMatch),
        };
        let new = edit.push(op, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}
