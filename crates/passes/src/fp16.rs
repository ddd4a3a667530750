//! Floats as fp16, the only type the Neural Engine computes in.

use std::collections::HashMap;

use russet_ir::ops::Cast;
use russet_ir::{DType, Edit, Graph, NodeId, Op, Tensor, Type, Value};

use crate::{Effect, Pass, Skip, angles};

/// Turns fp32 ops into fp16 ops between casts; casts that meet go at once.
///
/// Epsilons and small constants that would round to zero become the smallest fp16, 2^-24, since
/// they are there to keep a divisor from being zero.
pub struct ToFp16;

/// The smallest positive fp16.
const TINY: f32 = 5.960_464_5e-8;

/// Constants longer than this are weights: an element that rounds to zero is zero.
const N_EPSILONS: u64 = 400;

impl Pass for ToFp16 {
    fn name(&self) -> &'static str {
        "to-fp16"
    }

    fn reason(&self) -> &'static str {
        "the Neural Engine computes in fp16; fp32 ops run elsewhere"
    }

    /// Only constants are rounded when both sides run in f32: by 2^-11, of which sums whose terms
    /// cancel make more.
    fn effect(&self) -> Effect {
        Effect::Approximates(2e-2)
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let node = g.def(at).ok_or(Skip::NoMatch)?;
        if node.outputs[0] != at || !is_fp32_op(g, &node.op, &node.outputs) {
            return Err(Skip::NoMatch);
        }
        let mut edit = Edit::of(g);
        let op = narrow_op(g, &mut edit, &node.op)?;
        let name = &g.value(at).name;
        let narrow = edit.push_all(op, &format!("{name}_fp16"))?;
        // What a list holds has the list's type, whatever else the op reads.
        let types = edit.types();
        let dtype = |v: Value| types.tensor(v).map(|t| t.dtype);
        if narrow.iter().any(|&v| dtype(v) != Ok(DType::F16)) {
            return Err(Skip::NoMatch);
        }
        let mut widened = Vec::new();
        for (&old, &new) in node.outputs.iter().zip(&narrow) {
            let cast = Cast { x: new, dtype: DType::F32 };
            widened.push((old, edit.push(cast, &g.value(old).name)?));
        }
        // Casts of operands may serve other readers.
        let edit = node.op.operands().into_iter().fold(edit, Edit::keep);
        Ok(widened.into_iter().fold(edit, |edit, (old, new)| edit.replace(old, new)))
    }
}

/// Does the op make fp32 (not by merely widening fp16)? A range and what bounds it stay fp32: fp16
/// counts to 2048.
fn is_fp32_op(g: &Graph, op: &Op, outputs: &[Value]) -> bool {
    let fp32 = |v: &Value| g.ty(*v).tensor().is_some_and(|t| t.dtype == DType::F32);
    let widens = matches!(op, Op::Cast(c) if !g.ty(c.x).tensor().is_some_and(|t| t.dtype.is_int()
        || t.dtype == DType::Bool));
    // What a list or a state holds has the type it was made with, and a loop that of its variables.
    let held = op.operands().iter().any(|&v| g.ty(v).tensor().is_none());
    let bounds = |id: &NodeId| matches!(g.node(*id).op, Op::Range1d(_));
    let counts = outputs.iter().any(|&v| g.users(v).iter().any(bounds));
    outputs.iter().all(fp32)
        && !counts
        && !op.is_const()
        && !widens
        && !held
        && !angles::is_one(g, op, outputs)
        && !matches!(
            op,
            Op::Opaque(_) | Op::Cond(_) | Op::WhileLoop(_) | Op::Range1d(_) | Op::ConstexprCast(_)
        )
}

/// The op on fp16 operands.
fn narrow_op(g: &Graph, edit: &mut Edit<'_>, op: &Op) -> Result<Op, Skip> {
    let mut narrow: HashMap<Value, Value> = HashMap::new();
    for v in op.operands() {
        let Type::Tensor(ty) = g.ty(v) else { continue };
        if ty.dtype != DType::F32 || narrow.contains_key(&v) {
            continue;
        }
        let name = format!("{}_fp16", g.value(v).name);
        let new = match (g.op(v), g.constant(v)) {
            (Some(Op::Cast(Cast { x, .. })), _) if is_fp16(g, *x) => *x,
            (Some(Op::ConstexprCast(c)), _) if is_fp16(g, c.source_val) => c.source_val,
            (_, Some(t)) => edit.constant(narrow_constant(t, &g.value(v).name)?, &name),
            // A compressed weight is made of constants and compressed weights alone, and many ops
            // take no other weights: a cast would make a value of it.
            (weight, _) if op.is_constexpr() || weight.is_some_and(Op::is_constexpr) => {
                let name = &g.value(v).name;
                return Err(Skip::Blocked(format!("its weight `{name}` is compressed in fp32")));
            }
            _ => edit.push(Cast { x: v, dtype: DType::F16 }, &name)?,
        };
        narrow.insert(v, new);
    }
    let mut op = op.clone();
    op.map_values(&mut |v| narrow.get(&v).copied().unwrap_or(v));
    let raise = |epsilon: &mut f32| {
        if *epsilon > 0.0 {
            *epsilon = epsilon.max(TINY);
        }
    };
    let mut given = |operand: &mut Option<Value>, absent: f32| {
        let number = || Tensor::f32(vec![], &[absent]).cast(DType::F16);
        operand.get_or_insert_with(|| edit.constant(number(), "number_fp16"));
    };
    match &mut op {
        Op::Cast(op) => op.dtype = DType::F16,
        Op::LayerNorm(op) => raise(&mut op.epsilon),
        Op::Rsqrt(op) => raise(&mut op.epsilon),
        Op::Log(op) => raise(&mut op.epsilon),
        Op::Inverse(op) => raise(&mut op.epsilon),
        // Absent numbers are fp32.
        Op::Fill(op) => given(&mut op.value, 0.0),
        Op::FillLike(op) => given(&mut op.value, 0.0),
        Op::RandomBernoulli(op) => given(&mut op.prob, 0.5),
        Op::RandomNormal(op) => {
            given(&mut op.mean, 0.0);
            given(&mut op.stddev, 1.0);
        }
        Op::RandomUniform(op) => {
            given(&mut op.low, 0.0);
            given(&mut op.high, 1.0);
        }
        _ => {}
    }
    Ok(op)
}

fn is_fp16(g: &Graph, v: Value) -> bool {
    g.ty(v).tensor().is_some_and(|t| t.dtype == DType::F16)
}

/// The constant in fp16: lazily when it is long, checked when it is short.
fn narrow_constant(t: &Tensor, name: &str) -> Result<Tensor, Skip> {
    if t.n_elements() > N_EPSILONS {
        return Ok(t.cast(DType::F16));
    }
    let values = t.to_f32();
    if let Some(x) = values.iter().find(|x| x.is_finite() && x.abs() > 65504.0) {
        return Err(Skip::Blocked(format!("constant `{name}` holds {x}, fp16 ends at 65504")));
    }
    let vanishes = |x: f32| x != 0.0 && x.abs() < TINY;
    if !values.iter().any(|&x| vanishes(x)) {
        return Ok(t.cast(DType::F16));
    }
    let kept: Vec<f32> =
        values.iter().map(|&x| if vanishes(x) { TINY.copysign(x) } else { x }).collect();
    Ok(Tensor::f32(t.shape.clone(), &kept).cast(DType::F16))
}

/// Lets fp16 results leave the function as fp16, where the opset can say so.
pub struct Fp16Outputs;

impl Pass for Fp16Outputs {
    fn name(&self) -> &'static str {
        "fp16-outputs"
    }

    fn reason(&self) -> &'static str {
        "a cast to fp32 at the end copies every output once more"
    }

    fn effect(&self) -> Effect {
        Effect::Exact
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        match g.op(at) {
            Some(Op::Cast(op))
                if op.dtype == DType::F32
                    && g.outputs().contains(&at)
                    && is_fp16(g, op.x)
                    && !g.inputs().contains(&op.x) =>
            {
                if !g.users(at).is_empty() {
                    return Err(Skip::Blocked("the fp32 result is also used inside".into()));
                }
                Ok(Edit::of(g).replace(at, op.x))
            }
            _ => Err(Skip::NoMatch),
        }
    }
}
