//! Comparison, truth values, choices, casts.

use russet_ir::ops::*;
use russet_ir::{DType, Opset, Value};

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::Why;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" => compare,
        "And" | "Or" | "Xor" => combine,
        "Not" => not,
        "Where" => where_,
        "IsNaN" => is_nan,
        "IsInf" => is_inf,
        "Cast" | "CastLike" => cast,
        "BitShift" => shift,
        "BitwiseNot" => bitwise_not,
        "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" => bitwise,
        _ => return None,
    })
}

fn compare(cx: &mut Cx<'_, '_>) -> Outs {
    let (mut x, mut y) = (cx.x(0)?, cx.x(1)?);
    if cx.dtype(x) == DType::Bool {
        (x, y) = (cx.cast(x, DType::I32)?, cx.cast(y, DType::I32)?);
    }
    let z = match cx.op {
        "Equal" => cx.push(Equal { x, y })?,
        "Greater" => cx.push(Greater { x, y })?,
        "Less" => cx.push(Less { x, y })?,
        "GreaterOrEqual" => cx.push(GreaterEqual { x, y })?,
        _ => cx.push(LessEqual { x, y })?,
    };
    cx.one(z, Elem::Bool)
}

fn combine(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let z = match cx.op {
        "And" => cx.push(LogicalAnd { x, y })?,
        "Or" => cx.push(LogicalOr { x, y })?,
        _ => cx.push(LogicalXor { x, y })?,
    };
    cx.one(z, Elem::Bool)
}

fn not(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let y = cx.push(LogicalNot { x })?;
    cx.one(y, Elem::Bool)
}

fn where_(cx: &mut Cx<'_, '_>) -> Outs {
    let (cond, a, b) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let y = cx.select(cond, a, b)?;
    cx.one(y, cx.elem(1))
}

fn is_nan(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let y = cx.push(NotEqual { x, y: x })?;
    cx.one(y, Elem::Bool)
}

fn is_inf(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (positive, negative) = (cx.flag("detect_positive", true), cx.flag("detect_negative", true));
    let (which, infinity) = match (positive, negative) {
        (true, true) => (cx.push(Abs { x })?, f64::INFINITY),
        (true, false) => (x, f64::INFINITY),
        (false, true) => (x, f64::NEG_INFINITY),
        // Never: nothing is unequal to itself and equal to itself.
        (false, false) => {
            let y = cx.push(Less { x, y: x })?;
            return cx.one(y, Elem::Bool);
        }
    };
    let infinity = cx.number(infinity, x)?;
    let y = cx.push(Equal { x: which, y: infinity })?;
    cx.one(y, Elem::Bool)
}

fn cast(cx: &mut Cx<'_, '_>) -> Outs {
    let to = match cx.op {
        "CastLike" => cx.elem(1),
        _ => Elem::from_code(i32::try_from(cx.int_attr("to", 0)).unwrap_or(0))?,
    };
    let from = cx.elem(0);
    if to == Elem::Str || from == Elem::Str {
        return Err(Why::from("MIL computes nothing with strings"));
    }
    if from == to {
        return Ok(vec![super::super::importer::Out::Same(cx.val(0)?)]);
    }
    let small_float = matches!(to, Elem::F8E4M3 | Elem::F8E5M2);
    if small_float {
        return Err(Why(format!("MIL rounds nothing to {}", to.name())));
    }
    let x = cx.x(0)?;
    let y = to_elem(cx, x, to)?;
    cx.one(y, to)
}

/// `x` as another type; integers keep their low bits.
pub fn to_elem(cx: &mut Cx<'_, '_>, x: Value, to: Elem) -> Result<Value, Why> {
    let dtype = to.computed();
    if dtype == DType::Bool && cx.dtype(x) != DType::Bool {
        let zero = cx.number(0.0, x)?;
        return cx.push(NotEqual { x, y: zero });
    }
    if cx.opset < Opset::Ios16 && dtype == DType::F16 {
        return Err(Why::from("fp16 is computed with from iOS 16 on"));
    }
    let y = cx.cast(x, dtype)?;
    cx.wrap(y, to)
}

/// A product with a power of two, or the quotient by one.
fn shift(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, by) = (cx.x(0)?, cx.x(1)?);
    let elem = cx.elem(0);
    let two = cx.int_like(2)?;
    let power = cx.push(Pow { x: two, y: by })?;
    if cx.text_attr("direction", "") == "RIGHT" {
        let y = cx.push(FloorDiv { x, y: power })?;
        return cx.same(y);
    }
    let y = cx.mul(x, power)?;
    cx.wrapped(y, elem)
}

/// `-1 - x`, or the largest minus `x`.
fn bitwise_not(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let elem = cx.elem(0);
    let all_ones = match elem {
        Elem::U8 => 255,
        Elem::U16 => 65535,
        Elem::U32 | Elem::U64 => return Err(Why(format!("{} has no place in MIL", elem.name()))),
        _ => -1,
    };
    let ones = cx.int_like(all_ones)?;
    let y = cx.sub(ones, x)?;
    cx.same(y)
}

/// Bit by bit, for types of at most 16 bits: MIL has no op on bits.
fn bitwise(cx: &mut Cx<'_, '_>) -> Outs {
    let (mut x, mut y) = (cx.x(0)?, cx.x(1)?);
    let elem = cx.elem(0);
    if elem == Elem::Bool {
        return combine_bits(cx, x, y, elem);
    }
    let n_bits = match elem.narrow() {
        Some(d) => d.bits() as u32,
        None => return Err(Why(format!("MIL has no op on the bits of {}", elem.name()))),
    };
    // From the top: what is left below is less than the next power.
    let signed = elem.range().0 < 0;
    let span = 1i32 << n_bits;
    let mut total: Option<Value> = None;
    if signed {
        let span = cx.int_like(span)?;
        (x, y) = (cx.push(Mod { x, y: span })?, cx.push(Mod { x: y, y: span })?);
    }
    for bit in (0..n_bits).rev() {
        let power = cx.int_like(1 << bit)?;
        let (a, b) = (cx.push(FloorDiv { x, y: power })?, cx.push(FloorDiv { x: y, y: power })?);
        (x, y) = (cx.push(Mod { x, y: power })?, cx.push(Mod { x: y, y: power })?);
        let one = match cx.op {
            "BitwiseAnd" => cx.mul(a, b)?,
            "BitwiseOr" => cx.max(a, b)?,
            _ => {
                let difference = cx.sub(a, b)?;
                cx.push(Abs { x: difference })?
            }
        };
        let place = cx.mul(one, power)?;
        total = Some(match total {
            Some(t) => cx.add(t, place)?,
            None => place,
        });
    }
    let total = total.ok_or("no bits")?;
    cx.wrapped(total, elem)
}

fn combine_bits(cx: &mut Cx<'_, '_>, x: Value, y: Value, elem: Elem) -> Outs {
    let z = match cx.op {
        "BitwiseAnd" => cx.push(LogicalAnd { x, y })?,
        "BitwiseOr" => cx.push(LogicalOr { x, y })?,
        _ => cx.push(LogicalXor { x, y })?,
    };
    cx.one(z, elem)
}
