//! GGUF: one file with a model's numbers, its vocabulary and its weights, mostly quantized.
//!
//! All is little endian: `GGUF`, the version, how many tensors and how many metadata entries there
//! are; the entries; name, extents (the innermost first), type and place of every tensor; the data,
//! aligned. The layout of the quantized types is in [`blocks`].
//! Source: the GGUF specification (ggml-org/ggml, docs/gguf.md) and the `gguf` Python package.

mod blocks;
mod model;
mod tokens;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use russet_ir::{DType, Tensor};

use crate::{Error, mapped};
use blocks::{Blocks, Kind};

pub use model::{config, tensors};
pub use tokens::{Kind as TokenKind, Model, Tokens, tokens};

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
    String(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<String>),
}

/// A file, its header read and checked.
pub struct Gguf {
    pub metadata: BTreeMap<String, Value>,
    /// By the names the file gives them.
    pub tensors: BTreeMap<String, Tensor>,
    pub n_bytes: u64,
}

/// Is it one, by its first bytes?
pub fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GGUF")
}

/// Reads the file at `path`; its tensors stay mapped.
pub fn read(path: &Path) -> Result<Gguf, Error> {
    parse(mapped::open(path)?, path)
}

/// Reads the bytes of a file; `path` is for errors.
///
/// # Errors
/// Another format or version, an entry or a tensor that does not lie within the file, a type that
/// is not read here.
pub fn parse(bytes: Bytes, path: &Path) -> Result<Gguf, Error> {
    let n_bytes = bytes.len() as u64;
    if !is_gguf(&bytes) {
        return Err(Error::malformed(path, None, "it does not begin with `GGUF`"));
    }
    let mut header = Header { bytes: &bytes, at: 4, path };
    let version = header.u32("the version")?;
    if !matches!(version, 2 | 3) {
        return Err(Error::Version {
            file: path.to_owned(),
            what: "the version of GGUF",
            found: version.to_string(),
            supported: "2 and 3".to_owned(),
        });
    }
    let n_tensors = header.count("the number of tensors", 8)?;
    let n_entries = header.count("the number of entries", 8)?;
    let mut metadata = BTreeMap::new();
    for i in 0..n_entries {
        let name = header.string(&format!("entry {i}"))?;
        let kind = header.u32(&name)?;
        let value = header.value(kind, &name)?;
        metadata.insert(name, value);
    }
    let mut places = Vec::new();
    for i in 0..n_tensors {
        places.push(header.tensor(i)?);
    }
    let alignment = match metadata.get("general.alignment") {
        None => 32,
        Some(Value::Int(n)) if *n > 0 && *n <= 1 << 20 => *n as usize,
        Some(_) => {
            return Err(Error::malformed(path, Some("general.alignment"), "it is no alignment"));
        }
    };
    let data = header.at.next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for place in places {
        let tensor = place.tensor(&bytes, data, path)?;
        if tensors.insert(place.name.clone(), tensor).is_some() {
            return Err(Error::malformed(path, Some(&place.name), "it is there twice"));
        }
    }
    Ok(Gguf { metadata, tensors, n_bytes })
}

struct Header<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
}

/// Where a tensor is said to be.
struct Place {
    name: String,
    /// The outermost first.
    shape: Vec<u64>,
    kind: u32,
    /// From the beginning of the data.
    offset: u64,
}

/// Axes a tensor may have.
const RANK_MAX: u32 = 4;

impl Header<'_> {
    fn take(&mut self, n: usize, what: &str) -> Result<&[u8], Error> {
        let found = self.bytes.len() as u64;
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(Error::Truncated {
                file: self.path.to_owned(),
                at: Some(what.to_owned()),
                needed: (self.at as u64).saturating_add(n as u64),
                found,
            });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        Ok(self.take(N, what)?.try_into().expect("as many as were taken"))
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.fixed(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.fixed(what).map(u64::from_le_bytes)
    }

    /// A number of things that take at least so many bytes each, which must be there.
    fn count(&mut self, what: &str, bytes_each: usize) -> Result<usize, Error> {
        let n = self.u64(what)?;
        let most = ((self.bytes.len() - self.at) / bytes_each) as u64;
        match n <= most {
            true => Ok(n as usize),
            false => {
                let why = format!("it is {n}, the file has room for {most}");
                Err(Error::malformed(self.path, Some(what), why))
            }
        }
    }

    fn string(&mut self, what: &str) -> Result<String, Error> {
        let n = self.count(what, 1)?;
        let bytes = self.take(n, what)?.to_vec();
        String::from_utf8(bytes)
            .map_err(|e| Error::malformed(self.path, Some(what), format!("it is no text: {e}")))
    }

    fn value(&mut self, kind: u32, name: &str) -> Result<Value, Error> {
        Ok(match kind {
            0 => Value::Int(self.fixed::<1>(name)?[0].into()),
            1 => Value::Int((self.fixed::<1>(name)?[0] as i8).into()),
            2 => Value::Int(u16::from_le_bytes(self.fixed(name)?).into()),
            3 => Value::Int(i16::from_le_bytes(self.fixed(name)?).into()),
            4 => Value::Int(self.u32(name)?.into()),
            5 => Value::Int(i32::from_le_bytes(self.fixed(name)?).into()),
            6 => Value::Float(f32::from_le_bytes(self.fixed(name)?).into()),
            7 => Value::Bool(self.fixed::<1>(name)?[0] != 0),
            8 => Value::String(self.string(name)?),
            9 => self.list(name)?,
            10 => Value::Int(i64::try_from(self.u64(name)?).unwrap_or(i64::MAX)),
            11 => Value::Int(i64::from_le_bytes(self.fixed(name)?)),
            12 => Value::Float(f64::from_le_bytes(self.fixed(name)?)),
            _ => {
                let why = format!("there is no type {kind} of metadata");
                return Err(Error::malformed(self.path, Some(name), why));
            }
        })
    }

    fn list(&mut self, name: &str) -> Result<Value, Error> {
        let kind = self.u32(name)?;
        let bytes_each = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            _ => {
                let why = format!("there is no list of type {kind}");
                return Err(Error::malformed(self.path, Some(name), why));
            }
        };
        let n = self.count(name, bytes_each)?;
        let (mut ints, mut floats, mut strings) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..n {
            match self.value(kind, name)? {
                Value::Int(x) => ints.push(x),
                Value::Bool(x) => ints.push(x.into()),
                Value::Float(x) => floats.push(x as f32),
                Value::String(x) => strings.push(x),
                _ => unreachable!("lists of lists were refused"),
            }
        }
        Ok(match kind {
            8 => Value::Strings(strings),
            6 | 12 => Value::Floats(floats),
            _ => Value::Ints(ints),
        })
    }

    fn tensor(&mut self, i: usize) -> Result<Place, Error> {
        let name = self.string(&format!("tensor {i}"))?;
        let rank = self.u32(&name)?;
        if rank > RANK_MAX {
            let why = format!("it has {rank} axes, at most {RANK_MAX} are expected");
            return Err(Error::malformed(self.path, Some(&name), why));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(self.u64(&name)?);
        }
        shape.reverse();
        let (kind, offset) = (self.u32(&name)?, self.u64(&name)?);
        Ok(Place { name, shape, kind, offset })
    }
}

impl Place {
    fn tensor(&self, bytes: &Bytes, data: usize, path: &Path) -> Result<Tensor, Error> {
        let wrong = |why: String| Error::malformed(path, Some(&self.name), why);
        let kind = Kind::of(self.kind).map_err(wrong)?;
        let n = self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let row = self.shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(kind.block()) {
            let why = format!("rows of {row} are not whole blocks of {}", kind.block());
            return Err(wrong(why));
        }
        let size = n.map(|n| n / kind.block()).and_then(|n| n.checked_mul(kind.block_bytes()));
        let start = (data as u64).checked_add(self.offset);
        let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(wrong(format!("a size beyond any file: {:?}", self.shape)));
        };
        if end > bytes.len() as u64 {
            return Err(Error::Truncated {
                file: path.to_owned(),
                at: Some(self.name.clone()),
                needed: end,
                found: bytes.len() as u64,
            });
        }
        let own = bytes.slice(start as usize..end as usize);
        let plain = |dtype| Tensor::new(dtype, self.shape.clone(), own.clone());
        let made = match kind {
            Kind::F32 => plain(DType::F32),
            Kind::F16 => plain(DType::F16),
            Kind::BF16 => plain(DType::BF16),
            _ => Tensor::computed(self.shape.clone(), Arc::new(Blocks { kind, bytes: own })),
        };
        made.map_err(|e| wrong(e.to_string()))
    }
}
