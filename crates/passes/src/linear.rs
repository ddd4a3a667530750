//! Linear layers, as converters write them out.

use russet_ir::ops::{Linear, Reshape, Split};
use russet_ir::{Dim, Edit, Graph, Op, Tensor, Type, Value};

use crate::{Effect, Pass, Skip};

/// Makes linear layers of products with constant matrices, of what adds a bias to them, and of
/// those with a change of shape in front and its opposite behind.
pub struct FuseLinear;

impl Pass for FuseLinear {
    fn name(&self) -> &'static str {
        "fuse-linear"
    }

    fn reason(&self) -> &'static str {
        "a linear layer can become a convolution, a product with any matrix cannot"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let new = match g.op(at).ok_or(Skip::NoMatch)? {
            Op::Matmul(_) => product(g, at),
            Op::Add(op) => {
                biased(g, op.x, op.y, at).or_else(|| biased(g, op.y, op.x, at)).map(Made::of)
            }
            Op::Reshape(_) => return on_rows(g, at),
            _ => None,
        };
        let Made { linear, weight } = new.ok_or(Skip::NoMatch)?;
        let mut edit = Edit::of(g);
        let weight = match weight {
            Some(t) => edit.constant(t, &g.value(linear.weight).name),
            None => linear.weight,
        };
        let new = edit.push(Linear { weight, ..linear }, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}

fn on_rows(g: &Graph, at: Value) -> Result<Edit<'_>, Skip> {
    let (mut linear, shape) = reshaped(g, at).ok_or(Skip::NoMatch)?;
    let name = &g.value(at).name;
    let mut edit = Edit::of(g);
    if let Some(shape) = shape {
        let shape = Tensor::i32(vec![shape.len() as u64], &shape);
        let shape = edit.constant(shape, &format!("{name}_rows_shape"));
        linear.x = edit.push(Reshape { x: linear.x, shape }, &format!("{name}_rows"))?;
    }
    let new = edit.push(linear, name)?;
    Ok(edit.replace(at, new))
}

/// A layer, and its weight when that is to be made.
struct Made {
    linear: Linear,
    weight: Option<Tensor>,
}

impl Made {
    fn of(linear: Linear) -> Made {
        Made { linear, weight: None }
    }
}

/// `x` times a constant matrix `[K, N]`, or `[N, K]` read the other way.
fn product(g: &Graph, at: Value) -> Option<Made> {
    let Op::Matmul(op) = g.op(at)? else { return None };
    let x = g.ty(op.x).tensor()?;
    if op.transpose_x || !x.dtype.is_float() || x.shape.len() < 2 {
        return None;
    }
    // A matrix that is only turned is read as it lies.
    let (matrix, turned) = match g.op(op.y)? {
        Op::Transpose(t) if t.perm == [1, 0] => (t.x, !op.transpose_y),
        _ => (op.y, op.transpose_y),
    };
    let t = g.constant(matrix).filter(|t| t.shape.len() == 2 && t.dtype == x.dtype)?;
    let weight = match turned {
        true => None,
        false if t.can_be_transposed() => Some(t.transposed()),
        false => return None,
    };
    Some(Made { linear: Linear { x: op.x, weight: matrix, bias: None }, weight })
}

/// A layer without a bias, and a constant vector added to its columns.
fn biased(g: &Graph, product: Value, bias: Value, at: Value) -> Option<Linear> {
    let Op::Linear(op) = g.op(product)? else { return None };
    let (t, columns) = (g.constant(bias)?, g.shape(product).last()?.fixed()?);
    let vector = t.shape == [columns] && g.ty(product) == g.ty(at);
    (op.bias.is_none() && vector).then(|| Linear { bias: Some(bias), ..op.clone() })
}

/// Rows brought together, multiplied and brought apart again: the layer works on rows anyway. What
/// it reads then, and the shape that is to have first, where it is not what was brought together.
fn reshaped(g: &Graph, at: Value) -> Option<(Linear, Option<Vec<i32>>)> {
    let Op::Reshape(outer) = g.op(at)? else { return None };
    let Op::Linear(op) = g.op(outer.x)? else { return None };
    let Op::Reshape(inner) = g.op(op.x)? else { return None };
    let (from, rows, to) = (g.shape(inner.x), g.shape(op.x), g.shape(at));
    let (columns, after) = (rows.last()?, to.split_last()?);
    if g.shape(outer.x).last() != Some(after.0) || to.len() < 2 {
        return None;
    }
    let linear = Linear { x: inner.x, ..op.clone() };
    if from.split_last()? == (columns, after.1) {
        return Some((linear, None));
    }
    // Heads that are joined at once with the rows.
    let wanted = after.1.iter().chain([columns]);
    let shape: Option<Vec<i32>> = wanted.map(|d| i32::try_from(d.fixed()?).ok()).collect();
    (to.len() != rows.len()).then_some((linear, Some(shape?)))
}

/// Cuts a linear layer whose columns are taken apart at once into one layer for each part.
pub struct SplitLinear;

impl Pass for SplitLinear {
    fn name(&self) -> &'static str {
        "split-linear"
    }

    fn reason(&self) -> &'static str {
        "queries, keys and values that are made apart need not be cut out of one result"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::Split(split)) = g.op(at) else { return Err(Skip::NoMatch) };
        let Some(Op::Linear(op)) = g.op(split.x) else { return Err(Skip::NoMatch) };
        let parts = parts(g, split, at).ok_or(Skip::NoMatch)?;
        let weight = whole_rows(g, op.weight)?;
        let bias = op.bias.map(|b| whole_rows(g, b)).transpose()?;
        let mut edit = Edit::of(g);
        let mut start = 0;
        for (old, n) in parts {
            let name = g.value(old).name.clone();
            let weight = edit.constant(weight.rows(start, n), &format!("{name}_weight"));
            let bias = bias.map(|b| edit.constant(b.rows(start, n), &format!("{name}_bias")));
            let new = edit.push(Linear { x: op.x, weight, bias }, &name)?;
            edit = edit.replace(old, new);
            start += n;
        }
        Ok(edit)
    }
}

/// The parts of a split along the last axis, with their columns; at its first output only, which
/// stands for all of them.
fn parts(g: &Graph, split: &Split, at: Value) -> Option<Vec<(Value, u64)>> {
    let outputs = &g.def(at)?.outputs;
    let rank = g.shape(split.x).len() as i32;
    let last = split.axis == -1 || split.axis == rank - 1;
    let columns = |&v: &Value| match g.ty(v) {
        Type::Tensor(t) => Some((v, t.shape.last().and_then(Dim::fixed)?)),
        _ => None,
    };
    (last && outputs.first() == Some(&at)).then(|| outputs.iter().map(columns).collect())?
}

/// A constant that can be cut into rows.
fn whole_rows(g: &Graph, v: Value) -> Result<&Tensor, Skip> {
    let t = g.constant(v).ok_or_else(|| Skip::Blocked("its weight is computed".into()))?;
    match t.dtype.bits() >= 8 {
        true => Ok(t),
        false => Err(Skip::Blocked("its rows may begin inside a byte".into())),
    }
}
