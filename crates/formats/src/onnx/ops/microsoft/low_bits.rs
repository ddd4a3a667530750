//! Weights of few bits in blocks, each with its scale: they stay as they are, as `constexpr_` ops.

use russet_ir::ops::*;
use russet_ir::{DType, Opset, Tensor, Value};

use super::super::super::cx::{Cx, Import, Outs, Part};
use super::super::super::elem::Elem;
use super::super::super::importer::Why;
use super::super::movement::{padded, take};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "MatMulNBits" => matmul,
        "MatMulBnb4" => matmul_of_floats,
        "GatherBlockQuantized" => gather,
        _ => return None,
    })
}

/// A matrix `[N, K]` of small integers, `K` in blocks.
struct Blocks {
    n: u64,
    k: u64,
    size: u64,
    bits: i64,
    count: u64,
}

impl Blocks {
    fn of(cx: &Cx<'_, '_>, bits: i64) -> Result<Blocks, Why> {
        if cx.opset < Opset::Ios18 {
            return Err(Why::from("weights in blocks of integers need iOS 18"));
        }
        unsigned(bits)?;
        let at = |name: &str| u64::try_from(cx.int_attr(name, 0).min(1 << 30)).unwrap_or(0);
        let (k, n, size) = (at("K"), at("N"), at("block_size").max(1));
        if n == 0 || k == 0 || !(size * bits as u64).is_multiple_of(8) {
            return Err(Why(format!("{n} by {k} numbers in blocks of {size}")));
        }
        Ok(Blocks { n, k, size, bits, count: k.div_ceil(size) })
    }

    /// Columns with those that fill the last block.
    fn columns(&self) -> u64 {
        self.count * self.size
    }
}

/// A linear layer whose weights are integers, each block with its scale and zero point.
fn matmul(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let blocks = Blocks::of(cx, cx.int_attr("bits", 4))?;
    let packed = cx.tensor(1).ok_or("its weights are not constant")?;
    let scales = cx.tensor(2).ok_or("its scales are not constant")?;
    if scales.n_elements() != blocks.n * blocks.count || !scales.can_be_derived() {
        let (n, count) = (blocks.n, blocks.count);
        return Err(Why(format!("{} scales for {n} by {count} blocks", scales.n_elements())));
    }
    let order = order(cx, &blocks)?;
    let data = rows(&packed, (blocks.n, blocks.columns()), blocks.bits, order.as_deref())?;
    let like = cx.dtype(x);
    let scale = scales.reshaped(vec![blocks.n, blocks.count]).cast(like);
    let zero = zero_points(cx, &blocks)?;
    // Columns in the order of the weights, and zeros for those the last block has too many.
    let mut x = x;
    if let Some(order) = &order {
        let places: Vec<i64> = order.iter().map(|&i| i as i64).collect();
        let (places, last) = (cx.vector(&places)?, cx.rank(x) - 1);
        x = take(cx, x, places, last)?;
    }
    if blocks.columns() != blocks.k {
        let mut pads = vec![(0, 0); cx.rank(x)];
        let last = pads.last_mut().ok_or("a product of a number")?;
        last.1 = (blocks.columns() - blocks.k) as i64;
        x = padded(cx, x, &pads, "constant", 0.0)?;
    }
    let (weight, left) = weight(cx, data, scale, zero)?;
    let bias = cx.opt(5)?;
    let mut y = cx.push(Linear { x, weight, bias })?;
    if let Some(left) = left {
        let less = shift(cx, x, &blocks, left)?;
        y = cx.sub(y, less)?;
    }
    cx.same(y)
}

/// What is taken from the integers of each block.
enum Zero {
    Integers(Tensor),
    Floats(Tensor),
}

fn zero_points(cx: &Cx<'_, '_>, blocks: &Blocks) -> Result<Zero, Why> {
    let shape = (blocks.n, blocks.count);
    Ok(match cx.tensor(3) {
        Some(z) if z.dtype == DType::U8 => Zero::Integers(rows(&z, shape, blocks.bits, None)?),
        Some(z) if z.dtype.is_float() && z.n_elements() == shape.0 * shape.1 => {
            Zero::Floats(z.reshaped(vec![shape.0, shape.1]))
        }
        Some(z) => return Err(Why(format!("zero points {} for {shape:?} blocks", z.ty()))),
        None => Zero::Integers(middle(vec![shape.0, shape.1], blocks.bits)?),
    })
}

/// The weights as floats; and where zero points are floats, which that op has not, what is to be
/// taken from each block: zero point times scale.
fn weight(
    cx: &mut Cx<'_, '_>,
    data: Tensor,
    scale: Tensor,
    zero: Zero,
) -> Result<(Value, Option<Tensor>), Why> {
    if data.dtype == DType::U2 {
        let zeros = match &zero {
            Zero::Integers(z) | Zero::Floats(z) => z.to_f32(),
        };
        // Integers of two bits are looked up, no other op takes them.
        let both = scale.to_f32().into_iter().zip(zeros);
        let all: Vec<f32> =
            both.flat_map(|(s, z)| (0..4).map(move |i| (i as f32 - z) * s)).collect();
        return Ok((looked_up(cx, data, &all, &scale)?, None));
    }
    let (offset, left) = match zero {
        Zero::Integers(z) => (Some(cx.constant(z)?), None),
        Zero::Floats(z) => {
            let products = z.to_f32().into_iter().zip(scale.to_f32()).map(|(z, s)| z * s);
            let left = Tensor::f32(scale.shape.clone(), &products.collect::<Vec<f32>>());
            (None, Some(left.cast(scale.dtype)))
        }
    };
    let (data, scale) = (cx.constant(data)?, cx.constant(scale)?);
    Ok((cx.push(ConstexprBlockwiseShiftScale { data, scale, offset })?, left))
}

/// Numbers by index, a table for each block; `scale` has the blocks' extents and the type.
fn looked_up(
    cx: &mut Cx<'_, '_>,
    indices: Tensor,
    table: &[f32],
    scale: &Tensor,
) -> Result<Value, Why> {
    let mut shape = scale.shape.clone();
    shape.extend([table.len() as u64 / scale.n_elements().max(1), 1]);
    let lut = cx.constant(Tensor::f32(shape, table).cast(scale.dtype))?;
    let indices = cx.constant(indices)?;
    cx.push(ConstexprLutToDense { indices, lut, vector_axis: None })
}

/// The sums of blocks of `x`, times what each block's integers are too large by.
fn shift(cx: &mut Cx<'_, '_>, x: Value, blocks: &Blocks, left: Tensor) -> Result<Value, Why> {
    let mut parts = cx.parts(x);
    let last = parts.len() - 1;
    parts.splice(last.., [Part::N(blocks.count), Part::N(blocks.size)]);
    let apart = cx.reshape(x, &parts)?;
    let axes = Some(vec![-1]);
    let sums = cx.push(ReduceSum { x: apart, axes, keep_dims: false })?;
    let weight = cx.constant(left)?;
    cx.push(Linear { x: sums, weight, bias: None })
}

/// `g_idx`, the block of each column, as the order in which the blocks have them; None when that is
/// their own.
fn order(cx: &Cx<'_, '_>, blocks: &Blocks) -> Result<Option<Vec<usize>>, Why> {
    let Some(of) = cx.opt_ints(4, "g_idx")? else { return Ok(None) };
    let own = (0..blocks.k).map(|i| (i / blocks.size) as i64);
    if of.iter().copied().eq(own) {
        return Ok(None);
    }
    let mut order: Vec<usize> = (0..of.len()).collect();
    order.sort_by_key(|&i| of[i]);
    let full = order
        .chunks(blocks.size as usize)
        .zip(0..)
        .all(|(c, b)| c.len() as u64 == blocks.size && c.iter().all(|&i| of[i] == b));
    match full && of.len() as u64 == blocks.columns() && blocks.columns() == blocks.k {
        true => Ok(Some(order)),
        false => Err(Why::from("`g_idx` makes blocks of different sizes")),
    }
}

/// Integers packed row by row, each row beginning a byte, as a tensor `[n, k]` of the type of that
/// many bits; the columns in another order if there is one.
fn rows(t: &Tensor, (n, k): (u64, u64), bits: i64, order: Option<&[usize]>) -> Result<Tensor, Why> {
    let dtype = unsigned(bits)?;
    let bytes = t.to_bytes();
    let row = (k * bits as u64).div_ceil(8);
    let stored = (bytes.len() as u64).checked_div(n);
    let stored = stored.filter(|&s| s >= row && s.checked_mul(n) == Some(bytes.len() as u64));
    let Some(stored) = stored else {
        return Err(Why(format!("{} bytes for {n} by {k} numbers of {bits} bits", bytes.len())));
    };
    let whole = (k * bits as u64).is_multiple_of(8);
    let kept = match (order, whole) {
        (None, true) if stored == row => bytes,
        (None, true) => {
            let rows = bytes.chunks_exact(stored as usize);
            rows.flat_map(|r| &r[..row as usize]).copied().collect::<Vec<u8>>().into()
        }
        _ => {
            let mut packed = vec![0u8; dtype.bytes(n * k).unwrap_or(0) as usize];
            let (bits, mask) = (bits as usize, ((1u16 << bits) - 1) as u8);
            let mut at = 0;
            for r in bytes.chunks_exact(stored as usize) {
                for j in 0..k as usize {
                    let from = order.map_or(j, |o| o[j]) * bits;
                    let number = r[from / 8] >> (from % 8) & mask;
                    packed[at / 8] |= number << (at % 8);
                    at += bits;
                }
            }
            packed.into()
        }
    };
    Tensor::new(dtype, vec![n, k], kept).map_err(|e| Why(e.to_string()))
}

fn unsigned(bits: i64) -> Result<DType, Why> {
    Ok(match bits {
        2 => DType::U2,
        4 => DType::U4,
        8 => DType::U8,
        other => return Err(Why(format!("weights of {other} bits"))),
    })
}

/// The zero point that is meant when none is given: half the range.
fn middle(shape: Vec<u64>, bits: i64) -> Result<Tensor, Why> {
    let byte = match bits {
        2 => 0xaa,
        4 => 0x88,
        _ => 0x80,
    };
    let dtype = unsigned(bits)?;
    let n_bytes = dtype.bytes(shape.iter().product()).unwrap_or(0) as usize;
    Tensor::new(dtype, shape, vec![byte; n_bytes].into()).map_err(|e| Why(e.to_string()))
}

/// The sixteen numbers of bitsandbytes' `fp4`.
const FP4: [f32; 16] = [
    0.0,
    5.208_333_4e-3,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -5.208_333_4e-3,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];
/// Those of its `nf4`: quantiles of a normal distribution (QLoRA, arXiv 2305.14314, appendix E).
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A linear layer whose weights are one of sixteen numbers, times a scale for each block.
fn matmul_of_floats(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let blocks = Blocks::of(cx, 4)?;
    let numbers = if cx.int_attr("quant_type", 1) == 0 { FP4 } else { NF4 };
    let packed = cx.tensor(1).ok_or("its weights are not constant")?;
    let scales = cx.tensor(2).ok_or("its scales are not constant")?;
    if blocks.columns() != blocks.k
        || scales.n_elements() != blocks.n * blocks.count
        || !cx.flag("transB", true)
        || !scales.can_be_derived()
    {
        return Err(Why::from("blocks that go beyond a row are not read"));
    }
    // The first of two numbers is in the high bits.
    let turned: Vec<u8> = packed.to_bytes().iter().map(|b| b.rotate_left(4)).collect();
    let data = Tensor::new(DType::U4, vec![blocks.n, blocks.k], turned.into());
    let data = data.map_err(|e| Why(e.to_string()))?;
    let like = cx.dtype(x);
    let scale = scales.reshaped(vec![blocks.n, blocks.count]).cast(like);
    let all: Vec<f32> =
        scale.to_f32().iter().flat_map(|s| numbers.map(|number| number * s)).collect();
    let weight = looked_up(cx, data, &all, &scale)?;
    let y = cx.push(Linear { x, weight, bias: None })?;
    cx.same(y)
}

/// Rows of a table of integers in blocks.
fn gather(cx: &mut Cx<'_, '_>) -> Outs {
    if cx.opset < Opset::Ios18 {
        return Err(Why::from("weights in blocks of integers need iOS 18"));
    }
    let elem = cx.elem(0);
    let table = cx.tensor(0).ok_or("its table is not constant")?;
    let scale = cx.tensor(2).ok_or("its scales are not constant")?;
    let bits = if elem == Elem::U8 { cx.int_attr("bits", 4) } else { 4 };
    unsigned(bits)?;
    let rank = table.shape.len();
    if rank == 0 || scale.shape.len() != rank || !scale.can_be_derived() {
        return Err(Why(format!("scales {} for a table {}", scale.ty(), table.ty())));
    }
    // Bytes hold several numbers of the last axis.
    let apart = |t: &Tensor, columns: u64| -> Result<Tensor, Why> {
        if t.dtype != DType::U8 {
            return Ok(t.clone());
        }
        let mut shape = t.shape.clone();
        shape[rank - 1] = columns;
        let n = shape[..rank - 1].iter().product();
        rows(t, (n, columns), bits, None).map(|t| t.reshaped(shape))
    };
    let columns = match elem {
        Elem::U8 => table.shape[rank - 1].checked_mul(8).ok_or("a table too wide")? / bits as u64,
        _ => table.shape[rank - 1],
    };
    let data = apart(&table, columns)?;
    let offset = match cx.tensor(3) {
        Some(z) => Some(apart(&z, scale.shape[rank - 1])?),
        None if elem == Elem::U8 => Some(middle(scale.shape.clone(), bits)?),
        None => None,
    };
    let offset = match offset {
        Some(z) if z.dtype == data.dtype && z.shape == scale.shape => Some(cx.constant(z)?),
        Some(z) => return Err(Why(format!("zero points {} for scales {}", z.ty(), scale.ty()))),
        None => None,
    };
    let out = cx.elem(2);
    let (data, scale) = (cx.constant(data)?, cx.constant(scale)?);
    let table = cx.push(ConstexprBlockwiseShiftScale { data, scale, offset })?;
    let axis = cx.axis(table, cx.int_attr("gather_axis", 0))?;
    let indices = cx.x(1)?;
    let y = take(cx, table, indices, axis)?;
    cx.one(y, out)
}
