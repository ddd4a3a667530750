//! Small constants as numbers: what shapes are made with, exactly as ONNX counts them (int64).

use half::{bf16, f16};
use russet_ir::Tensor;

use super::elem::Elem;

/// Elements up to which constants are evaluated while a model is read; passes fold larger ones.
pub const N_MAX: usize = 4096;

/// A small constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Lit {
    pub elem: Elem,
    pub shape: Vec<usize>,
    pub data: Data,
}

/// Integers and truth values as i64, floats of every width as f64.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::Ints(v) => v.len(),
            Data::Floats(v) => v.len(),
        }
    }

    /// The elements at these places.
    pub fn pick(&self, places: &[usize]) -> Option<Data> {
        Some(match self {
            Data::Ints(v) => {
                Data::Ints(places.iter().map(|&i| v.get(i).copied()).collect::<Option<_>>()?)
            }
            Data::Floats(v) => {
                Data::Floats(places.iter().map(|&i| v.get(i).copied()).collect::<Option<_>>()?)
            }
        })
    }
}

impl Lit {
    pub fn ints(elem: Elem, shape: Vec<usize>, values: Vec<i64>) -> Lit {
        Lit { elem, shape, data: Data::Ints(values) }
    }

    /// The numbers of a constant, if they are few.
    pub fn of(t: &Tensor, elem: Elem) -> Option<Lit> {
        if t.n_elements() > N_MAX as u64 || elem == Elem::Str {
            return None;
        }
        let shape = t.shape.iter().map(|&d| d as usize).collect();
        let data = if elem == Elem::F64 {
            let bytes = t.to_bytes();
            let words = bytes.chunks_exact(8).map(|c| c.try_into().unwrap_or_default());
            Data::Floats(words.map(f64::from_le_bytes).collect())
        } else if elem.is_float() {
            Data::Floats(t.to_f32().into_iter().map(f64::from).collect())
        } else {
            Data::Ints(t.to_i64()?)
        };
        Some(Lit { elem, shape, data })
    }

    /// As a tensor of the stored type.
    pub fn tensor(&self) -> Option<Tensor> {
        let shape = self.shape.iter().map(|&d| d as u64).collect();
        use Elem::*;
        let bytes: Vec<u8> = match (&self.data, self.elem) {
            (Data::Floats(v), F64) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            (Data::Floats(v), F32) => v.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
            (Data::Floats(v), F16) => {
                v.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect()
            }
            (Data::Floats(v), BF16) => {
                v.iter().flat_map(|&x| bf16::from_f64(x).to_le_bytes()).collect()
            }
            (Data::Ints(v), I64 | U64) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            (Data::Ints(v), I32 | U32) => {
                v.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect()
            }
            (Data::Ints(v), I16 | U16) => {
                v.iter().flat_map(|&x| (x as i16).to_le_bytes()).collect()
            }
            (Data::Ints(v), I8 | U8) => v.iter().map(|&x| x as u8).collect(),
            (Data::Ints(v), Bool) => v.iter().map(|&x| u8::from(x != 0)).collect(),
            _ => return None,
        };
        Tensor::new(self.elem.stored(), shape, bytes.into()).ok()
    }

    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Ints(v) => Some(v),
            Data::Floats(_) => None,
        }
    }

    pub fn as_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::Ints(v) => v.iter().map(|&i| i as f64).collect(),
            Data::Floats(v) => v.clone(),
        }
    }

    /// The same numbers as another type: floats to integers towards zero, integers to their low
    /// bits.
    pub fn cast(&self, to: Elem) -> Option<Lit> {
        let data = match &self.data {
            Data::Floats(v) if to.is_float() => {
                Data::Floats(v.iter().map(|&x| rounded(x, to)).collect())
            }
            Data::Ints(v) if to.is_float() => {
                Data::Floats(v.iter().map(|&x| rounded(x as f64, to)).collect())
            }
            Data::Floats(v) if to == Elem::Bool => {
                Data::Ints(v.iter().map(|&x| i64::from(x != 0.0)).collect())
            }
            Data::Floats(v) if to.is_int() => {
                Data::Ints(v.iter().map(|&x| wrapped(x as i64, to)).collect())
            }
            Data::Ints(v) if to.is_int() || to == Elem::Bool => {
                Data::Ints(v.iter().map(|&x| wrapped(x, to)).collect())
            }
            _ => return None,
        };
        Some(Lit { elem: to, shape: self.shape.clone(), data })
    }
}

/// `x` as the float type holds it.
pub fn rounded(x: f64, elem: Elem) -> f64 {
    match elem {
        Elem::F32 => f64::from(x as f32),
        Elem::F16 => f16::from_f64(x).to_f64(),
        Elem::BF16 => bf16::from_f64(x).to_f64(),
        _ => x,
    }
}

/// The low bits of `x`.
pub fn wrapped(x: i64, elem: Elem) -> i64 {
    match elem {
        Elem::Bool => i64::from(x != 0),
        Elem::U8 => i64::from(x as u8),
        Elem::I8 => i64::from(x as i8),
        Elem::U16 => i64::from(x as u16),
        Elem::I16 => i64::from(x as i16),
        Elem::I32 => i64::from(x as i32),
        Elem::U32 => i64::from(x as u32),
        _ => x,
    }
}

/// The place of each element of `shape` in a row-major tensor of shape `from` that broadcasts to it.
pub fn places(from: &[usize], shape: &[usize]) -> Option<Vec<usize>> {
    let n = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= N_MAX)?;
    let skipped = shape.len().checked_sub(from.len())?;
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for i in (0..from.len()).rev() {
        strides[skipped + i] = if from[i] == 1 { 0 } else { step };
        step *= from[i];
        if from[i] != 1 && from[i] != shape[skipped + i] {
            return None;
        }
    }
    let place = |mut at: usize| {
        let mut place = 0;
        for i in (0..shape.len()).rev() {
            place += at % shape[i] * strides[i];
            at /= shape[i];
        }
        place
    };
    Some((0..n).map(place).collect())
}

/// The shape two shapes broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}
