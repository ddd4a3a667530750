//! `weight.bin`: tensors one after another, each behind a 64-byte record, at multiples of 64.
//!
//! All numbers are little endian. The file opens with 64 bytes: the number of records, the
//! version 2, zeros. A record is `0xDEADBEEF`, a type code, the size in bytes, the offset of the
//! data, the unused bits at its end (of sub-byte types), zeros. A package refers to a tensor by
//! the offset of its record.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use russet_ir::{DType, Tensor};
use sha2::{Digest, Sha256};

use crate::{Error, mapped};

const ALIGNMENT: u64 = 64;
const VERSION: u32 = 2;
const SENTINEL: u32 = 0xDEAD_BEEF;

/// Codes of element types, which are not those MIL uses.
const CODES: &[(u32, DType)] = &[
    (1, DType::F16),
    (2, DType::F32),
    (3, DType::U8),
    (4, DType::I8),
    (5, DType::BF16),
    (6, DType::I16),
    (7, DType::U16),
    (8, DType::I4),
    (9, DType::U1),
    (10, DType::U2),
    (11, DType::U4),
    (12, DType::U3),
    (13, DType::U6),
    (14, DType::I32),
    (15, DType::U32),
    (16, DType::F8E4M3),
    (17, DType::F8E5M2),
];

/// A weight file being written.
pub struct Writer<W> {
    out: W,
    /// Where the next record goes: after the last data, not yet aligned.
    end: u64,
    records: Vec<[u8; 32]>,
    by_content: HashMap<(DType, [u8; 32]), u64>,
    /// Large tensors that were written, by size: the very same need not be read again.
    written: HashMap<u64, Vec<(Tensor, u64)>>,
    n_shared: u64,
}

/// A tensor that was added to a weight file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The offset of its record.
    pub at: u64,
    /// How many of its numbers are infinite, in fp16; 0 when it was there before.
    pub n_infinite: u64,
}

/// Tensors from this size on are looked up before they are read, and read by a thread of their own.
const LARGE_BYTES: u64 = 1 << 16;

/// What a finished weight file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub n_bytes: u64,
    pub n_records: u64,
    /// Tensors that found their bytes already there.
    pub n_shared: u64,
    /// Of all contents and types, in order.
    pub digest: [u8; 32],
}

impl<W: Write + Seek> Writer<W> {
    /// A file that begins where `out` stands, which must be its beginning.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        out.write_all(&[0; ALIGNMENT as usize])?;
        let (by_content, written) = (HashMap::new(), HashMap::new());
        Ok(Writer { out, end: ALIGNMENT, records: Vec::new(), by_content, written, n_shared: 0 })
    }

    /// Stores `tensor`. Equal bytes of one type are stored once: the copy is written, recognised by
    /// its hash, and the file taken back to where it was, so that no tensor is ever held in memory.
    ///
    /// # Panics
    /// When the type has no code: strings, `bool` and 64-bit numbers stay in the model file.
    pub fn add(&mut self, tensor: &Tensor) -> io::Result<Added> {
        let is_large = tensor.n_bytes() >= LARGE_BYTES;
        let same = |(t, _): &&(Tensor, u64)| t.has_same_elements(tensor);
        if is_large
            && let Some(all) = self.written.get(&tensor.n_elements())
            && let Some((_, at)) = all.iter().find(same)
        {
            self.n_shared += 1;
            return Ok(Added { at: *at, n_infinite: 0 });
        }
        let appended = self.append(tensor)?;
        let key = (tensor.dtype, appended.hash);
        let at = match self.by_content.get(&key) {
            Some(&first) => {
                self.n_shared += 1;
                self.out.seek(SeekFrom::Start(appended.before))?;
                first
            }
            None => {
                self.keep(tensor, appended.at, appended.hash);
                appended.at
            }
        };
        if is_large {
            let all = self.written.entry(tensor.n_elements()).or_default();
            all.push((tensor.clone(), at));
        }
        Ok(Added { at, n_infinite: appended.n_infinite })
    }

    /// The same, but with a record of its own even when its bytes are there already, as the
    /// source it is copied from has it.
    pub fn add_apart(&mut self, tensor: &Tensor) -> io::Result<u64> {
        let appended = self.append(tensor)?;
        self.keep(tensor, appended.at, appended.hash);
        Ok(appended.at)
    }

    fn keep(&mut self, tensor: &Tensor, at: u64, hash: [u8; 32]) {
        self.by_content.entry((tensor.dtype, hash)).or_insert(at);
        self.records.push(hash);
        self.end = at + ALIGNMENT + tensor.n_bytes();
    }

    /// Writes a record behind the last.
    fn append(&mut self, tensor: &Tensor) -> io::Result<Appended> {
        let code = CODES.iter().find(|c| c.1 == tensor.dtype).expect("a type of weight files").0;
        let (before, at) = (self.end, self.end.next_multiple_of(ALIGNMENT));
        let n_bytes = tensor.n_bytes();
        let unused_bits = 8 * n_bytes - tensor.n_elements() * tensor.dtype.bits();
        self.out.write_all(&[0; ALIGNMENT as usize][..(at - before) as usize])?;
        let mut record = [0u8; ALIGNMENT as usize];
        record[..4].copy_from_slice(&SENTINEL.to_le_bytes());
        record[4..8].copy_from_slice(&code.to_le_bytes());
        record[8..16].copy_from_slice(&n_bytes.to_le_bytes());
        record[16..24].copy_from_slice(&(at + ALIGNMENT).to_le_bytes());
        record[24..32].copy_from_slice(&unused_bits.to_le_bytes());
        self.out.write_all(&record)?;
        let mut hash = Sha256::new();
        hash.update(n_bytes.to_le_bytes());
        hash.update(unused_bits.to_le_bytes());
        let mut n_infinite = 0;
        read(tensor, &mut |piece| {
            if tensor.dtype == DType::F16 {
                n_infinite += infinities(piece);
            }
            hash.update(piece);
            self.out.write_all(piece)
        })?;
        tensor.sources(&mut |bytes| mapped::release(bytes));
        Ok(Appended { before, at, hash: hash.finalize().into(), n_infinite })
    }

    /// Completes the header. The file may still hold bytes of a copy past [`Summary::n_bytes`],
    /// to be cut off by the caller, who knows what `W` is.
    pub fn finish(mut self) -> io::Result<(W, Summary)> {
        let n_records = self.records.len() as u64;
        let count = u32::try_from(n_records).map_err(io::Error::other)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&count.to_le_bytes())?;
        self.out.write_all(&VERSION.to_le_bytes())?;
        self.out.flush()?;
        let mut digest = Sha256::new();
        self.records.iter().for_each(|r| digest.update(r));
        let digest = digest.finalize().into();
        let (n_bytes, n_shared) = (self.end, self.n_shared);
        Ok((self.out, Summary { n_bytes, n_records, n_shared, digest }))
    }
}

/// A record that was written.
struct Appended {
    /// Where the last one ended.
    before: u64,
    at: u64,
    hash: [u8; 32],
    n_infinite: u64,
}

/// How many numbers of fp16 are infinite.
fn infinities(bytes: &[u8]) -> u64 {
    let is_infinite = |c: &[u8]| u16::from_le_bytes([c[0], c[1]]) & 0x7fff == 0x7c00;
    bytes.chunks_exact(2).filter(|c| is_infinite(c)).count() as u64
}

/// Hands all bytes of `tensor` to `sink`. A large one that has to be computed is computed by another
/// thread meanwhile.
fn read(tensor: &Tensor, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    if tensor.n_bytes() < LARGE_BYTES {
        return tensor.read(sink);
    }
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Vec<u8>>(PIECES_AHEAD);
        scope.spawn(move || {
            // It stops when nobody listens any more.
            let _ = tensor.read(&mut |piece| {
                piece.chunks(PIECE_BYTES).try_for_each(|p| send.send(p.to_vec()))
            });
        });
        receive.iter().try_for_each(|piece| sink(&piece))
    })
}

/// Pieces that are computed before they are written, and how large they are at most.
const PIECES_AHEAD: usize = 8;
const PIECE_BYTES: usize = 1 << 20;

/// Can tensors of this type be in a weight file of this specification version?
pub fn can_hold(dtype: DType, spec_version: i32) -> bool {
    use DType::*;
    match dtype {
        F16 | F32 | U8 | I8 => true,
        I16 | U16 | I32 | U32 | I4 | U1 | U2 | U3 | U4 | U6 => spec_version >= 9,
        _ => false,
    }
}

/// A weight file, checked: every record lies within it.
#[derive(Debug, Clone)]
pub struct Blob {
    bytes: Bytes,
    records: BTreeMap<u64, Record>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    dtype: DType,
    start: u64,
    n_bytes: u64,
    unused_bits: u64,
}

/// Checks the header and every record of a weight file; `path` is for errors.
///
/// # Errors
/// An old or unknown version, a missing sentinel, an unknown type, data outside the file.
pub fn parse(bytes: Bytes, path: &Path) -> Result<Blob, Error> {
    let truncated = |at: Option<String>, needed: u64| Error::Truncated {
        file: path.to_owned(),
        at,
        needed,
        found: bytes.len() as u64,
    };
    let word = |at: u64| -> Option<u32> {
        let at = usize::try_from(at).ok()?;
        Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let long = |at: u64| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
    let (Some(count), Some(version), Some(_)) = (word(0), word(4), long(56)) else {
        return Err(truncated(None, ALIGNMENT));
    };
    if version != VERSION {
        return Err(Error::Version {
            file: path.to_owned(),
            what: "the version of the weight file",
            found: version.to_string(),
            supported: VERSION.to_string(),
        });
    }
    let mut records = BTreeMap::new();
    let mut at = ALIGNMENT;
    for i in 0..count {
        let place = format!("record {i} at {at}");
        let wrong = |why: String| Error::malformed(path, Some(&place), why);
        let fields = (|| {
            long(at.checked_add(ALIGNMENT - 8)?)?;
            Some((word(at)?, word(at + 4)?, long(at + 8)?, long(at + 16)?, long(at + 24)?))
        })();
        let Some((sentinel, code, n_bytes, start, padding)) = fields else {
            return Err(truncated(Some(place), at.saturating_add(ALIGNMENT)));
        };
        if sentinel != SENTINEL {
            return Err(wrong(format!("it begins with {sentinel:#x}, not {SENTINEL:#x}")));
        }
        let Some(&(_, dtype)) = CODES.iter().find(|c| c.0 == code) else {
            return Err(wrong(format!("there is no element type {code}")));
        };
        if start != at + ALIGNMENT {
            return Err(wrong(format!("its data is said to be at {start}, not right behind it")));
        }
        let end = start.saturating_add(n_bytes);
        if end > bytes.len() as u64 {
            return Err(truncated(Some(place), end));
        }
        // Files from before iOS 18 hold garbage where only sub-byte types have a number.
        let unused_bits = if dtype.bits() < 8 { padding } else { 0 };
        if unused_bits >= 8 || unused_bits > 8 * n_bytes {
            return Err(wrong(format!(
                "{unused_bits} bits of its last byte are said to be unused"
            )));
        }
        records.insert(at, Record { dtype, start, n_bytes, unused_bits });
        at = end.next_multiple_of(ALIGNMENT);
    }
    Ok(Blob { bytes, records })
}

impl Blob {
    /// Number of records.
    pub fn n_records(&self) -> u64 {
        self.records.len() as u64
    }

    /// Bytes of the whole file.
    pub fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The tensor behind the record at `offset`, not copied; `Err` says in words what is wrong.
    pub fn tensor(&self, offset: u64, dtype: DType, shape: Vec<u64>) -> Result<Tensor, String> {
        let Some(record) = self.records.get(&offset) else {
            let n = self.bytes.len();
            return Err(match offset < n as u64 {
                true => format!("there is no record at offset {offset} of the weight file"),
                false => format!("offset {offset} is past the end of the weight file ({n} bytes)"),
            });
        };
        if record.dtype != dtype {
            return Err(format!("the record at {offset} holds {}, not {dtype}", record.dtype));
        }
        let n = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let bits = n.and_then(|n| n.checked_mul(dtype.bits()));
        if bits != Some(8 * record.n_bytes - record.unused_bits) {
            let n_bytes = record.n_bytes;
            return Err(format!(
                "the record at {offset} has {n_bytes} bytes, not those of {shape:?}"
            ));
        }
        let range = record.start as usize..(record.start + record.n_bytes) as usize;
        Tensor::new(dtype, shape, self.bytes.slice(range)).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn written(tensors: &[Tensor]) -> (Vec<u8>, Vec<u64>, Summary) {
        let mut w = Writer::new(Cursor::new(Vec::new())).unwrap();
        let offsets = tensors.iter().map(|t| w.add(t).unwrap().at).collect();
        let (out, summary) = w.finish().unwrap();
        let mut bytes = out.into_inner();
        bytes.truncate(summary.n_bytes as usize);
        (bytes, offsets, summary)
    }

    #[test]
    fn equal_contents_are_stored_once() {
        let a = Tensor::f32(vec![3], &[1., 2., 3.]);
        let b = Tensor::f32(vec![2], &[5., 6.]);
        let odd = Tensor::new(DType::U3, vec![3], vec![0xff, 0x01].into()).unwrap();
        let (bytes, offsets, summary) = written(&[a.clone(), a.clone(), b.clone(), odd.clone(), a]);
        assert_eq!(offsets, [64, 64, 192, 320, 64]);
        assert_eq!((summary.n_records, summary.n_shared, bytes.len()), (3, 2, 320 + 64 + 2));
        let blob = parse(bytes.into(), Path::new("w")).unwrap();
        assert_eq!(blob.tensor(192, DType::F32, vec![2]).unwrap(), b);
        assert_eq!(blob.tensor(320, DType::U3, vec![3]).unwrap(), odd);
        for (offset, dtype, shape) in [
            (65, DType::F32, vec![3]),
            (1 << 40, DType::F32, vec![3]),
            (64, DType::F16, vec![6]),
            (64, DType::F32, vec![4]),
            (320, DType::U3, vec![5]),
            (64, DType::F32, vec![u64::MAX, 9]),
        ] {
            assert!(blob.tensor(offset, dtype, shape).is_err());
        }
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let (bytes, ..) = written(&[Tensor::f32(vec![3], &[1., 2., 3.])]);
        let parse = |b: Vec<u8>| parse(b.into(), Path::new("w")).map_err(|e| e.code());
        for n in 0..bytes.len() {
            assert_eq!(parse(bytes[..n].to_vec()).unwrap_err(), "truncated", "{n}");
        }
        for (at, code) in [(4, "unsupported-version"), (64, "malformed"), (68, "malformed")] {
            let mut b = bytes.clone();
            b[at] = 99;
            assert_eq!(parse(b).unwrap_err(), code);
        }
        let mut huge = bytes;
        huge[72..80].fill(0xff);
        assert_eq!(parse(huge).unwrap_err(), "truncated");
    }
}
