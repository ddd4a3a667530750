//! The tensors of a folder by the names of their modules, checked against the config.

use std::cell::Cell;
use std::path::Path;

use russet_ir::{DType, Tensor};

use super::Config;
use crate::safetensors::{self, Tensors};
use crate::{Error, mapped};

const WORDS: &str = "embeddings.word_embeddings.weight";

pub struct Weights {
    tensors: Tensors,
    /// What precedes the encoder's own names: `bert.`, `roberta.`, `0.auto_model.` or nothing.
    prefix: String,
    n_parameters: Cell<u64>,
}

impl Weights {
    pub fn open(folder: &Path, config: &Config) -> Result<Weights, Error> {
        let (file, index) =
            (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
        let tensors = if file.exists() {
            safetensors::read(&file)?
        } else if index.exists() {
            safetensors::read_index(&index)?
        } else {
            let wanted = match folder.join("pytorch_model.bin").exists() {
                true => "model.safetensors (pytorch_model.bin is not read: save it anew)",
                false => "model.safetensors (or model.safetensors.index.json)",
            };
            return Err(Error::NotFound { file: folder.to_owned(), wanted: wanted.to_owned() });
        };
        // The shortest, when a file holds several encoders: the outermost.
        let prefixes = tensors.iter().filter_map(|(name, _)| name.strip_suffix(WORDS));
        let Some(prefix) = prefixes.min_by_key(|p| (p.len(), p.to_string())) else {
            return Err(Error::MissingTensor {
                file: tensors.file_of(WORDS).to_owned(),
                tensor: WORDS.to_owned(),
                expected: vec![config.n_vocab, config.hidden],
            });
        };
        let prefix = prefix.to_owned();
        Ok(Weights { tensors, prefix, n_parameters: Cell::new(0) })
    }

    /// The weights of one module beside the encoder, such as a dense layer after pooling.
    pub fn of_file(file: &Path) -> Result<Weights, Error> {
        let (tensors, prefix) = (safetensors::read(file)?, String::new());
        Ok(Weights { tensors, prefix, n_parameters: Cell::new(0) })
    }

    /// The tensor `name` as f32, which must have this shape.
    pub fn get(&self, name: &str, expected: &[u64]) -> Result<Tensor, Error> {
        let full = format!("{}{name}", self.prefix);
        // Checkpoints converted from TensorFlow call the two halves of a norm by its formula.
        let old = full
            .strip_suffix(".weight")
            .map(|n| format!("{n}.gamma"))
            .or(full.strip_suffix(".bias").map(|n| format!("{n}.beta")));
        let found = [Some(full.clone()), old].into_iter().flatten().find_map(|n| {
            let t = self.tensors.get(&n)?;
            Some((n, t))
        });
        let file = self.tensors.file_of(&full).to_owned();
        let Some((tensor, t)) = found else {
            let expected = expected.to_vec();
            return Err(Error::MissingTensor { file, tensor: full, expected });
        };
        if t.shape != expected {
            let (found, expected) = (t.shape.clone(), expected.to_vec());
            return Err(Error::Shape { file, tensor, found, expected });
        }
        if !matches!(t.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64) {
            let (found, expected) = (t.dtype, "a float of at least 16 bits");
            return Err(Error::TensorDType { file, tensor, found, expected });
        }
        self.n_parameters.set(self.n_parameters.get() + t.n_elements());
        Ok(t.cast(DType::F32))
    }

    /// Elements of all tensors handed out.
    pub fn n_parameters(&self) -> u64 {
        self.n_parameters.get()
    }

    /// Bytes of the files.
    pub fn n_bytes(&self) -> u64 {
        self.tensors.n_bytes()
    }

    /// The file most tensors are in, for errors about none in particular.
    pub fn file(&self) -> &Path {
        self.tensors.file_of(&format!("{}{WORDS}", self.prefix))
    }
}

/// The text of a JSON file as `T`.
pub fn json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let text = mapped::text(file)?;
    serde_json::from_str(&text).map_err(|e| Error::malformed(file, None, e.to_string()))
}
