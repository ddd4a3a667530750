//! The tensors of a folder by the names of their modules, checked against the config.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use russet_ir::{DType, Tensor};

use crate::safetensors::{self, Tensors};
use crate::{Error, gguf, mapped};

#[derive(Clone)]
pub struct Weights {
    tensors: Rc<Tensors>,
    /// What precedes the model's own names: `bert.`, `model.`, `0.auto_model.` or nothing.
    prefix: String,
    /// The tensor that told the prefix.
    probe: String,
    n_parameters: Rc<Cell<u64>>,
}

impl Weights {
    /// The weights in `folder`. Names are below the shortest prefix at which a tensor of the name
    /// in `probe` stands: the outermost, when a file holds several models.
    pub fn open(folder: &Path, probe: &(&str, Vec<u64>)) -> Result<Weights, Error> {
        let tensors = Weights::tensors(folder)?;
        let (name, expected) = probe;
        let before = |n: &'_ str| n.strip_suffix(name).map(str::to_owned);
        let prefixes = tensors.iter().filter_map(|(n, _)| before(n));
        let prefixes = prefixes.filter(|p| p.is_empty() || p.ends_with('.'));
        let Some(prefix) = prefixes.min_by_key(|p| (p.len(), p.clone())) else {
            return Err(Error::MissingTensor {
                file: tensors.file_of(name).to_owned(),
                tensor: (*name).to_owned(),
                expected: expected.clone(),
            });
        };
        let probe = (*name).to_owned();
        Ok(Weights { tensors: tensors.into(), prefix, probe, n_parameters: Rc::default() })
    }

    /// All tensors in `folder`, which may also be a GGUF file.
    fn tensors(folder: &Path) -> Result<Tensors, Error> {
        if folder.is_file() {
            let gguf = gguf::read(folder)?;
            return Ok(Tensors::of_file(folder, gguf::tensors(&gguf), gguf.n_bytes));
        }
        let (file, index) =
            (folder.join("model.safetensors"), folder.join("model.safetensors.index.json"));
        // Diffusion models have a name of their own for the same thing.
        let other = folder.join("diffusion_pytorch_model.safetensors");
        if file.exists() {
            safetensors::read(&file)
        } else if index.exists() {
            safetensors::read_index(&index)
        } else if other.exists() {
            safetensors::read(&other)
        } else {
            let wanted = match folder.join("pytorch_model.bin").exists() {
                true => "model.safetensors (pytorch_model.bin is not read: save it anew)",
                false => "model.safetensors (or model.safetensors.index.json)",
            };
            Err(Error::NotFound { file: folder.to_owned(), wanted: wanted.to_owned() })
        }
    }

    /// All weights in `folder` under their full names.
    pub fn whole(folder: &Path) -> Result<Weights, Error> {
        let tensors = Rc::new(Weights::tensors(folder)?);
        let (prefix, probe) = (String::new(), String::new());
        Ok(Weights { tensors, prefix, probe, n_parameters: Rc::default() })
    }

    /// The weights of one module beside the encoder, such as a dense layer after pooling.
    pub fn of_file(file: &Path) -> Result<Weights, Error> {
        let tensors = Rc::new(safetensors::read(file)?);
        let (prefix, probe) = (String::new(), String::new());
        Ok(Weights { tensors, prefix, probe, n_parameters: Rc::default() })
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

    /// Is there a tensor of this name?
    pub fn has(&self, name: &str) -> bool {
        self.tensors.get(&format!("{}{name}", self.prefix)).is_some()
    }

    /// The same weights, names being where the model itself stands: an LM head is beside `model`, which
    /// holds the trunk.
    pub fn outside(&self) -> Weights {
        let outer = self.prefix.trim_end_matches('.').rsplit_once('.').map_or("", |p| p.0);
        let prefix = if outer.is_empty() { String::new() } else { format!("{outer}.") };
        Weights { prefix, ..self.clone() }
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
        self.tensors.file_of(&format!("{}{}", self.prefix, self.probe))
    }
}

/// The text of a JSON file as `T`.
pub fn json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let text = mapped::text(file)?;
    serde_json::from_str(&text).map_err(|e| Error::malformed(file, None, e.to_string()))
}
