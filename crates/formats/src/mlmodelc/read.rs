//! A compiled model as a message.

use std::path::{Path, PathBuf};

use russet_ir::Opset;

use super::data::{self, ML_PROGRAM, PIPELINE};
use super::metadata;
use crate::mil_text::{self, Syntax};
use crate::mlpackage::proto;
use crate::{Error, mapped};

const DATA: &str = "coremldata.bin";
const METADATA: &str = "metadata.json";
const TEXT: &str = "model.mil";

/// What is in a compiled model.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// Of a pipeline, without its stages: each is a compiled model of its own.
    pub model: proto::Model,
    /// How the text is written, where there is one.
    pub syntax: Option<Syntax>,
    /// The text, beside which the weights are.
    pub file: PathBuf,
    pub model_bytes: u64,
    /// Name and folder of each stage of a pipeline.
    pub stages: Vec<(String, PathBuf)>,
}

/// Is the folder a compiled model, or what claims to be one?
pub fn is_compiled(path: &Path) -> bool {
    let holds = |name: &str| path.join(name).is_file();
    path.is_dir()
        && !holds("Manifest.json")
        && (path.extension().is_some_and(|e| e == "mlmodelc")
            || [DATA, TEXT, "model.espresso.net"].into_iter().any(holds))
}

/// Reads a compiled model, or one stage of a compiled pipeline.
///
/// # Errors
/// An encrypted model, one that is neither an ML Program nor a pipeline, files that are missing
/// or damaged.
pub fn read(folder: &Path) -> Result<Compiled, Error> {
    let foreign = |found, advice| Err(Error::Foreign { file: folder.to_owned(), found, advice });
    if folder.join("encryptionInfo").exists() {
        return foreign(
            "an encrypted model",
            "nobody reads it without its key; take the package it was made from",
        );
    }
    let file = folder.join(TEXT);
    let opened = |name: &str| match folder.join(name) {
        path if path.is_file() => mapped::open(&path).map(|bytes| Some((bytes, path))),
        _ => Ok(None),
    };
    let data = match opened(DATA)? {
        Some((bytes, path)) => Some(data::parse(bytes, &path)?),
        None => None,
    };
    let json = match folder.join(METADATA) {
        path if path.is_file() => Some(metadata::parse(&mapped::text(&path)?, &path)?),
        _ => None,
    };
    let kind = data.as_ref().map(|d| d.kind);
    let is_pipeline = kind == Some(PIPELINE)
        || kind.is_none() && !file.exists() && folder.join("model0").is_dir();
    let (spec_version, description) = match (data, json) {
        (Some(d), _) => (Some(d.spec_version), Some(d.description)),
        (None, Some(m)) => (m.spec_version, Some(m.description)),
        (None, None) => (None, None),
    };
    let mut compiled = Compiled {
        model: proto::Model {
            specification_version: spec_version.unwrap_or_default(),
            description,
            ..Default::default()
        },
        syntax: None,
        file,
        model_bytes: 0,
        stages: Vec::new(),
    };
    if is_pipeline {
        compiled.stages = stages(folder)?;
        compiled.model.pipeline = Some(proto::Pipeline::default());
        return Ok(compiled);
    }
    if !compiled.file.exists() {
        return match kind {
            _ if folder.join("model.espresso.net").exists() => foreign(
                "a compiled neural network, the format before ML Programs",
                "convert the source again, to an ML Program",
            ),
            Some(ML_PROGRAM) | None => Err(Error::NotFound {
                file: folder.to_owned(),
                wanted: format!("the file {TEXT:?}, which holds the program,"),
            }),
            Some(_) => foreign(
                "a compiled model of another kind than ML Program",
                "convert the source again, to an ML Program",
            ),
        };
    }
    let text = mapped::text(&compiled.file)?;
    compiled.model_bytes = text.len() as u64;
    let parsed = mil_text::parse(&text, &compiled.file)?;
    if spec_version.is_none() {
        compiled.model.specification_version = oldest_version(&parsed.program);
    }
    compiled.syntax = Some(parsed.syntax);
    compiled.model.ml_program = Some(parsed.program);
    Ok(compiled)
}

/// The specification version that came with the newest opset of a program; the newest of all when
/// none is known, so that it is the opset that is complained of.
pub(crate) fn oldest_version(program: &proto::Program) -> i32 {
    let opsets = program.functions.values().filter_map(|f| f.opset.parse::<Opset>().ok());
    opsets.map(Opset::spec_version).max().unwrap_or(Opset::Ios26.spec_version())
}

/// The stages of the pipeline in `folder`: `model0`, `model1`, and so on.
fn stages(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let path = folder.join("modelNames").join(DATA);
    let names = match path.is_file() {
        true => data::parse_names(&mapped::open(&path)?, &path)?,
        false => Vec::new(),
    };
    let mut stages = Vec::new();
    loop {
        let i = stages.len();
        let stage = folder.join(format!("model{i}"));
        if !stage.is_dir() {
            break;
        }
        let name = names.get(i).cloned().unwrap_or_else(|| format!("model{i}"));
        stages.push((name, stage));
    }
    match stages.is_empty() {
        true => {
            let wanted = "the folder \"model0\", the first stage of the pipeline,".to_owned();
            Err(Error::NotFound { file: folder.to_owned(), wanted })
        }
        false => Ok(stages),
    }
}
