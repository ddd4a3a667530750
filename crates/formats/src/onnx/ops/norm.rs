//! Norms: over batches, instances, layers, groups, vectors and neighbours.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Value};

use super::super::cx::{Cx, Import, Outs, Part, saturated, small};
use super::super::elem::Elem;
use super::super::importer::{Out, Why};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "BatchNormalization" => batch,
        "InstanceNormalization" => instance,
        "LayerNormalization" => layer,
        "GroupNormalization" => group,
        // The second name is ONNX Runtime's, of before there was the first.
        "RMSNormalization" | "SimplifiedLayerNormalization" => rms,
        "LRN" => neighbours,
        "LpNormalization" => vectors,
        "MeanVarianceNormalization" => mean_variance,
        _ => return None,
    })
}

fn batch(cx: &mut Cx<'_, '_>) -> Outs {
    if cx.flag("training_mode", false) {
        return Err(Why::from("it trains: its mean and variance are those of the batch"));
    }
    if cx.version < 9 && !cx.flag("spatial", true) {
        return Err(Why::from("a norm of each place by itself (spatial=0) has no op in MIL"));
    }
    let x = cx.x(0)?;
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let mut vectors = Vec::new();
    for i in 1..5 {
        let v = cx.x(i)?;
        let dtype = cx.dtype(x);
        vectors.push(cx.cast(v, dtype)?);
    }
    let [gamma, beta, mean, variance] = vectors[..] else { return Err(Why::from("operands")) };
    // The op of MIL has one to three axes behind the channels.
    let rank = cx.rank(x);
    let wide = if rank == 2 { cx.expand_dims(x, &[2])? } else { x };
    let (gamma, beta) = (Some(gamma), Some(beta));
    let y = cx.push(BatchNorm { x: wide, mean, variance, gamma, beta, epsilon })?;
    let y = if rank == 2 { cx.squeeze(y, &[2])? } else { y };
    cx.same(y)
}

fn instance(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, gamma, beta) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let y = cx.push(InstanceNorm { x, gamma: Some(gamma), beta: Some(beta), epsilon })?;
    cx.same(y)
}

/// `x` shifted to mean 0 and scaled to variance 1 over `axes`, with its mean and `1 / deviation`.
pub fn normalized(
    cx: &mut Cx<'_, '_>,
    x: Value,
    axes: &[usize],
    epsilon: f32,
) -> Result<(Value, Value, Value), Why> {
    let mean = cx.mean(x, axes)?;
    let centred = cx.sub(x, mean)?;
    let square = cx.push(Square { x: centred })?;
    let variance = cx.mean(square, axes)?;
    let inverse = cx.push(Rsqrt { x: variance, epsilon })?;
    Ok((cx.mul(centred, inverse)?, mean, inverse))
}

/// Is `v` a vector (or what the axes have) that the op of MIL takes as it is?
fn fits(cx: &Cx<'_, '_>, v: Option<Value>, over: &[Dim]) -> bool {
    v.is_none_or(|v| cx.shape(v) == over)
}

/// The norm over the axes from `axis` on; `gamma` and `beta` broadcast.
pub fn layer_norm(
    cx: &mut Cx<'_, '_>,
    x: Value,
    axis: usize,
    (gamma, beta): (Option<Value>, Option<Value>),
    epsilon: f32,
) -> Result<Value, Why> {
    let axes: Vec<usize> = (axis..cx.rank(x)).collect();
    let over = cx.shape(x)[axis..].to_vec();
    if fits(cx, gamma, &over) && fits(cx, beta, &over) {
        return cx.push(LayerNorm { x, axes: Some(small(&axes)), gamma, beta, epsilon });
    }
    let (mut y, _, _) = normalized(cx, x, &axes, epsilon)?;
    if let Some(gamma) = gamma {
        y = cx.mul(y, gamma)?;
    }
    match beta {
        Some(beta) => cx.add(y, beta),
        None => Ok(y),
    }
}

fn layer(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int_attr("axis", -1))?;
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let (gamma, beta) = (cx.opt(1)?, cx.opt(2)?);
    let y = layer_norm(cx, x, axis, (gamma, beta), epsilon)?;
    let mut outs = vec![Out::Value(y, cx.elem(0))];
    if cx.outputs.iter().skip(1).any(|&named| named) {
        let wide = cx.cast(x, DType::F32)?;
        let axes: Vec<usize> = (axis..cx.rank(x)).collect();
        let (_, mean, inverse) = normalized(cx, wide, &axes, epsilon)?;
        outs.extend([Out::Value(mean, Elem::F32), Out::Value(inverse, Elem::F32)]);
    }
    Ok(outs)
}

/// `x / sqrt(mean(x^2) + epsilon) * gamma`.
pub fn rms_norm(
    cx: &mut Cx<'_, '_>,
    x: Value,
    axis: usize,
    gamma: Option<Value>,
    epsilon: f32,
) -> Result<(Value, Value), Why> {
    let axes: Vec<usize> = (axis..cx.rank(x)).collect();
    let square = cx.push(Square { x })?;
    let mean = cx.mean(square, &axes)?;
    let inverse = cx.push(Rsqrt { x: mean, epsilon })?;
    let y = cx.mul(x, inverse)?;
    match gamma {
        Some(gamma) => Ok((cx.mul(y, gamma)?, inverse)),
        None => Ok((y, inverse)),
    }
}

fn rms(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, gamma) = (cx.x(0)?, cx.opt(1)?);
    let axis = cx.axis(x, cx.int_attr("axis", -1))?;
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let (y, _) = rms_norm(cx, x, axis, gamma, epsilon)?;
    cx.same(y)
}

fn group(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, gamma, beta) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let groups = u64::try_from(cx.int_attr("num_groups", 1)).unwrap_or(0);
    let channels = cx.need_extent(x, 1, "a norm of groups")?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(Why(format!("{channels} channels in {groups} groups")));
    }
    let parts = cx.parts(x);
    // Each group with all its places as one row.
    let rows = match parts[1..].iter().all(|p| cx.is_fixed(*p)) {
        true => {
            let n: u64 = cx.shape(x)[1..].iter().filter_map(Dim::fixed).product();
            cx.reshape(x, &[parts[0], Part::N(groups), Part::N(n / groups)])?
        }
        false => cx.reshape(x, &[parts[0], Part::N(groups), Part::Rest])?,
    };
    let (y, _, _) = normalized(cx, rows, &[2], epsilon)?;
    // Before opset 21 scale and shift were one number for each group.
    let per_group =
        cx.version < 21 && cx.shape(gamma) == [Dim::Fixed(groups)] && groups != channels;
    if per_group {
        let (gamma, beta) = (cx.expand_dims(gamma, &[1])?, cx.expand_dims(beta, &[1])?);
        let y = cx.mul(y, gamma)?;
        let y = cx.add(y, beta)?;
        let y = cx.reshape(y, &parts)?;
        return cx.same(y);
    }
    let y = cx.reshape(y, &parts)?;
    let behind: Vec<usize> = (1..cx.rank(x) - 1).collect();
    let (gamma, beta) = (cx.expand_dims(gamma, &behind)?, cx.expand_dims(beta, &behind)?);
    let y = cx.mul(y, gamma)?;
    let y = cx.add(y, beta)?;
    cx.same(y)
}

/// `x / (bias + alpha / size * sum(x^2))^beta` over neighbouring channels.
fn neighbours(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let size = saturated(cx.int_attr("size", 1));
    let (alpha, beta) = (cx.float_attr("alpha", 1e-4), cx.float_attr("beta", 0.75));
    let k = cx.float_attr("bias", 1.0);
    if size % 2 == 0 {
        return Err(Why(format!("an even number of neighbours ({size}) is not one-sided in MIL")));
    }
    let y = cx.push(LocalResponseNorm { x, size, alpha, beta, k })?;
    cx.same(y)
}

/// `x / |x|` along an axis; zero vectors stay zero.
fn vectors(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int_attr("axis", -1))?;
    let axes = Some(small(&[axis]));
    let norm = match cx.int_attr("p", 2) {
        1 => cx.push(ReduceL1Norm { x, axes, keep_dims: true })?,
        2 => cx.push(ReduceL2Norm { x, axes, keep_dims: true })?,
        p => return Err(Why(format!("the norm of order {p} has no op in MIL"))),
    };
    let zero = cx.number(0.0, norm)?;
    let nothing = cx.push(Equal { x: norm, y: zero })?;
    let one = cx.number(1.0, norm)?;
    let norm = cx.select(nothing, one, norm)?;
    let y = cx.div(x, norm)?;
    cx.same(y)
}

/// `(x - mean) / (sqrt(mean(x^2) - mean^2) + 1e-9)`.
fn mean_variance(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axes = cx.attrs.ints("axes").map_or(vec![0, 2, 3], <[i64]>::to_vec);
    let axes = cx.axes(x, &axes)?;
    let mean = cx.mean(x, &axes)?;
    let centred = cx.sub(x, mean)?;
    let square = cx.push(Square { x: centred })?;
    let variance = cx.mean(square, &axes)?;
    let deviation = cx.push(Sqrt { x: variance })?;
    let deviation = cx.offset(deviation, 1e-9)?;
    let y = cx.div(centred, deviation)?;
    cx.same(y)
}
