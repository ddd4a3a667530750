//! Inputs of a run: arrays from a file, sentences, or made up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use russet_exec::Array;
use russet_formats::arrays;
use russet_formats::huggingface::usage::Usage;
use russet_formats::mlpackage::{self, Kind as FeatureKind};
use russet_ir::{DType, Graph, TensorType};
use russet_passes::random_inputs;

use crate::diagnostic::{Failure, Outcome};
use crate::hear;
use crate::model::{Kind, Model, bindings};
use crate::see;
use crate::text::{Sentences, fitting};

/// Where inputs come from.
#[derive(Args, Debug, Clone, Default)]
pub struct Source {
    /// Arrays by input name: `.npz`, `.npy` or `.safetensors`, or a folder of them. Several files
    /// are one call after the other, on states that are kept.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub inputs: Vec<PathBuf>,
    /// A sentence; may be given several times.
    #[arg(long, value_name = "SENTENCE", conflicts_with = "inputs")]
    pub text: Vec<String>,
    /// A picture, PNG or JPEG, of a model that sees; with --text, how well each text describes it.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "inputs")]
    pub image: Vec<PathBuf>,
    /// A sound, WAV or FLAC, of a model that hears. A Hugging Face folder is made as long as it is.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["inputs", "text", "image"])]
    pub audio: Vec<PathBuf>,
    /// The language that is spoken, such as `en`; the model finds out otherwise.
    #[arg(long, value_name = "NAME", requires = "audio")]
    pub language: Option<String>,
    /// Translate what is said to English instead of writing it down.
    #[arg(long, requires = "audio")]
    pub translate: bool,
    /// The model's `tokenizer.json`, or the folder it is in, when it does not lie beside the model.
    #[arg(long, value_name = "PATH")]
    pub tokenizer: Option<PathBuf>,
    /// Seed of the inputs that are made up when none are given.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Arrays by input name.
pub type Inputs = BTreeMap<String, Array>;

/// Symbols without an enumerated default are this long in made-up inputs.
const LENGTH: u64 = 128;

/// An input that is left out and larger than this has to be given.
const DEFAULT_BYTES_MAX: u64 = 1 << 30;

impl Source {
    /// The sets of [`Source::sets`] one after another: files are read when it is their turn.
    pub fn each<'a>(
        &'a self,
        model: &'a Model,
        graph: &'a Graph,
    ) -> Outcome<Box<dyn Iterator<Item = Outcome<Inputs>> + 'a>> {
        if self.inputs.is_empty() {
            return Ok(Box::new(self.sets(model, graph)?.into_iter().map(Ok)));
        }
        let sets = self.files()?.into_iter().map(move |file| from_file(&file, graph));
        Ok(Box::new(sets.map(move |set| Ok(with_defaults(set?, model, graph)))))
    }

    /// The files of arrays that are named, those of folders in the order of their names.
    fn files(&self) -> Outcome<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.inputs {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            let io = |e: std::io::Error| Failure::new("io", e.to_string()).in_file(path);
            let mut inside = Vec::new();
            for entry in std::fs::read_dir(path).map_err(io)? {
                let file = entry.map_err(io)?.path();
                let extension = file.extension().and_then(|e| e.to_str());
                if matches!(extension, Some("npz" | "npy" | "safetensors")) {
                    inside.push(file);
                }
            }
            if inside.is_empty() {
                let message = "there is no .npz, .npy or .safetensors in this folder";
                return Err(Failure::new("no-inputs", message).in_file(path));
            }
            inside.sort();
            files.extend(inside);
        }
        Ok(files)
    }

    /// Made-up inputs, others for each `step`.
    pub fn made_up(&self, graph: &Graph, step: u64) -> Outcome<Inputs> {
        Ok(random_inputs(graph, self.seed.wrapping_add(2 * step), LENGTH)?)
    }

    /// One set of inputs for each file or sentence, or a single one.
    pub fn sets(&self, model: &Model, graph: &Graph) -> Outcome<Vec<Inputs>> {
        if !self.inputs.is_empty() {
            return self.each(model, graph)?.collect();
        }
        if !self.image.is_empty() {
            return see::sets(&self.image, model, graph);
        }
        if !self.audio.is_empty() {
            return hear::sets(&self.audio, model, graph);
        }
        if self.text.is_empty() {
            return Ok(vec![random_inputs(graph, self.seed, LENGTH)?]);
        }
        if let Some(Usage::Decoder(_)) = model.usage {
            let message = "--text of a decoder is for `russet run`";
            return Err(Failure::usage(message).help("give arrays with --inputs instead"));
        }
        let file = self.tokenizer_file(model)?;
        let lengths = lengths(graph)?;
        let longest = lengths.iter().copied().max().unwrap_or(LENGTH);
        let sentences = Sentences::open(&file, longest as usize)?;
        self.text.iter().map(|s| sentence(&sentences.ids(s)?, graph, &lengths, model)).collect()
    }

    /// Is nothing given, so that inputs are made up?
    pub fn is_made_up(&self) -> bool {
        let seen = self.image.is_empty() && self.audio.is_empty();
        seen && self.inputs.is_empty() && self.text.is_empty()
    }

    /// Names the file of set `i` of inputs in an error about one of them.
    pub fn blame(&self, i: usize, failure: Failure) -> Failure {
        let of_inputs =
            matches!(failure.code(), Some("missing-input" | "unknown-input" | "input-mismatch"));
        match self.files().ok().filter(|_| of_inputs).and_then(|f| f.get(i).cloned()) {
            Some(file) => failure.in_file(&file),
            None => failure,
        }
    }

    /// The tokenizer that was named, or that of the model.
    pub fn tokenizer_file(&self, model: &Model) -> Outcome<PathBuf> {
        let given = self.tokenizer.clone().map(|p| match p.is_dir() {
            true => p.join("tokenizer.json"),
            false => p,
        });
        given.or_else(|| model.tokenizer.clone()).ok_or_else(|| {
            let message = "--text needs a tokenizer, and there is none beside the model";
            Failure::new("no-tokenizer", message)
                .in_file(&model.path)
                .help("name the folder of the model it was made from: --tokenizer FOLDER")
        })
    }
}

/// Lengths that `input_ids` may have.
pub fn lengths(graph: &Graph) -> Outcome<Vec<u64>> {
    let ids = graph.inputs().iter().find(|&&v| graph.value(v).name == "input_ids");
    let Some(&ids) = ids else {
        return Err(Failure::new("no-text", "the model has no input `input_ids` to give text to"));
    };
    match graph.shape(ids).last() {
        Some(russet_ir::Dim::Fixed(n)) => Ok(vec![*n]),
        Some(russet_ir::Dim::Symbol(s)) => {
            Ok(bindings(graph).iter().filter_map(|b| b.get(s).copied()).collect())
        }
        None => Err(Failure::new("no-text", "`input_ids` has no axis for tokens")),
    }
}

/// A sentence padded to the model's next length, repeated over the batch.
pub fn sentence(ids: &[i32], graph: &Graph, lengths: &[u64], model: &Model) -> Outcome<Inputs> {
    let length = fitting(lengths, ids.len()) as usize;
    let mut inputs = Inputs::new();
    for &v in graph.inputs() {
        let name = &graph.value(v).name;
        let padding = match model.usage {
            Some(Usage::Text { pad_token_id }) => i32::try_from(pad_token_id).unwrap_or(0),
            Some(Usage::Image(ref images)) => {
                let side = images.text.as_ref();
                side.map_or(0, |s| i32::try_from(s.pad_token_id).unwrap_or(0))
            }
            _ => 0,
        };
        let row: Vec<i32> = match name.as_str() {
            "input_ids" => {
                ids.iter().copied().chain(std::iter::repeat(padding)).take(length).collect()
            }
            "attention_mask" => (0..length).map(|i| i32::from(i < ids.len())).collect(),
            other => {
                let message = format!("--text does not know what to give to the input `{other}`");
                return Err(Failure::new("no-text", message));
            }
        };
        let batch = graph.shape(v).first().and_then(russet_ir::Dim::fixed).unwrap_or(1) as usize;
        let array = Array::i32(vec![batch, length], row.repeat(batch));
        inputs.insert(name.clone(), array);
    }
    Ok(inputs)
}

/// The same with the arrays that may be left out, as the model fills them. One without a number to
/// fill it with has to be given.
fn with_defaults(mut inputs: Inputs, model: &Model, graph: &Graph) -> Inputs {
    let Kind::Package(package) = &model.kind else { return inputs };
    let described = package.description.functions.iter().find(|f| f.name == graph.name);
    for feature in described.iter().flat_map(|f| &f.inputs).filter(|f| f.optional) {
        let FeatureKind::Array(mlpackage::Array { shape, default: Some(default), .. }) =
            &feature.kind
        else {
            continue;
        };
        let of_name = |v: &&russet_ir::Value| graph.value(**v).name == feature.name;
        let input = graph.inputs().iter().find(of_name);
        let Some(ty) = input.and_then(|&v| graph.ty(v).tensor()) else { continue };
        // A flexible one has the shape that the description gives.
        let shape = ty.fixed_shape().unwrap_or_else(|| shape.clone());
        let n_bytes = TensorType::new(DType::F32, shape.iter().copied()).n_bytes();
        let Some(n) = n_bytes.filter(|&n| n <= DEFAULT_BYTES_MAX).map(|n| n as usize / 4) else {
            continue;
        };
        let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        inputs.entry(feature.name.clone()).or_insert_with(|| match ty.dtype.is_float() {
            true => Array::f32(shape, vec![*default as f32; n]),
            false => Array::i32(shape, vec![*default as i32; n]),
        });
    }
    inputs
}

/// Arrays by name, as inputs or states of a function.
pub fn from_file(file: &Path, graph: &Graph) -> Outcome<Inputs> {
    let mut inputs = named(file)?;
    // One array for one input needs no name.
    if let ([only], 1) = (graph.inputs(), inputs.len()) {
        let name = graph.value(*only).name.clone();
        if !inputs.contains_key(&name) {
            inputs = inputs.into_values().map(|a| (name.clone(), a)).collect();
        }
    }
    Ok(inputs)
}

/// Arrays by name.
pub fn named(file: &Path) -> Outcome<Inputs> {
    let mut inputs = Inputs::new();
    for (name, tensor) in arrays::read(file)? {
        let Some(array) = Array::from_tensor(&tensor) else {
            let message = format!("`{name}` holds {}", DType::String);
            return Err(Failure::new("input-mismatch", message).in_file(file));
        };
        inputs.insert(name, array);
    }
    Ok(inputs)
}
