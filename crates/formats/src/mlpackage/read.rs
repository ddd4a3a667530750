//! A package as a program.
//!
//! This file finds the model and reads what is said about it; `body` reads what its functions do.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use russet_ir::{Finding, Graph, Opset, Program};

use super::blob::Blob;
use super::features::{Description, Feature, FunctionDescription};
use super::links::Links;
use super::weights::Weights;
use super::{hints, manifest, proto, symbols, value};
use crate::{Error, mapped};

/// What is in a package.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its weights are views of the mapped weight file.
    pub program: Program,
    pub description: Description,
    pub spec_version: i32,
    /// Of the model file.
    pub model_bytes: u64,
    /// Of all weight files that are referred to.
    pub weight_bytes: u64,
    /// Tensors in these files.
    pub n_weights: u64,
    /// Ops that are kept whole although the ir declares them, and why.
    pub findings: Vec<Finding>,
    /// A file of weights that is not there: the file that names it, and what is wanted. Tensors in
    /// it have no contents.
    pub absent: Option<(PathBuf, String)>,
    /// What all this was read from.
    pub source: Arc<Source>,
}

/// A model as it was read: its message, and where its weights are.
#[derive(Debug, Clone)]
pub struct Source {
    pub model: proto::Model,
    /// The model file; weights are named from beside it.
    pub file: PathBuf,
    /// The folder nothing may lead out of.
    pub root: PathBuf,
    /// Which node of the program each operation became.
    pub(super) links: Links,
}

/// Reads a package (a folder `NAME.mlpackage`), or a single `.mlmodel` file with its weights
/// beside it. What else Core ML has, [`container::open`](crate::container::open) reads.
///
/// # Errors
/// A manifest or a path that leads out of the package, files that are missing or damaged, a
/// reference to a weight that is not there, a model that is no ML Program, an opset that is newer
/// than this version knows.
pub fn read(path: &Path) -> Result<Package, Error> {
    if path.join("coremldata.bin").exists() {
        let (found, expected) = ("a compiled model", "a package (`.mlpackage`)");
        return Err(Error::WrongKind { file: path.to_owned(), found, expected });
    }
    let (root, model_file) = locate(path)?;
    parse(mapped::open(&model_file)?, &model_file, &root)
}

/// The root and the model file of a package or of a single `.mlmodel` file.
pub(crate) fn locate(path: &Path) -> Result<(PathBuf, PathBuf), Error> {
    Ok(match path.is_dir() {
        true => (path.to_owned(), manifest::model_file(path)?),
        false => (mapped::folder_of(path), path.to_owned()),
    })
}

/// Reads the bytes of a model file. `model_file` is where it would be (weights are looked for
/// beside it), `root` the package nothing may lead out of.
pub fn parse(bytes: Bytes, model_file: &Path, root: &Path) -> Result<Package, Error> {
    let model_bytes = bytes.len() as u64;
    let mut package = Package::of(decode_model(bytes, model_file)?, model_file, root)?;
    package.model_bytes = model_bytes;
    package.complete()
}

impl Package {
    /// Itself, if all its weights are there.
    ///
    /// # Errors
    /// [`Error::NotFound`] that names the file that is missing.
    pub fn complete(self) -> Result<Package, Error> {
        match self.absent {
            Some((file, wanted)) => Err(Error::NotFound { file, wanted }),
            None => Ok(self),
        }
    }

    /// The ML Program in a message that is already decoded, as far as its weights are there.
    pub(crate) fn of(model: proto::Model, file: &Path, root: &Path) -> Result<Package, Error> {
        let weights = Weights::as_far_as_there(root, file);
        Decoder::new(&model, file, weights)?.package(model, root)
    }
}

/// The message in the bytes of a model file, which must be an ML Program; `path` is for errors.
pub fn decode_model(bytes: Bytes, path: &Path) -> Result<proto::Model, Error> {
    let model = decode_any(bytes.clone(), path)?;
    if model.ml_program.is_none() {
        return Err(match kind(bytes) {
            Some(found) => Error::NotMlProgram { file: path.to_owned(), found },
            None => Error::malformed(path, None, "it is no model: nothing says of which kind"),
        });
    }
    Ok(model)
}

/// The message in the bytes of a model file of any kind; `path` is for errors.
pub(crate) fn decode_any(bytes: Bytes, path: &Path) -> Result<proto::Model, Error> {
    let decoded = proto::Model::decode(bytes);
    decoded.map_err(|e| Error::malformed(path, None, format!("it is no model: {e}")))
}

/// The kind of model, by the field that holds it.
fn kind(mut bytes: Bytes) -> Option<&'static str> {
    while let Ok((tag, wire)) = decode_key(&mut bytes) {
        if let Some(kind) = kind_of_tag(tag) {
            return Some(kind);
        }
        skip_field(wire, tag, &mut bytes, DecodeContext::default()).ok()?;
    }
    None
}

/// The kind of model a field of the message holds; `None` for fields that say something else.
pub(crate) fn kind_of_tag(tag: u32) -> Option<&'static str> {
    Some(match tag {
        200..=202 => "pipeline",
        300 | 400 => "generalized linear model",
        301 | 401 => "support vector machine",
        302 | 402 => "tree ensemble",
        303 | 403 | 500 => "neural network (the format before ML Programs)",
        304 => "Bayesian probit regressor",
        404 => "nearest neighbors classifier",
        501 => "recommender",
        555 => "custom model",
        556 => "linked model",
        560 | 600..=610 => "feature transformer",
        900 => "identity",
        2000..=2006 => "model of the Vision, Sound or Language framework",
        3000 => "serialized model",
        _ => return None,
    })
}

/// Texts about a model as a program has them, by key.
pub(crate) fn metadata(model: &proto::Model) -> BTreeMap<String, String> {
    let metadata = model.description.as_ref().and_then(|d| d.metadata.clone()).unwrap_or_default();
    let mut texts: BTreeMap<String, String> =
        metadata.user_defined.into_iter().filter(|m| m.0 != hints::KEY).collect();
    for (key, text) in [
        ("shortDescription", metadata.short_description),
        ("version", metadata.version_string),
        ("author", metadata.author),
        ("license", metadata.license),
    ] {
        if !text.is_empty() {
            texts.insert(key.into(), text);
        }
    }
    texts
}

/// The features of every function of a model, the default function first; `file` is for errors.
pub(crate) fn description(model: &proto::Model, file: &Path) -> Result<Description, Error> {
    let empty = proto::ModelDescription::default();
    let d = model.description.as_ref().unwrap_or(&empty);
    let all = |features: &[proto::FeatureDescription]| {
        let decoded = features.iter().map(Feature::decode);
        decoded.collect::<Result<Vec<_>, _>>().map_err(|e| Error::malformed(file, None, e))
    };
    let mut functions = Vec::new();
    for f in &d.functions {
        functions.push(FunctionDescription {
            name: f.name.clone(),
            inputs: all(&f.input)?,
            outputs: all(&f.output)?,
            states: all(&f.state)?,
            predicted_feature: f.predicted_feature_name.clone(),
            predicted_probabilities: f.predicted_probabilities_name.clone(),
        });
    }
    if functions.is_empty() {
        functions.push(FunctionDescription {
            name: undescribed_function(model).unwrap_or("main").to_owned(),
            inputs: all(&d.input)?,
            outputs: all(&d.output)?,
            states: all(&d.state)?,
            predicted_feature: d.predicted_feature_name.clone(),
            predicted_probabilities: d.predicted_probabilities_name.clone(),
        });
    }
    let mut known: HashSet<String> = HashSet::new();
    for f in &functions {
        if !known.insert(f.name.clone()) {
            return Err(Error::malformed(file, Some(&f.name), "it is described twice"));
        }
    }
    let names = model.ml_program.iter().flat_map(|p| p.functions.sorted()).map(|f| f.0);
    for name in names.filter(|n| !known.contains(*n)) {
        functions.push(FunctionDescription { name: name.clone(), ..Default::default() });
    }
    functions.sort_by_key(|f| f.name != d.default_function_name);
    Ok(Description { functions })
}

/// The function that a description without functions is of: `main`, which a text alone need not
/// have, nor the text of a package of several functions.
fn undescribed_function(model: &proto::Model) -> Option<&str> {
    let functions = &model.ml_program.as_ref()?.functions;
    let first = functions.sorted().into_iter().next()?.0;
    Some(functions.keys().find(|name| *name == "main").unwrap_or(first))
}

/// Messages becoming a program.
pub(super) struct Decoder<'a> {
    pub(super) file: &'a Path,
    pub(super) opset: Opset,
    pub(super) weights: Weights,
    pub(super) findings: Vec<Finding>,
    pub(super) links: Links,
}

impl<'a> Decoder<'a> {
    fn new(model: &proto::Model, file: &'a Path, weights: Weights) -> Result<Decoder<'a>, Error> {
        let version = |what, found: String, supported: String| Error::Version {
            file: file.to_owned(),
            what,
            found,
            supported,
        };
        let spec = model.specification_version;
        if Opset::from_spec_version(spec).is_none() {
            let supported = "6 to 10".to_owned();
            return Err(version("specificationVersion", spec.to_string(), supported));
        }
        let program = model.ml_program.as_ref();
        if let Some(p) = program.filter(|p| p.version != 1) {
            return Err(version("the program's version", p.version.to_string(), "1".into()));
        }
        // Ops mean what the function's opset says, not what the number of the file says.
        let mut opsets: Vec<&str> =
            program.iter().flat_map(|p| p.functions.values()).map(|f| f.opset.as_str()).collect();
        opsets.sort_unstable();
        opsets.dedup();
        let opset = match opsets[..] {
            [one] => one.parse().map_err(|()| {
                let known: Vec<&str> = Opset::ALL.iter().map(|o| o.coreml_name()).collect();
                version("the opset", format!("{one:?}"), known.join(", "))
            })?,
            [] => return Err(Error::malformed(file, None, "the program has no function")),
            _ => {
                let supported = "one for all functions".to_owned();
                return Err(version("the opset", opsets.join(" and "), supported));
            }
        };
        Ok(Decoder { file, opset, weights, findings: Vec::new(), links: Links::default() })
    }

    fn package(mut self, model: proto::Model, root: &Path) -> Result<Package, Error> {
        let described = description(&model, self.file)?;
        let metadata = metadata(&model);
        let note = model.description.as_ref().and_then(|d| d.metadata.as_ref());
        let hints = hints::parse(note.and_then(|m| m.user_defined.get(hints::KEY)));
        let empty = proto::Map::default();
        let functions = model.ml_program.as_ref().map_or(&empty, |p| &p.functions);
        let mut graphs = Vec::new();
        for d in &described.functions {
            let Some(function) = functions.get(&d.name) else {
                let why = "the description speaks of it, the program has no such function";
                return Err(Error::malformed(self.file, Some(&d.name), why));
            };
            graphs.push(self.function(&d.name, function, d, hints.get(&d.name))?);
        }
        let mut program = Program::new(self.opset, graphs);
        program.metadata = metadata;
        Ok(Package {
            program,
            description: described,
            spec_version: model.specification_version,
            model_bytes: 0,
            weight_bytes: self.weights.files().map(Blob::n_bytes).sum(),
            n_weights: self.weights.files().map(Blob::n_records).sum(),
            findings: self.findings,
            absent: self.weights.absent().cloned(),
            source: Arc::new(Source {
                model,
                file: self.file.to_owned(),
                root: root.to_owned(),
                links: self.links,
            }),
        })
    }

    fn function(
        &mut self,
        name: &str,
        function: &proto::Function,
        described: &FunctionDescription,
        hint: Option<&hints::Hint>,
    ) -> Result<Graph, Error> {
        let Some(block) = function.block_specializations.get(&function.opset) else {
            let why = format!("it has no block for its opset {:?}", function.opset);
            return Err(Error::malformed(self.file, Some(name), why));
        };
        let mut types = Vec::new();
        for input in &function.inputs {
            let ty = value::decode_type(input.r#type.as_ref(), &input.name);
            let ty = ty.map_err(|e| Error::malformed(self.file, Some(&input.name), e))?;
            types.push((input.name.clone(), ty));
        }
        let mut graph = Graph::new(name);
        graph.symbols = symbols::resolve(&mut types, &described.inputs, hint, self.opset);
        self.body(graph, types, block)
    }
}
