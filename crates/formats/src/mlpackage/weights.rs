//! The weight files a program refers to.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use russet_ir::{DType, Tensor};

use super::{blob, manifest, proto};
use crate::{Error, mapped};

/// Weight files, opened when first needed.
pub struct Weights {
    root: PathBuf,
    model_file: PathBuf,
    files: HashMap<String, (PathBuf, blob::Blob)>,
    may_be_absent: bool,
    /// Files that are not there by the name they are referred to with: the file that names them,
    /// and what is wanted.
    absent: BTreeMap<String, (PathBuf, String)>,
}

impl Weights {
    /// Those of the model in `model_file`, all within the package at `root`.
    pub fn new(root: &Path, model_file: &Path) -> Weights {
        Weights { may_be_absent: false, ..Weights::as_far_as_there(root, model_file) }
    }

    /// The same, of which files may be missing: their tensors have a type and nothing else.
    pub fn as_far_as_there(root: &Path, model_file: &Path) -> Weights {
        let (root, model_file) = (root.to_owned(), model_file.to_owned());
        let (files, absent) = Default::default();
        Weights { root, model_file, files, may_be_absent: true, absent }
    }

    /// The files opened so far.
    pub fn files(&self) -> impl Iterator<Item = &blob::Blob> {
        self.files.values().map(|f| &f.1)
    }

    /// The first file that is referred to and not there: the file that names it, what is wanted.
    pub fn absent(&self) -> Option<&(PathBuf, String)> {
        self.absent.values().next()
    }

    /// The tensor `reference` leads to; `at` is the value it is for. Of a file that is not there
    /// only the type is known, see [`Weights::absent`].
    pub fn tensor(
        &mut self,
        reference: &proto::BlobFileValue,
        dtype: DType,
        shape: Vec<u64>,
        at: &str,
    ) -> Result<Tensor, Error> {
        let name = &reference.file_name;
        if !self.files.contains_key(name) && !self.absent.contains_key(name) {
            match self.open(name, at) {
                Ok(opened) => drop(self.files.insert(name.clone(), opened)),
                Err(Error::NotFound { file, wanted }) if self.may_be_absent => {
                    self.absent.insert(name.clone(), (file, wanted));
                }
                Err(e) => return Err(e),
            }
        }
        if self.absent.contains_key(name) {
            let tensor = Tensor::absent(dtype, shape);
            return tensor.map_err(|e| Error::malformed(&self.model_file, Some(at), e.to_string()));
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
