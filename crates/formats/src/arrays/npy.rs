//! `.npy`: a magic number, a Python dictionary as text, the elements.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use russet_ir::{DType, Tensor};

use crate::{Error, mapped};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Numpy's letters and widths.
const DESCRS: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("u1", DType::U8),
    ("i2", DType::I16),
    ("u2", DType::U16),
    ("i4", DType::I32),
    ("u4", DType::U32),
    ("i8", DType::I64),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

/// What the header of an array says.
#[derive(Debug, PartialEq)]
pub struct Header {
    pub dtype: DType,
    pub shape: Vec<u64>,
    is_big_endian: bool,
    is_fortran: bool,
    /// Where the elements begin.
    pub start: u64,
}

impl Header {
    /// Bytes of the whole file; `None` when they are more than can be counted.
    pub fn n_bytes(&self) -> Option<u64> {
        let n = self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        self.dtype.bytes(n)?.checked_add(self.start)
    }
}

/// The array in the bytes of a file; `path` is for errors. Big-endian elements and those in
/// Fortran's order are put into ours; others are views of the bytes.
pub fn parse(bytes: Bytes, path: &Path) -> Result<Tensor, Error> {
    let header = header(&bytes, path)?;
    let (found, needed) = (bytes.len() as u64, header.n_bytes().unwrap_or(u64::MAX));
    if found < needed {
        let at = None;
        return Err(Error::Truncated { file: path.to_owned(), at, needed, found });
    }
    if found > needed {
        let why = format!("{} bytes after the last element", found - needed);
        return Err(Error::malformed(path, None, why));
    }
    let mut data = bytes.slice(header.start as usize..);
    let width = (header.dtype.bits() / 8) as usize;
    if header.is_big_endian && width > 1 {
        let mut swapped = data.to_vec();
        swapped.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        data = swapped.into();
    }
    if header.is_fortran && header.shape.len() > 1 {
        data = from_fortran(&data, width, &header.shape).into();
    }
    if header.dtype == DType::Bool && data.iter().any(|&b| b > 1) {
        return Err(Error::malformed(path, None, "a bool is neither 0 nor 1"));
    }
    let tensor = Tensor::new(header.dtype, header.shape, data);
    tensor.map_err(|e| Error::malformed(path, None, e.to_string()))
}

/// Elements whose first axis varies fastest, put into the order in which the last one does.
fn from_fortran(data: &[u8], width: usize, shape: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0u64; shape.len()];
    for _ in 0..data.len() / width {
        let at = index.iter().zip(shape).rev().fold(0, |at, (&i, &n)| at * n + i) as usize;
        out.extend_from_slice(&data[at * width..(at + 1) * width]);
        for (i, &n) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < n {
                break;
            }
            *i = 0;
        }
    }
    out
}

/// The header at the beginning of `bytes`, which may end right after it.
pub fn header(bytes: &[u8], path: &Path) -> Result<Header, Error> {
    let wrong = |why: String| Error::malformed(path, None, why);
    let needs = |needed: usize| Error::Truncated {
        file: path.to_owned(),
        at: Some("the header".into()),
        needed: needed as u64,
        found: bytes.len() as u64,
    };
    let fixed = bytes.get(..10).ok_or_else(|| needs(10))?;
    if &fixed[..6] != MAGIC {
        return Err(wrong("it does not begin as an `.npy` file does".into()));
    }
    let (text_at, len) = match fixed[6] {
        1 => (10, u64::from(u16::from_le_bytes([fixed[8], fixed[9]]))),
        2 | 3 => {
            let len = bytes.get(8..12).ok_or_else(|| needs(12))?;
            (12, u64::from(u32::from_le_bytes([len[0], len[1], len[2], len[3]])))
        }
        version => {
            let (file, what) = (path.to_owned(), "the version of the `.npy` file");
            let (found, supported) = (version.to_string(), "1 to 3".into());
            return Err(Error::Version { file, what, found, supported });
        }
    };
    let start = text_at + len as usize;
    let text = bytes.get(text_at..start).ok_or_else(|| needs(start))?;
    let text = std::str::from_utf8(text).map_err(|e| wrong(format!("its header: {e}")))?;
    dictionary(text, start as u64).map_err(|why| wrong(format!("its header {why}")))
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`
fn dictionary(text: &str, start: u64) -> Result<Header, String> {
    let value = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}'")).ok_or(format!("lacks {key:?}"))?;
        Ok::<&str, String>(rest.trim_start().strip_prefix(':').unwrap_or(rest).trim_start())
    };
    let descr = value("descr")?;
    let quoted = descr.strip_prefix('\'').and_then(|d| Some(d.split_once('\'')?.0));
    let unknown = || format!("has elements {:?}", quoted.unwrap_or(descr));
    let (order, code) = quoted.and_then(|q| q.split_at_checked(1)).ok_or_else(unknown)?;
    let is_big_endian = match order {
        "<" | "|" | "=" => false,
        ">" => true,
        _ => return Err(unknown()),
    };
    let dtype = DESCRS.iter().find(|d| d.0 == code).ok_or_else(unknown)?.1;
    let order = value("fortran_order")?;
    let is_fortran = order.starts_with("True");
    if !is_fortran && !order.starts_with("False") {
        return Err("says nothing about the order".into());
    }
    let tuple = value("shape")?.strip_prefix('(').and_then(|s| Some(s.split_once(')')?.0));
    let tuple = tuple.ok_or("has no shape")?;
    let words = tuple.split(',').map(str::trim).filter(|w| !w.is_empty());
    let dims = words.map(|w| w.trim_end_matches('L').parse::<u64>());
    let shape: Vec<u64> =
        dims.collect::<Result<_, _>>().map_err(|_| format!("has shape ({tuple})"))?;
    if shape.len() > 32 {
        return Err(format!("has {} dimensions", shape.len()));
    }
    Ok(Header { dtype, shape, is_big_endian, is_fortran, start })
}

/// The header of `tensor`, padded as numpy pads it; `None` for elements numpy does not have.
pub(super) fn render_header(tensor: &Tensor) -> Option<Vec<u8>> {
    let code = DESCRS.iter().find(|d| d.1 == tensor.dtype)?.0;
    let order = if tensor.dtype.bits() == 8 { '|' } else { '<' };
    let shape = match tensor.shape.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut text =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': {shape}, }}");
    let padded = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
    text.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
    header.extend(text.as_bytes());
    Some(header)
}

pub(super) fn write_to(out: &mut dyn Write, header: &[u8], tensor: &Tensor) -> io::Result<()> {
    out.write_all(header)?;
    tensor.read(&mut |piece| out.write_all(piece))
}

pub(super) fn unwritable(path: &Path, name: &str, tensor: &Tensor) -> Error {
    let help = Some("write `.safetensors`, or cast it");
    Error::unwritable(path, name, format!("numpy has no {}", tensor.dtype), help)
}

/// Writes one array.
pub fn write(path: &Path, name: &str, tensor: &Tensor) -> Result<(), Error> {
    let header = render_header(tensor).ok_or_else(|| unwritable(path, name, tensor))?;
    mapped::write_whole(path, |out| write_to(out, &header, tensor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dictionary: &str, data: &[u8]) -> Bytes {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dictionary.len() as u16).to_le_bytes());
        bytes.extend_from_slice(dictionary.as_bytes());
        bytes.extend_from_slice(data);
        bytes.into()
    }

    #[test]
    fn other_orders_are_put_into_ours() {
        let parse = |b| parse(b, Path::new("x.npy"));
        let d = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
        let data: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|i| i.to_be_bytes()).collect();
        let t = parse(file(d, &data)).unwrap();
        assert_eq!((t.shape.clone(), t.to_i64().unwrap()), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
        for (d, code) in [
            (
                "{'descr': '<i2', 'fortran_order': False, 'shape': (9999999999, 9999999999), }",
                "truncated",
            ),
            ("{'descr': '<i2', 'fortran_order': False, 'shape': (7,), }", "truncated"),
            ("{'descr': '<i2', 'fortran_order': False, 'shape': (5,), }", "malformed"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (5,), }", "malformed"),
            ("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (5,), }", "malformed"),
            ("{'descr': '<i2', 'fortran_order': False, 'shape': (-5,), }", "malformed"),
            ("{}", "malformed"),
        ] {
            assert_eq!(parse(file(d, &data)).unwrap_err().code(), code, "{d}");
        }
    }

    #[test]
    fn a_header_reads_back() {
        for shape in [vec![], vec![1], vec![2, 3], vec![0, 4]] {
            let n = shape.iter().product::<u64>() as usize;
            let t = Tensor::f32(shape, &vec![0.5; n]);
            let mut bytes = Vec::new();
            write_to(&mut bytes, &render_header(&t).unwrap(), &t).unwrap();
            assert_eq!(parse(bytes.into(), Path::new("x")).unwrap(), t);
        }
    }
}
