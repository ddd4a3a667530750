//! `.npz`: a zip archive of `.npy` files.

use std::collections::HashSet;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use bytes::Bytes;
use russet_ir::Tensor;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::{Arrays, npy};
use crate::{Error, mapped};

/// Bytes of a member that are read to see its header.
const HEADER_MAX: u64 = 1 << 16;

/// The arrays in the bytes of an archive; `path` is for errors.
///
/// A member is inflated only as far as its own header says it reaches, and only when the archive
/// says the same, so that a small archive cannot fill the memory.
pub fn parse(bytes: Bytes, path: &Path) -> Result<Arrays, Error> {
    let wrong = |at: Option<&str>, why: String| Error::malformed(path, at, why);
    let archive = ZipArchive::new(Cursor::new(bytes));
    let mut archive = archive.map_err(|e| wrong(None, format!("it is no archive: {e}")))?;
    let mut arrays = Arrays::new();
    let mut names = HashSet::new();
    for i in 0..archive.len() {
        let mut member = archive.by_index(i).map_err(|e| wrong(None, e.to_string()))?;
        let full = String::from_utf8_lossy(member.name_raw()).into_owned();
        let name = full.strip_suffix(".npy").unwrap_or(&full).to_owned();
        if member.is_dir() {
            continue;
        }
        let mut start = Vec::new();
        let read = member.by_ref().take(HEADER_MAX).read_to_end(&mut start);
        read.map_err(|e| wrong(Some(&full), format!("it cannot be inflated: {e}")))?;
        let header = npy::header(&start, path).map_err(|e| within(e, &full))?;
        let n_bytes = header.n_bytes().filter(|&n| n == member.size());
        let Some(n_bytes) = n_bytes else {
            let why = format!("the archive says {} bytes, its header another size", member.size());
            return Err(wrong(Some(&full), why));
        };
        // What is not yet read arrives in pieces; the vector grows with what is really there.
        let read = member.by_ref().take(n_bytes.saturating_sub(start.len() as u64) + 1);
        let done = { read }.read_to_end(&mut start);
        done.map_err(|e| wrong(Some(&full), format!("it cannot be inflated: {e}")))?;
        let tensor = npy::parse(start.into(), path).map_err(|e| within(e, &full))?;
        if !names.insert(name.clone()) {
            return Err(wrong(Some(&full), "two arrays have this name".into()));
        }
        arrays.push((name, tensor));
    }
    Ok(arrays)
}

/// The same error, in a member of the archive.
fn within(e: Error, member: &str) -> Error {
    let at = Some(member.to_owned());
    match e {
        Error::Malformed { file, why, .. } => Error::Malformed { file, at, why },
        Error::Truncated { file, needed, found, .. } => {
            Error::Truncated { file, at, needed, found }
        }
        other => other,
    }
}

/// Writes arrays, stored as they are (numpy's `savez`), without times.
pub fn write(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Error> {
    let mut headers = Vec::new();
    let mut names = HashSet::new();
    for (name, tensor) in arrays {
        if !names.insert(name) {
            return Err(Error::unwritable(path, name, "two arrays have this name", None));
        }
        headers
            .push(npy::render_header(tensor).ok_or_else(|| npy::unwritable(path, name, tensor))?);
    }
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default())
        .unix_permissions(0o644);
    mapped::write_whole(path, |out| {
        // The archive's own index is written last, so it needs to know only what it wrote.
        let mut zip = ZipWriter::new_stream(out);
        for ((name, tensor), header) in arrays.iter().zip(&headers) {
            let options = options.large_file(tensor.n_bytes() >= u64::from(u32::MAX) / 2);
            zip.start_file(format!("{name}.npy"), options)?;
            npy::write_to(&mut zip, header, tensor)?;
        }
        zip.finish()?.flush()
    })
}
