//! Whatever holds a Core ML model, opened: packages, model files, compiled models, texts.
//!
//! [`open`] tells by looking inside, not by the name, and says of everything else what it is.

use std::path::{Path, PathBuf};

use russet_ir::Finding;

use crate::mil_text::{self, MilText, Syntax};
use crate::mlmodelc;
use crate::mlpackage::{self, Description, Package, proto};
use crate::network::Network;
use crate::{Error, foreign, mapped};

/// What kind of container it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder with a manifest, `.mlpackage`.
    Package,
    /// One file, `.mlmodel`, its weights beside it.
    ModelFile,
    /// A folder as Core ML loads it, `.mlmodelc`, or one stage in it.
    Compiled,
    /// A program as text alone, `.mil`.
    Text,
}

impl Kind {
    /// The end of its name.
    pub fn extension(self) -> &'static str {
        match self {
            Kind::Package => "mlpackage",
            Kind::ModelFile => "mlmodel",
            Kind::Compiled => "mlmodelc",
            Kind::Text => "mil",
        }
    }
}

/// A container and what is in it.
#[derive(Debug, Clone)]
pub struct Container {
    pub path: PathBuf,
    pub kind: Kind,
    pub spec_version: i32,
    /// Of the model file or the text; of a compiled pipeline, of all its stages.
    pub model_bytes: u64,
    /// What is said to callers; empty of a text, which says nothing.
    pub description: Description,
    /// Texts for people, as they are in a program's metadata.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// How its program is written as text: as it was, or as Apple's compiler would.
    pub syntax: Syntax,
    pub content: Content,
}

/// The model itself.
#[derive(Debug, Clone)]
pub enum Content {
    Program(Box<Package>),
    /// Stages one after another.
    Pipeline(Vec<Stage>),
    /// The format before ML Programs.
    Network(Box<Network>),
    /// A model of another kind, by its name.
    Other(&'static str),
}

/// One stage of a pipeline.
#[derive(Debug, Clone)]
pub struct Stage {
    pub name: String,
    pub container: Container,
}

/// Nesting of pipelines beyond which they are refused.
const PIPELINES_MAX: usize = 8;

/// Opens the container at `path`.
///
/// # Errors
/// [`Error::Foreign`] for everything else that is recognised, [`Error::WrongKind`] for what is
/// not; whatever is wrong with a container that is one.
pub fn open(path: &Path) -> Result<Container, Error> {
    if mlmodelc::is_compiled(path) {
        return compiled(path, 0);
    }
    let is_package = path.is_dir() && path.join("Manifest.json").exists();
    if path.is_dir() && !is_package {
        return Err(foreign::folder(path));
    }
    if is_package && path.join("encryptionInfo").exists() {
        return Err(foreign::encrypted(path));
    }
    if path.extension().is_some_and(|e| e == "mil") {
        return text(path);
    }
    let (root, file) = mlpackage::locate(path)?;
    let bytes = mapped::open(&file)?;
    if let Some(error) = foreign::file(&file, &bytes) {
        return Err(error);
    }
    let kind = if is_package { Kind::Package } else { Kind::ModelFile };
    let place = Place { path, kind, root: &root, file: &file };
    let model_bytes = bytes.len() as u64;
    let model = mlpackage::decode_any(bytes, &file)?;
    place.model(model, model_bytes, 0)
}

/// Could this be a container, going by its name and what it holds? Cheap: nothing is read.
pub fn is_container(path: &Path) -> bool {
    let known = ["mlpackage", "mlmodel", "mlmodelc", "mil"];
    path.extension().is_some_and(|e| known.iter().any(|k| e == *k))
        || path.join("Manifest.json").exists()
        || mlmodelc::is_compiled(path)
}

/// What `path` is when it is known to be something else than a Core ML model, as an error that
/// says what to do; `None` when nothing is known of it.
pub fn foreign(path: &Path) -> Option<Error> {
    let error = match path.is_dir() {
        true => Some(foreign::folder(path)),
        false => foreign::file(path, &mapped::open(path).ok()?),
    };
    error.filter(|e| matches!(e, Error::Foreign { .. }))
}

impl Container {
    /// The ML Program, if it is one.
    pub fn program(&self) -> Option<&Package> {
        match &self.content {
            Content::Program(p) => Some(p),
            _ => None,
        }
    }

    /// Stages of a pipeline; none of anything else.
    pub fn stages(&self) -> &[Stage] {
        match &self.content {
            Content::Pipeline(stages) => stages,
            _ => &[],
        }
    }

    /// The stage with this name or number.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        let stages = self.stages();
        let by_name = stages.iter().find(|s| s.name == name);
        by_name.or_else(|| stages.get(name.parse::<usize>().ok()?))
    }

    /// Everything noticed while reading it and its stages.
    pub fn findings(&self) -> Vec<Finding> {
        match &self.content {
            Content::Program(p) => p.findings.clone(),
            Content::Pipeline(stages) => {
                stages.iter().flat_map(|s| s.container.findings()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Its program in Apple's text, or those of its stages one after another; `None` when there
    /// is no program. A message that no text can say is an error in words.
    pub fn text(&self) -> Option<Result<String, String>> {
        match &self.content {
            Content::Program(p) => {
                Some(mil_text::print(p.source.model.ml_program.as_ref()?, self.syntax))
            }
            Content::Pipeline(stages) => {
                let texts: Option<Result<Vec<String>, String>> =
                    stages.iter().map(|s| s.container.text()).collect();
                texts.map(|t| t.map(|t| t.join("\n")))
            }
            _ => None,
        }
    }
}

/// Where a model is.
struct Place<'a> {
    path: &'a Path,
    kind: Kind,
    root: &'a Path,
    file: &'a Path,
}

impl Place<'_> {
    fn model(
        &self,
        mut model: proto::Model,
        model_bytes: u64,
        depth: usize,
    ) -> Result<Container, Error> {
        let spec_version = model.specification_version;
        let metadata = mlpackage::metadata(&model);
        if model.ml_program.is_some() {
            let mut package = Package::of(model, self.file, self.root)?;
            package.model_bytes = model_bytes;
            let description = package.description.clone();
            let content = Content::Program(package.into());
            return Ok(self.container(spec_version, model_bytes, description, metadata, content));
        }
        let description = mlpackage::description(&model, self.file)?;
        let pipeline = match model.pipeline.take() {
            Some(p) => Some(p),
            None => {
                let wrapped = model.pipeline_classifier.take().or(model.pipeline_regressor.take());
                wrapped.and_then(|w| w.pipeline)
            }
        };
        let content = match pipeline {
            Some(pipeline) => {
                if depth == PIPELINES_MAX {
                    let why = "pipelines are nested too deeply";
                    return Err(Error::malformed(self.file, None, why));
                }
                let names = mlmodelc::stage_names(&pipeline);
                let mut stages = Vec::new();
                for (name, stage) in names.into_iter().zip(pipeline.models) {
                    let container = self.model(stage, model_bytes, depth + 1)?;
                    stages.push(Stage { name, container });
                }
                Content::Pipeline(stages)
            }
            None => match Network::of(&model, self.file)? {
                Some(network) => Content::Network(network.into()),
                None => match model.unknown.tags().find_map(mlpackage::kind_of_tag) {
                    Some(name) => Content::Other(name),
                    None => {
                        let why = "it is no model: nothing says of which kind";
                        return Err(Error::malformed(self.file, None, why));
                    }
                },
            },
        };
        Ok(self.container(spec_version, model_bytes, description, metadata, content))
    }

    fn container(
        &self,
        spec_version: i32,
        model_bytes: u64,
        description: Description,
        metadata: std::collections::BTreeMap<String, String>,
        content: Content,
    ) -> Container {
        let (path, kind) = (self.path.to_owned(), self.kind);
        let syntax = Syntax::of_spec_version(spec_version);
        Container { path, kind, spec_version, model_bytes, description, metadata, syntax, content }
    }
}

fn compiled(path: &Path, depth: usize) -> Result<Container, Error> {
    let mlmodelc::Compiled { model, file, model_bytes, stages, .. } = mlmodelc::read(path)?;
    let place = Place { path, kind: Kind::Compiled, root: path, file: &file };
    if stages.is_empty() {
        return place.model(model, model_bytes, depth);
    }
    if depth == PIPELINES_MAX {
        return Err(Error::malformed(path, None, "pipelines are nested too deeply"));
    }
    let mut opened = Vec::new();
    for (name, folder) in stages {
        opened.push(Stage { name, container: compiled(&folder, depth + 1)? });
    }
    let model_bytes = opened.iter().map(|s| s.container.model_bytes).sum();
    let description = mlpackage::description(&model, &file)?;
    let metadata = mlpackage::metadata(&model);
    let version = model.specification_version;
    Ok(place.container(version, model_bytes, description, metadata, Content::Pipeline(opened)))
}

fn text(path: &Path) -> Result<Container, Error> {
    let text = mapped::text(path)?;
    let MilText { program, syntax } = mil_text::parse(&text, path)?;
    let model = proto::Model {
        specification_version: mlmodelc::oldest_version(&program),
        ml_program: Some(program),
        ..Default::default()
    };
    let root = mapped::folder_of(path);
    let place = Place { path, kind: Kind::Text, root: &root, file: path };
    Ok(Container { syntax, ..place.model(model, text.len() as u64, 0)? })
}
