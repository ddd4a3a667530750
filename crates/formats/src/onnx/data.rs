//! Contents of tensors: slices of the mapped file, or of files beside it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use russet_ir::{DType, Tensor};

use super::Why;
use super::elem::Elem;
use super::proto::{SparseTensorProto, TensorProto};
use crate::mapped;

/// Where contents are that are not in the model's own file.
pub struct Files {
    /// None when the model is bytes alone: then nothing else is read.
    folder: Option<PathBuf>,
    open: RefCell<HashMap<String, Bytes>>,
}

impl Files {
    pub fn beside(model: Option<&Path>) -> Files {
        Files { folder: model.map(mapped::folder_of), open: RefCell::default() }
    }

    /// Bytes of all files opened so far.
    pub fn n_bytes(&self) -> u64 {
        self.open.borrow().values().map(|b| b.len() as u64).sum()
    }

    /// The file `location`, which must lie in the model's folder.
    fn get(&self, location: &str) -> Result<Bytes, Why> {
        if let Some(b) = self.open.borrow().get(location) {
            return Ok(b.clone());
        }
        let path = Path::new(location);
        let inside =
            path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let escapes = || Why(format!("its data is in {location:?}, outside of the model's folder"));
        if location.is_empty() || !inside {
            return Err(escapes());
        }
        let Some(folder) = &self.folder else {
            return Err(Why(format!("its data is in {location:?}, which is not at hand")));
        };
        let missing = |e: &dyn std::fmt::Display| Why(format!("its data, {location:?}: {e}"));
        let full = folder.join(path);
        // A link may lead out of the folder too.
        let real = full.canonicalize().map_err(|e| missing(&e))?;
        let root = folder.canonicalize().map_err(|e| missing(&e))?;
        if !real.starts_with(&root) {
            return Err(escapes());
        }
        let bytes = mapped::open(&full).map_err(|e| missing(&e))?;
        self.open.borrow_mut().insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }

    fn external(&self, t: &TensorProto) -> Result<Bytes, Why> {
        let entry = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| &e.value);
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(s) => s.parse::<usize>().map(Some).map_err(|_| Why(format!("its {key} is {s:?}"))),
        };
        let location = entry("location").ok_or("its data is elsewhere, nothing says where")?;
        let file = self.get(location)?;
        let start = number("offset")?.unwrap_or(0);
        let end = match number("length")? {
            Some(n) => start.checked_add(n),
            None => Some(file.len()),
        };
        let range = end.filter(|&end| start <= end && end <= file.len());
        let end = range.ok_or_else(|| Why(format!("its data ends beyond {location:?}")))?;
        Ok(file.slice(start..end))
    }
}

/// The shape of a tensor; extents are not negative.
fn shape(dims: &[i64]) -> Result<Vec<u64>, Why> {
    let shape: Option<Vec<u64>> = dims.iter().map(|&d| u64::try_from(d).ok()).collect();
    shape.ok_or_else(|| Why(format!("its shape is {dims:?}")))
}

/// The contents of `t` as they are stored, and their type.
pub fn tensor(t: &TensorProto, files: &Files) -> Result<(Tensor, Elem), Why> {
    let elem = Elem::from_code(t.data_type)?;
    let shape = shape(&t.dims)?;
    let wrong = |e: russet_ir::SizeError| Why(format!("its contents: {e}"));
    if elem == Elem::Str {
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let strings = t.string_data.iter().map(text).collect();
        return Ok((Tensor::strings(shape, strings).map_err(wrong)?, elem));
    }
    let bytes = match t.data_location {
        1 => files.external(t)?,
        _ if !t.raw_data.is_empty() => t.raw_data.clone(),
        _ => fields(t, elem).into(),
    };
    let bytes = match elem {
        // Any byte but 0 is true.
        Elem::Bool if bytes.iter().any(|&b| b > 1) => {
            bytes.iter().map(|&b| u8::from(b != 0)).collect::<Vec<u8>>().into()
        }
        _ => bytes,
    };
    Ok((Tensor::new(elem.stored(), shape, bytes).map_err(wrong)?, elem))
}

/// Elements out of the fields that hold them one by one.
fn fields(t: &TensorProto, elem: Elem) -> Vec<u8> {
    let ints = &t.int32_data;
    match elem.stored() {
        DType::F32 => t.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F64 => t.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I64 => t.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::U64 => t.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::U32 => t.uint64_data.iter().flat_map(|&x| (x as u32).to_le_bytes()).collect(),
        DType::I32 => ints.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F16 | DType::BF16 | DType::I16 | DType::U16 => {
            ints.iter().flat_map(|&x| (x as u16).to_le_bytes()).collect()
        }
        _ => ints.iter().map(|&x| x as u8).collect(),
    }
}

/// A sparse tensor, made dense.
pub fn sparse(t: &SparseTensorProto, files: &Files) -> Result<(Tensor, Elem), Why> {
    /// Elements of a dense tensor made of a sparse one: the file does not bound them.
    const DENSE_MAX: u64 = 1 << 24;
    let values = t.values.as_ref().ok_or("it has no values")?;
    let (values, elem) = tensor(values, files)?;
    let indices = t.indices.as_ref().ok_or("it has no indices")?;
    let (indices, _) = tensor(indices, files)?;
    let shape = shape(&t.dims)?;
    let n = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).filter(|&n| n <= DENSE_MAX);
    let n = n.ok_or_else(|| Why(format!("a sparse tensor of shape {shape:?} is too large")))?;
    let width = values.dtype.bits() / 8;
    if width == 0 {
        return Err(Why(format!("sparse {} has no dense form here", elem.name())));
    }
    let flat = indices.to_i64().ok_or("its indices are no integers")?;
    let n_values = values.n_elements() as usize;
    let places: Vec<i64> = match indices.shape.as_slice() {
        [_] => flat,
        [_, rank] if *rank as usize == shape.len() => {
            let place = |row: &[i64]| {
                row.iter()
                    .zip(&shape)
                    .fold(0i64, |at, (&i, &d)| at.saturating_mul(d as i64).saturating_add(i))
            };
            flat.chunks_exact((*rank).max(1) as usize).map(place).collect()
        }
        other => return Err(Why(format!("its indices have shape {other:?}"))),
    };
    if places.len() != n_values {
        return Err(Why(format!("{n_values} values at {} places", places.len())));
    }
    let width = width as usize;
    let mut bytes = vec![0u8; n as usize * width];
    let from = values.to_bytes();
    for (i, &at) in places.iter().enumerate() {
        let at = usize::try_from(at).ok().filter(|&at| (at as u64) < n);
        let at = at.ok_or("an index of it is outside")? * width;
        bytes[at..at + width].copy_from_slice(&from[i * width..][..width]);
    }
    let dense = Tensor::new(values.dtype, shape, bytes.into());
    Ok((dense.map_err(|e| Why(e.to_string()))?, elem))
}

/// The contents as the type they are computed with. Integers that do not fit int32 become the
/// nearest that does: they stand for "to the end" in slices and for "nothing" in masks.
pub fn computed(t: &Tensor, elem: Elem) -> Result<Tensor, Why> {
    let dtype = elem.computed();
    if t.dtype == dtype {
        return Ok(t.clone());
    }
    if dtype == DType::F32 && t.dtype.is_float() {
        return Ok(t.cast(DType::F32));
    }
    let ints = match (dtype, t.dtype) {
        // Beyond i64 they would read as negative.
        (DType::I32, DType::U64) => {
            let words = t.to_bytes();
            let words = words.chunks_exact(8).map(|c| c.try_into().unwrap_or_default());
            Some(words.map(|c| u64::from_le_bytes(c).min(i32::MAX as u64) as i64).collect())
        }
        (DType::I32, _) => t.to_i64(),
        _ => None,
    };
    let ints = ints.ok_or_else(|| Why(format!("{} has no place in MIL", elem.name())))?;
    let saturated = |i: i64| i.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let ints: Vec<i32> = ints.into_iter().map(saturated).collect();
    Ok(Tensor::i32(t.shape.clone(), &ints))
}
