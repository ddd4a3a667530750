//! The weight files a program refers to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use russet_ir::{DType, Tensor};

use super::{blob, manifest, proto};
use crate::{Error, mapped};

/// Weight files, opened when first needed.
pub struct Weights {
    root: PathBuf,
    model_file: PathBuf,
    files: HashMap<String, (PathBuf, blob::Blob)>,
}

impl Weights {
    /// Those of the model in `model_file`, all within the package at `root`.
    pub fn new(root: &Path, model_file: &Path) -> Weights {
        let (root, model_file) = (root.to_owned(), model_file.to_owned());
        Weights { root, model_file, files: HashMap::new() }
    }

    /// The files opened so far.
    pub fn files(&self) -> impl Iterator<Item = &blob::Blob> {
        self.files.values().map(|f| &f.1)
    }

    /// The tensor `reference` leads to; `at` is the value it is for.
    pub fn tensor(
        &mut self,
        reference: &proto::BlobFileValue,
        dtype: DType,
        shape: Vec<u64>,
        at: &str,
    ) -> Result<Tensor, Error> {
        let name = &reference.file_name;
        if !self.files.contains_key(name) {
            let opened = self.open(name, at)?;
            self.files.insert(name.clone(), opened);
        }
        let (path, blob) = &self.files[name];
        let tensor = blob.tensor(reference.offset, dtype, shape);
        tensor.map_err(|why| Error::malformed(path, Some(at), why))
    }

    fn open(&self, name: &str, for_value: &str) -> Result<(PathBuf, blob::Blob), Error> {
        let relative = name.strip_prefix("@model_path/").unwrap_or(name);
        let folder = mapped::folder_of(&self.model_file);
        let path = manifest::inside(&self.root, &folder, relative, &self.model_file);
        let path = path.map_err(|e| match e {
            Error::NotFound { file, wanted } => {
                Error::NotFound { file, wanted: format!("{wanted}, which `{for_value}` is in,") }
            }
            other => other,
        })?;
        let place = |at: Option<String>| match at {
            Some(at) => Some(format!("{at}, on the way to `{for_value}`")),
            None => Some(for_value.to_owned()),
        };
        let blob = blob::parse(mapped::open(&path)?, &path).map_err(|e| match e {
            Error::Truncated { file, at, needed, found } => {
                Error::Truncated { file, at: place(at), needed, found }
            }
            Error::Malformed { file, at, why } => Error::Malformed { file, at: place(at), why },
            other => other,
        })?;
        Ok((path, blob))
    }
}
