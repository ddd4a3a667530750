//! Tensors while running: a shape and numbers of one of three kinds.

use russet_ir::{DType, Tensor};

/// A tensor of numbers in memory, rows last.
///
/// Floats of every width are held as f32 (what an fp16 value may hold is the arithmetic's matter),
/// integers of every width as i32.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Numbers,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    F32(Vec<f32>),
    I32(Vec<i32>),
    Bool(Vec<bool>),
}

impl Numbers {
    /// The elements at these places, which are all there.
    pub(crate) fn pick(&self, places: &[usize]) -> Numbers {
        match self {
            Numbers::F32(x) => Numbers::F32(places.iter().map(|&i| x[i]).collect()),
            Numbers::I32(x) => Numbers::I32(places.iter().map(|&i| x[i]).collect()),
            Numbers::Bool(x) => Numbers::Bool(places.iter().map(|&i| x[i]).collect()),
        }
    }
}

impl Array {
    /// # Panics
    /// When there are not as many numbers as the shape has.
    pub fn f32(shape: Vec<usize>, data: Vec<f32>) -> Array {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "as many numbers as the shape has");
        Array { shape, data: Numbers::F32(data) }
    }

    /// # Panics
    /// When there are not as many numbers as the shape has.
    pub fn i32(shape: Vec<usize>, data: Vec<i32>) -> Array {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "as many numbers as the shape has");
        Array { shape, data: Numbers::I32(data) }
    }

    /// # Panics
    /// When there are not as many numbers as the shape has.
    pub fn bool(shape: Vec<usize>, data: Vec<bool>) -> Array {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "as many numbers as the shape has");
        Array { shape, data: Numbers::Bool(data) }
    }

    pub fn n_elements(&self) -> usize {
        // Zero first: the product of the others may overflow.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// The floats; `None` of integers and booleans.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.data {
            Numbers::F32(x) => Some(x),
            _ => None,
        }
    }

    /// The integers; `None` of floats and booleans.
    pub fn as_i32(&self) -> Option<&[i32]> {
        match &self.data {
            Numbers::I32(x) => Some(x),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<&[bool]> {
        match &self.data {
            Numbers::Bool(x) => Some(x),
            _ => None,
        }
    }

    /// A constant as an array; integers outside i32 are saturated. `None` of strings, and of shapes
    /// that nothing could be computed on.
    pub fn from_tensor(t: &Tensor) -> Option<Array> {
        let shape: Vec<usize> =
            t.shape.iter().map(|&d| usize::try_from(d).ok()).collect::<Option<_>>()?;
        crate::ops::checked_len(&shape).ok()?;
        let data = match t.dtype {
            DType::String => return None,
            DType::Bool => Numbers::Bool(t.to_bytes().iter().map(|&b| b != 0).collect()),
            d if d.is_float() => Numbers::F32(t.to_f32()),
            _ => {
                let saturated = |i: i64| i.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                Numbers::I32(t.to_i64()?.into_iter().map(saturated).collect())
            }
        };
        Some(Array { shape, data })
    }

    /// The array as a tensor of `dtype`, rounded to it; integers are truncated to its width.
    ///
    /// `None` when the kinds differ (floats as integers, say) or the type is packed or a string.
    pub fn to_tensor(&self, dtype: DType) -> Option<Tensor> {
        let shape: Vec<u64> = self.shape.iter().map(|&d| d as u64).collect();
        let bytes: Vec<u8> = match (&self.data, dtype) {
            (Numbers::F32(x), d) if d.is_float() => {
                let t = Tensor::f32(shape, x);
                return matches!(d, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
                    .then(|| t.cast(d));
            }
            (Numbers::Bool(x), DType::Bool) => x.iter().map(|&b| b.into()).collect(),
            (Numbers::I32(x), DType::I32 | DType::U32) => {
                x.iter().flat_map(|i| i.to_le_bytes()).collect()
            }
            (Numbers::I32(x), DType::I64 | DType::U64) => {
                x.iter().flat_map(|&i| i64::from(i).to_le_bytes()).collect()
            }
            (Numbers::I32(x), DType::I16 | DType::U16) => {
                x.iter().flat_map(|&i| (i as i16).to_le_bytes()).collect()
            }
            (Numbers::I32(x), DType::I8 | DType::U8) => x.iter().map(|&i| i as u8).collect(),
            _ => return None,
        };
        Tensor::new(dtype, shape, bytes.into()).ok()
    }
}
