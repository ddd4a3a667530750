//! A model from wherever it is: a Hugging Face folder, an ONNX file or a Core ML package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use russet_formats::container::{self, Container, Content};
use russet_formats::huggingface::usage::{self, Cache, Usage};
use russet_formats::huggingface::{self, Mask, Pooling};
use russet_formats::{gguf, mapped, mlpackage, onnx};
use russet_ir::{Binding, Dim, Graph, Opset, Program};

use crate::diagnostic::{Failure, Outcome};

/// Which shapes a model is built for.
#[derive(Args, Debug, Clone, Default)]
pub struct Shapes {
    /// Sequence lengths, the first is the default; several become enumerated shapes. Of decoders: the
    /// tokens that `prefill` takes at once.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub seq: Vec<u64>,
    /// The same as full shapes of an input: `input_ids=1x128,1x256`. Of an ONNX model, once for each
    /// input whose extents are to be bound; the others stay open.
    #[arg(long, value_name = "INPUT=AxB,…", conflicts_with = "seq")]
    pub shapes: Vec<String>,
    /// An input of an ONNX model that is a constant of the program instead: `sr=16000`.
    #[arg(long, value_name = "INPUT=N,…")]
    pub constant: Vec<String>,
    /// How the vectors of tokens become one, instead of what the model says.
    #[arg(long, value_enum)]
    pub pooling: Option<PoolingChoice>,
    /// Of decoders: tokens there is room for, past ones and new ones; 2048 unless the model has less.
    #[arg(long, value_name = "N")]
    pub context: Option<u64>,
    /// Of decoders: is what past tokens left behind a state, or does it go in and out?
    #[arg(long, value_enum)]
    pub cache: Option<CacheChoice>,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy)]
pub enum CacheChoice {
    State,
    Io,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy)]
pub enum PoolingChoice {
    Mean,
    Cls,
    Max,
}

/// A model in memory; its weights are mapped.
pub struct Model {
    pub path: PathBuf,
    pub kind: Kind,
    /// In what a Core ML model was.
    pub container: Option<container::Kind>,
    pub program: Program,
    /// `tokenizer.json`, if one lies beside it.
    pub tokenizer: Option<PathBuf>,
    /// How its inputs are made, if that is known.
    pub usage: Option<Usage>,
}

pub enum Kind {
    HuggingFace { family: &'static str, n_parameters: u64, n_bytes: u64 },
    Onnx { producer: String, version: i64, n_parameters: u64, n_bytes: u64, n_nodes: u64 },
    Package(Box<mlpackage::Package>),
}

impl Shapes {
    /// A package has its shapes already.
    fn refuse_for_package(&self, path: &Path) -> Outcome<()> {
        let given = [
            ("--seq", !self.seq.is_empty()),
            ("--shapes", !self.shapes.is_empty()),
            ("--pooling", self.pooling.is_some()),
            ("--constant", !self.constant.is_empty()),
            ("--context", self.context.is_some()),
            ("--cache", self.cache.is_some()),
        ];
        match given.iter().find(|g| g.1) {
            Some((option, _)) => {
                let message =
                    format!("{option} is for Hugging Face folders, a package has its shapes");
                Err(Failure::usage(message).in_file(path))
            }
            None => Ok(()),
        }
    }

    /// Lengths and batch size.
    fn numbers(&self) -> Outcome<(Vec<u64>, u64)> {
        let Some(shapes) = self.shapes.first() else { return Ok((self.seq.clone(), 1)) };
        let bad = |why: &str| bad_shapes(shapes, why);
        if self.shapes.len() > 1 {
            return Err(bad("the inputs of an encoder have one shape"));
        }
        let (input, list) = shapes.split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        if !matches!(input, "input_ids" | "attention_mask") {
            return Err(bad(&format!("the model has no input `{input}`")));
        }
        let mut lengths = Vec::new();
        let mut batches = Vec::new();
        for shape in list.split(',') {
            let dims: Result<Vec<u64>, _> = shape.split('x').map(str::parse).collect();
            match dims.as_deref() {
                Ok([batch, length]) => {
                    batches.push(*batch);
                    lengths.push(*length);
                }
                _ => return Err(bad(&format!("`{shape}` is no shape of two numbers"))),
            }
        }
        batches.dedup();
        match batches.as_slice() {
            [0] => Err(bad("a batch of zero")),
            [batch] => Ok((lengths, *batch)),
            _ => Err(bad("the batch must be the same in every shape")),
        }
    }
}

fn bad_shapes(shapes: &str, why: &str) -> Failure {
    Failure::usage(format!("--shapes {shapes}: {why}")).help("write it as input_ids=1x128,1x256")
}

impl Shapes {
    /// Shapes by input, of a model that may have any.
    fn by_input(&self, path: &Path) -> Outcome<Vec<(String, Vec<Vec<u64>>)>> {
        let refused = [
            ("--seq", !self.seq.is_empty()),
            ("--pooling", self.pooling.is_some()),
            ("--context", self.context.is_some()),
            ("--cache", self.cache.is_some()),
        ];
        if let Some((option, _)) = refused.iter().find(|r| r.1) {
            let message = format!("{option} is for Hugging Face folders");
            return Err(Failure::usage(message)
                .in_file(path)
                .help("an ONNX model takes `--shapes INPUT=1x128,1x256`"));
        }
        let one = |given: &String| {
            let (input, list) =
                given.rsplit_once('=').ok_or_else(|| bad_shapes(given, "there is no `=`"))?;
            let shape = |s: &str| -> Outcome<Vec<u64>> {
                let dims: Result<Vec<u64>, _> = s.split('x').map(str::parse).collect();
                dims.map_err(|_| bad_shapes(given, &format!("`{s}` is no shape")))
            };
            let shapes = list.split(',').map(shape).collect::<Outcome<Vec<_>>>()?;
            Ok((input.to_owned(), shapes))
        };
        self.shapes.iter().map(one).collect()
    }

    /// Numbers by input.
    fn constants(&self) -> Outcome<BTreeMap<String, Vec<f64>>> {
        let one = |given: &String| {
            let bad = || {
                Failure::usage(format!("--constant {given}: it is no number of an input"))
                    .help("write it as sr=16000")
            };
            let (input, list) = given.rsplit_once('=').ok_or_else(bad)?;
            let numbers: Result<Vec<f64>, _> = list.split(',').map(str::parse).collect();
            Ok((input.to_owned(), numbers.map_err(|_| bad())?))
        };
        self.constant.iter().map(one).collect()
    }
}

impl Model {
    /// Reads the model at `path`. `opset` decides what the interface may be.
    pub fn load(path: &Path, shapes: &Shapes, opset: Opset) -> Outcome<Model> {
        if !path.exists() {
            let message = format!("there is no {}", path.display());
            return Err(Failure::new("not-found", message).in_file(path));
        }
        if is_package(path) {
            shapes.refuse_for_package(path)?;
            return Model::package(path);
        }
        if is_onnx(path) {
            return Model::onnx(path, shapes, opset);
        }
        let is_gguf = is_gguf(path);
        if !is_gguf && (!path.is_dir() || !path.join("config.json").exists()) {
            // What else it may be, by name.
            if let Some(error) = container::foreign(path) {
                return Err(error.into());
            }
        }
        if !path.is_dir() && !is_gguf {
            let message = "it is neither a Hugging Face folder, a GGUF file, an ONNX model nor a Core ML package";
            return Err(Failure::new("wrong-kind", message).in_file(path));
        }
        if !shapes.constant.is_empty() {
            let message = "--constant is for ONNX models";
            return Err(Failure::usage(message).in_file(path));
        }
        let (lengths, batch) = shapes.numbers()?;
        // Before iOS 18 only one input may have enumerated shapes.
        let one_input = lengths.len() > 1 && opset < Opset::Ios18;
        let options = huggingface::Options {
            lengths,
            batch,
            mask: if one_input { Mask::FromIds } else { Mask::Input },
            pooling: shapes.pooling.map(|p| match p {
                PoolingChoice::Mean => Pooling::Mean,
                PoolingChoice::Cls => Pooling::Cls,
                PoolingChoice::Max => Pooling::Max,
            }),
            cache: match shapes.cache {
                Some(CacheChoice::Io) => Cache::Io,
                Some(CacheChoice::State) | None => Cache::State,
            },
            context: shapes.context,
        };
        let source = huggingface::load(path, &options)?;
        let mut program = source.program;
        program.opset = opset;
        Ok(Model {
            path: path.to_owned(),
            kind: Kind::HuggingFace {
                family: source.family,
                n_parameters: source.n_parameters,
                n_bytes: source.n_bytes,
            },
            container: None,
            program,
            tokenizer: source.tokenizer,
            usage: Some(source.usage),
        })
    }

    fn onnx(path: &Path, shapes_given: &Shapes, opset: Opset) -> Outcome<Model> {
        let shapes = shapes_given.by_input(path)?;
        let numbers = shapes_given.constants()?;
        let options = onnx::Options { opset, shapes, numbers, ..onnx::Options::default() };
        let source = onnx::load(path, &options)?;
        Ok(Model {
            path: path.to_owned(),
            kind: Kind::Onnx {
                producer: source.producer,
                version: source.version,
                n_parameters: source.n_parameters,
                n_bytes: source.n_bytes,
                n_nodes: source.n_nodes,
            },
            container: None,
            program: source.program,
            tokenizer: None,
            usage: None,
        })
    }

    fn package(path: &Path) -> Outcome<Model> {
        Model::of(path, container::open(path)?)
    }

    /// The ML Program in a container that is open.
    pub fn of(path: &Path, opened: Container) -> Outcome<Model> {
        let failed = |message| Err(Failure::new("not-an-ml-program", message).in_file(path));
        match opened.content {
            Content::Program(package) => {
                let package = package.complete()?;
                let described = usage(&package.program);
                Ok(Model {
                    path: path.to_owned(),
                    container: Some(opened.kind),
                    program: package.program.clone(),
                    kind: Kind::Package(package.into()),
                    tokenizer: None,
                    usage: described,
                })
            }
            Content::Pipeline(stages) => {
                let names: Vec<&str> = stages.iter().map(|s| s.name.as_str()).collect();
                let message =
                    format!("it is a pipeline of {} models: {}", names.len(), names.join(", "));
                let help = match opened.kind {
                    container::Kind::Compiled => "name one stage, the folder `model0` in it",
                    _ => {
                        "compile it to a `.mlmodelc` and name one stage, the folder `model0` in it"
                    }
                };
                failed(message).map_err(|f: Failure| f.help(help))
            }
            Content::Network(n) => {
                let message = format!(
                    "it is a {} of {} layers, the format before ML Programs",
                    n.kind,
                    n.layers.len()
                );
                failed(message)
                    .map_err(|f: Failure| f.help("convert the source again, to an ML Program"))
            }
            Content::Other(kind) => failed(format!("it is a {kind}, an ML Program is expected")),
        }
    }

    /// The function called `name`, or the default one.
    pub fn function(&self, name: Option<&str>) -> Outcome<&Graph> {
        let Some(name) = name else {
            let first = self.program.functions.first();
            return first.ok_or_else(|| {
                Failure::new("no-function", "the program has no function").in_file(&self.path)
            });
        };
        self.program.function(name).ok_or_else(|| {
            let known: Vec<&str> = self.program.functions.iter().map(|f| f.name.as_str()).collect();
            let message = format!("there is no function `{name}`; there are {}", known.join(", "));
            Failure::new("no-function", message).in_file(&self.path)
        })
    }
}

/// Is a Core ML model there, or what claims to be one?
pub fn is_package(path: &Path) -> bool {
    container::is_container(path)
}

/// Is it an ONNX model, by its contents or by its name?
pub fn is_onnx(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let named = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"));
    named || mapped::open(path).is_ok_and(|bytes| onnx::is_onnx(&bytes))
}

/// Is it a GGUF file?
fn is_gguf(path: &Path) -> bool {
    path.is_file() && mapped::open(path).is_ok_and(|bytes| gguf::is_gguf(&bytes))
}

/// Every allowed binding of a function's symbols; one empty one when all shapes are fixed.
pub fn bindings(graph: &Graph) -> Vec<Binding> {
    match graph.symbols.enumerated.is_empty() {
        true => vec![Binding::new()],
        false => graph.symbols.enumerated.clone(),
    }
}

/// The function with `binding` for its symbols.
pub fn bind(graph: &Graph, binding: &Binding) -> Outcome<Graph> {
    if binding.is_empty() {
        return Ok(graph.clone());
    }
    graph.bind(binding).map_err(|e| Failure::new("shape-mismatch", e.to_string()))
}

/// The length of the sequence, the last axis of the first input; `None` when it is a symbol.
pub fn length(graph: &Graph) -> Option<u64> {
    let &first = graph.inputs().first()?;
    graph.shape(first).last().and_then(Dim::fixed)
}

/// What a package says about its inputs; nothing when it was made elsewhere.
fn usage(program: &Program) -> Option<Usage> {
    serde_json::from_str(program.metadata.get(usage::KEY)?).ok()
}
