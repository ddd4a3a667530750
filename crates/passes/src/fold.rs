//! Folding: what is known before running is computed before running.

use russet_ir::ops::{Add, Conv, GatherNd, Linear, Mul, Reshape};
use russet_ir::{DType, Edit, Graph, Op, Tensor, Type, Value};

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
            Op::Cast(op) => back_and_forth(g, op.x, at).ok_or(Skip::NoMatch)?,
            Op::LogicalAnd(op) => unchanged_by(g, [op.x, op.y], at, 1).ok_or(Skip::NoMatch)?,
            Op::LogicalOr(op) => unchanged_by(g, [op.x, op.y], at, 0).ok_or(Skip::NoMatch)?,
            Op::Tile(op) if g.ty(op.x) == g.ty(at) => op.x,
            Op::Gather(op) if in_order(g, op.indices, 1) && g.ty(op.x) == g.ty(at) => op.x,
            Op::GatherNd(op) if op.batch_dims == 0 => return all_elements(g, op, at),
            _ => return Err(Skip::NoMatch),
        };
        crate::keeps_interface(g, at, same)?;
        Ok(Edit::of(g).replace(at, same))
    }
}

/// What is cast to integers and back to what it was: truth values survive that.
fn back_and_forth(g: &Graph, wide: Value, at: Value) -> Option<Value> {
    let Op::Cast(inner) = g.op(wide)? else { return None };
    let truth = g.ty(at).tensor()?.dtype == DType::Bool;
    (truth && g.ty(inner.x) == g.ty(at)).then_some(inner.x)
}

/// The operand that stays what it is, all elements of the other being `neutral`.
fn unchanged_by(g: &Graph, [x, y]: [Value; 2], at: Value, neutral: i64) -> Option<Value> {
    let is = |v: Value| {
        let t = g.constant(v).filter(|t| t.n_elements() <= 1 << 20);
        t.and_then(Tensor::to_i64).is_some_and(|all| all.iter().all(|&i| i == neutral))
    };
    let kept = if is(y) { x } else { is(x).then_some(y)? };
    (g.ty(kept) == g.ty(at)).then_some(kept)
}

/// Are these indices 0, 1, 2 and so on, in `rank` axes at most?
fn in_order(g: &Graph, indices: Value, rank: usize) -> bool {
    let t = g.constant(indices).filter(|t| t.shape.len() <= rank && t.n_elements() <= 1 << 20);
    let all = t.and_then(Tensor::to_i64);
    all.is_some_and(|all| all.iter().zip(0..).all(|(&i, at)| i == at))
}

/// A gather of every element in the order in which they lie is a reshape.
fn all_elements<'g>(g: &'g Graph, op: &GatherNd, at: Value) -> Result<Edit<'g>, Skip> {
    let fixed = |v: Value| g.ty(v).tensor().and_then(russet_ir::TensorType::fixed_shape);
    let (from, to) = (fixed(op.x).ok_or(Skip::NoMatch)?, fixed(at).ok_or(Skip::NoMatch)?);
    let t = g.constant(op.indices).filter(|t| t.n_elements() <= 1 << 20).ok_or(Skip::NoMatch)?;
    let places = t.to_i64().ok_or(Skip::NoMatch)?;
    let whole = t.shape.last() == Some(&(from.len() as u64)) && !from.is_empty();
    if !whole || from.iter().product::<u64>() != t.n_elements() / from.len() as u64 {
        return Err(Skip::NoMatch);
    }
    let place = |p: &[i64]| {
        let inside = |i: i64, n: u64| u64::try_from(i).ok().filter(|&i| i < n);
        p.iter().zip(&from).try_fold(0, |at, (&i, &n)| Some(at * n + inside(i, n)?))
    };
    if !places.chunks_exact(from.len()).zip(0..).all(|(p, at)| place(p) == Some(at)) {
        return Err(Skip::NoMatch);
    }
    let shape: Option<Vec<i32>> = to.iter().map(|&n| i32::try_from(n).ok()).collect();
    let shape = Tensor::i32(vec![to.len() as u64], &shape.ok_or(Skip::NoMatch)?);
    let mut edit = Edit::of(g);
    let name = &g.value(at).name;
    let shape = edit.constant(shape, &format!("{name}_shape"));
    let new = edit.push(Reshape { x: op.x, shape }, name)?;
    Ok(edit.replace(at, new))
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
