//! Arrays beside a model: inputs, outputs and golden values, as `.npy`, `.npz`, `.safetensors`.

pub mod npy;
pub mod npz;

use std::path::Path;

use russet_ir::Tensor;

use crate::{Error, mapped, safetensors};

/// Arrays by name, in the order of the file.
pub type Arrays = Vec<(String, Tensor)>;

#[derive(Clone, Copy)]
enum Format {
    Npy,
    Npz,
    Safetensors,
}

fn format(path: &Path) -> Result<Format, Error> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => Ok(Format::Npy),
        Some("npz") => Ok(Format::Npz),
        Some("safetensors") => Ok(Format::Safetensors),
        _ => Err(Error::WrongKind {
            file: path.to_owned(),
            found: "of another kind",
            expected: "`.npz`, `.npy` or `.safetensors`",
        }),
    }
}

/// The arrays in a file, whose name says which format it is. The one array of an `.npy` file is
/// named after the file.
///
/// # Errors
/// Damaged files, element types that are no numbers, sizes that do not fit.
pub fn read(path: &Path) -> Result<Arrays, Error> {
    let format = format(path)?;
    let bytes = mapped::open(path)?;
    match format {
        Format::Npz => npz::parse(bytes, path),
        Format::Safetensors => Ok(safetensors::parse(bytes, path)?.into_iter().collect()),
        Format::Npy => {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok(vec![(name, npy::parse(bytes, path)?)])
        }
    }
}

/// Writes arrays to a file, whose name says which format it is to be: all of it, or nothing.
/// Equal arrays give equal bytes.
///
/// # Errors
/// Several arrays to `.npy`, element types numpy does not have, and those of writing.
pub fn write(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Error> {
    match (format(path)?, arrays) {
        (Format::Safetensors, _) => safetensors::write(path, arrays),
        (Format::Npz, _) => npz::write(path, arrays),
        (Format::Npy, [(name, one)]) => npy::write(path, name, one),
        (Format::Npy, _) => {
            let why = format!("{} arrays cannot be in one `.npy`", arrays.len());
            Err(Error::unwritable(path, "the arrays", why, Some("name the output `.npz`")))
        }
    }
}
