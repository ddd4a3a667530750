//! Tensors in `.safetensors` files: one file, or several with an index.
//!
//! A file is eight bytes of header length, the header (JSON: dtype, shape and place of every
//! tensor), the data. Tensors are views of the mapped file; nothing is copied, whatever their
//! alignment.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use russet_ir::{DType, Tensor};
use safetensors::tensor::{Dtype, SafeTensorError, TensorInfo};
use serde::Deserialize;

use crate::{Error, mapped};

const DTYPES: &[(Dtype, DType)] = &[
    (Dtype::BOOL, DType::Bool),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::F8_E5M2, DType::F8E5M2),
    (Dtype::F8_E4M3, DType::F8E4M3),
    (Dtype::I16, DType::I16),
    (Dtype::U16, DType::U16),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::I64, DType::I64),
    (Dtype::U64, DType::U64),
];

/// Named tensors, and the file each is in.
#[derive(Debug, Clone, Default)]
pub struct Tensors {
    entries: BTreeMap<String, (Tensor, usize)>,
    files: Vec<PathBuf>,
    n_bytes: u64,
}

impl Tensors {
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.entries.get(name).map(|e| &e.0)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, e)| (name.as_str(), &e.0))
    }

    /// The file `name` is in, or would be looked for first.
    pub fn file_of(&self, name: &str) -> &Path {
        let at = self.entries.get(name).map_or(0, |e| e.1);
        self.files.get(at).map_or(Path::new(""), PathBuf::as_path)
    }

    /// Bytes of all files together.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Tensors that another format's reader found in one file.
    pub(crate) fn of_file(path: &Path, tensors: BTreeMap<String, Tensor>, n_bytes: u64) -> Tensors {
        let entries = tensors.into_iter().map(|(name, t)| (name, (t, 0))).collect();
        Tensors { entries, files: vec![path.to_owned()], n_bytes }
    }

    fn add(&mut self, path: &Path, bytes: Bytes) -> Result<(), Error> {
        self.n_bytes += bytes.len() as u64;
        self.files.push(path.to_owned());
        let at = self.files.len() - 1;
        for (name, tensor) in parse(bytes, path)? {
            if let Some(first) = self.entries.insert(name.clone(), (tensor, at)) {
                let other = self.files[first.1].clone();
                return Err(Error::DuplicateTensor { file: path.to_owned(), tensor: name, other });
            }
        }
        Ok(())
    }
}

/// The tensors of one file.
pub fn read(path: &Path) -> Result<Tensors, Error> {
    let mut all = Tensors::default();
    all.add(path, mapped::open(path)?)?;
    Ok(all)
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The tensors of every file that the index `path` (`model.safetensors.index.json`) names.
///
/// # Errors
/// A shard that is missing or whose name is no plain file name, a tensor in two shards, one that
/// is not where the index says. Shards may be links: download caches are made of them.
pub fn read_index(path: &Path) -> Result<Tensors, Error> {
    let text = mapped::text(path)?;
    let index: Index =
        serde_json::from_str(&text).map_err(|e| Error::malformed(path, None, e.to_string()))?;
    let mut shards: Vec<&String> = index.weight_map.values().collect();
    shards.sort();
    shards.dedup();
    let folder = mapped::folder_of(path);
    let mut all = Tensors::default();
    for shard in shards {
        if shard.is_empty() || shard == ".." || shard == "." || shard.contains(['/', '\\', '\0']) {
            let (file, why) = (path.to_owned(), "is no plain file name");
            return Err(Error::UnsafePath { file, path: shard.clone(), why });
        }
        let file = folder.join(shard);
        let bytes = mapped::open(&file).map_err(|e| match e {
            Error::NotFound { .. } => {
                let wanted = format!("the shard {shard:?}");
                Error::NotFound { file: path.to_owned(), wanted }
            }
            other => other,
        })?;
        all.add(&file, bytes)?;
    }
    for (name, shard) in &index.weight_map {
        if all.get(name).is_none() || !all.file_of(name).ends_with(shard) {
            let why = format!("it is not in {shard:?}, where the index says it is");
            return Err(Error::malformed(path, Some(name), why));
        }
    }
    Ok(all)
}

/// The tensors in the bytes of one file, by name; `path` is for errors.
///
/// # Errors
/// A header that is too long or no header, a tensor outside the data, two that overlap, a size
/// that is not that of its shape, an element type the ir does not know.
pub fn parse(bytes: Bytes, path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let found = bytes.len() as u64;
    let truncated = |at: Option<String>, needed: u64| Error::Truncated {
        file: path.to_owned(),
        at,
        needed,
        found,
    };
    let Some(length) = bytes.first_chunk::<8>() else { return Err(truncated(None, 8)) };
    let header_end = u64::from_le_bytes(*length).saturating_add(8);
    if header_end > found {
        return Err(truncated(Some("the header".into()), header_end));
    }
    let (header_len, header) = match safetensors::SafeTensors::read_metadata(&bytes) {
        Ok((n, metadata)) => (n, metadata),
        Err(e) => return Err(explain(&bytes, header_end, path, e)),
    };
    let data = bytes.slice(8 + header_len..);
    let mut tensors = BTreeMap::new();
    for (name, info) in header.tensors() {
        let tensor = view(&data, info).map_err(|why| Error::malformed(path, Some(&name), why))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

fn view(data: &Bytes, info: &TensorInfo) -> Result<Tensor, String> {
    let Some(&(_, dtype)) = DTYPES.iter().find(|d| d.0 == info.dtype) else {
        return Err(format!("the element type {} is not understood", info.dtype));
    };
    let (start, end) = info.data_offsets;
    if start > end || end > data.len() {
        return Err(format!("its data is at {start}..{end} of {}", data.len()));
    }
    let shape = info.shape.iter().map(|&n| n as u64).collect();
    Tensor::new(dtype, shape, data.slice(start..end)).map_err(|e| e.to_string())
}

/// What the library found wrong, with the tensor's name and the numbers where they can be had.
fn explain(bytes: &Bytes, header_end: u64, path: &Path, error: SafeTensorError) -> Error {
    let found = bytes.len() as u64;
    match error {
        SafeTensorError::InvalidOffset(name) => {
            let why = "its data overlaps that of another, leaves a gap, or ends before it begins";
            Error::malformed(path, Some(&name), why)
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            // The header is good, so the tensor that ends last says how long the file must be.
            let header = &bytes[8..header_end as usize];
            let last = serde_json::from_slice::<HashMap<String, serde_json::Value>>(header)
                .unwrap_or_default()
                .into_iter()
                .filter_map(|(name, v)| Some((v["data_offsets"][1].as_u64()?, name)))
                .max();
            match last {
                Some((end, name)) if header_end.saturating_add(end) > found => Error::Truncated {
                    file: path.to_owned(),
                    at: Some(name),
                    needed: header_end.saturating_add(end),
                    found,
                },
                last => {
                    let end = last.map_or(0, |l| l.0).saturating_add(header_end);
                    let why = format!("{} bytes after the last tensor", found.saturating_sub(end));
                    Error::malformed(path, None, why)
                }
            }
        }
        other => Error::malformed(path, Some("the header"), other.to_string()),
    }
}

/// Writes named tensors to one file: all of it, or nothing.
///
/// # Errors
/// Element types safetensors does not have (strings, less than a byte), and those of writing.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, t) in tensors {
        let Some((dtype, _)) = DTYPES.iter().find(|d| d.1 == t.dtype) else {
            let why = format!("safetensors has no {}", t.dtype);
            return Err(Error::unwritable(path, name, why, None));
        };
        let start = end;
        end += t.n_bytes();
        let entry = serde_json::json!({
            "dtype": dtype, "shape": t.shape, "data_offsets": [start, end],
        });
        if header.insert(name.clone(), entry).is_some() {
            return Err(Error::unwritable(path, name, "two tensors have this name", None));
        }
    }
    let mut header = serde_json::Value::Object(header).to_string();
    let padded = header.len().next_multiple_of(8);
    header.extend(std::iter::repeat_n(' ', padded - header.len()));
    mapped::write_whole(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        tensors.iter().try_for_each(|(_, t)| t.read(&mut |piece| out.write_all(piece)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Bytes {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.into()
    }

    fn error(bytes: Bytes) -> (&'static str, String) {
        let e = parse(bytes, Path::new("m.safetensors")).unwrap_err();
        (e.code(), e.place())
    }

    #[test]
    fn tensors_are_views_of_the_file() {
        let header = r#"{"odd":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
            "x":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}"#;
        let bytes = file(header, &[1, 2, 3, 0, 0, 128, 63]);
        let tensors = parse(bytes, Path::new("m")).unwrap();
        assert_eq!(tensors["x"].to_f32(), [1.0]);
        assert_eq!(tensors["odd"].to_i64(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn a_damaged_file_is_refused_by_name() {
        let one =
            |a, b| format!(r#"{{"x":{{"dtype":"F32","shape":[2],"data_offsets":[{a},{b}]}}}}"#);
        let place = |at: &str| format!("m.safetensors: {at}");
        assert_eq!(error(Bytes::from_static(b"abc")).0, "truncated");
        let whole = file(&one(0, 8), &[0; 8]);
        assert_eq!(error(whole.slice(..whole.len() - 1)), ("truncated", place("x")));
        assert_eq!(error(whole.slice(..20)), ("truncated", place("the header")));
        assert_eq!(error(file(&one(0, 8), &[0; 9])).0, "malformed");
        assert_eq!(error(file(&one(4, 12), &[0; 12])), ("malformed", place("x")));
        assert_eq!(error(file(&one(8, 0), &[0; 8])).0, "malformed");
        assert_eq!(error(file(&one(0, 4), &[0; 4])).0, "malformed");
        assert_eq!(error(file("{]", &[])), ("malformed", place("the header")));
        let mut huge = whole.to_vec();
        huge[..8].fill(0xff);
        assert_eq!(error(huge.into()), ("truncated", place("the header")));
    }
}
