//! A program as a package.
//!
//! Weights are streamed from where they are into a temporary folder beside the output, which
//! takes the output's place only when all of it is written. Equal programs give equal bytes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use prost::Message;
use russet_ir::{Opset, Program, Value, verify_program};
use sha2::{Digest, Sha256};

use super::encode::Encoder;
use super::features::Description;
use super::read::Source;
use super::template::{self, Template};
use super::{blob, manifest};
use crate::{Error, whole};

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub model_bytes: u64,
    pub weight_bytes: u64,
    /// Tensors in the weight file.
    pub n_weights: u64,
    /// Tensors that share the bytes of another.
    pub n_shared: u64,
    pub overflows: Vec<Overflow>,
}

/// A weight some of whose numbers are too large for fp16, in which they are infinite.
#[derive(Debug, Clone, PartialEq)]
pub struct Overflow {
    /// The value's name in the program.
    pub weight: String,
    /// The module it comes from.
    pub source: Option<String>,
    /// Numbers that became infinite, and the largest magnitude among them.
    pub n: u64,
    pub largest: f32,
}

/// Writes `program` to the package `out`, a folder whose name ends in `.mlpackage`.
///
/// Element types and shapes of inputs and outputs come from the program; `description` adds
/// texts, images and optional inputs, by function and feature name. A package already at `out` is
/// replaced. When anything fails, `out` is as it was and nothing else remains.
///
/// # Errors
/// [`Error::Unwritable`] for a program that breaks the rules of its opset or that a package of
/// that opset cannot hold, [`Error::Exists`] when something that is no package is at `out`.
pub fn write(program: &Program, description: &Description, out: &Path) -> Result<Written, Error> {
    check(program, out)?;
    whole::write(out, |package| write_into(program, description, None, out, package))
}

/// The same for a program that was read from `source` and perhaps changed since: all that did not
/// change is written as it was, names of constants, notes of compilers and fields that are not
/// known here included. An unchanged program gives the bytes it was read from.
pub fn rewrite(
    program: &Program,
    description: &Description,
    source: &Source,
    out: &Path,
) -> Result<Written, Error> {
    check(program, out)?;
    let template = Template::of(program, source);
    whole::write(out, |package| write_into(program, description, Some(&template), out, package))
}

/// Could a package be written to `out`, as far as its name and what is there go?
pub fn check_output(out: &Path) -> Result<(), Error> {
    if out.extension().is_none_or(|e| e != "mlpackage") {
        let why = "the name of a package ends in `.mlpackage`";
        return Err(Error::unwritable(out, "the output", why, None));
    }
    if let Some(found) = whole::in_the_way(out, manifest::MANIFEST) {
        return Err(Error::Exists { file: out.to_owned(), found });
    }
    Ok(())
}

/// Everything about the program and the output that can be refused before writing.
fn check(program: &Program, out: &Path) -> Result<(), Error> {
    check_output(out)?;
    if let Some(f) = verify_program(program).into_iter().next() {
        return Err(Error::unwritable(out, f.place, f.message, None));
    }
    for graph in &program.functions {
        let single = |v: &&Value| graph.ty(**v).tensor().is_some_and(|t| t.rank() == 0);
        if let Some(&v) = graph.inputs().iter().find(single) {
            return Err(Error::unwritable(
                out,
                graph.value(v).name.clone(),
                "it is an input without axes, which Core ML does not have",
                Some(
                    "give an ONNX model the number with `--constant NAME=N`, or the input an axis",
                ),
            ));
        }
    }
    let refuse = |why: &str, help| Err(Error::unwritable(out, "the program", why, help));
    match program.functions.as_slice() {
        [] => refuse("it has no function", None),
        [one] if one.name == "main" => Ok(()),
        _ if program.opset >= Opset::Ios18 => Ok(()),
        [_] => refuse("its only function is not called `main`", None),
        _ => refuse(
            "a package has several functions from ios18 on",
            Some("raise the opset, or write one package per function"),
        ),
    }
}

/// What references call the weight file: as the source does, when it has one such file.
fn blob_name(template: Option<&Template<'_>>) -> String {
    const FOLDER: &str = "@model_path/weights/";
    let references = template.map(template::copied_references).unwrap_or_default();
    let names: BTreeSet<&str> = references.keys().map(|k| k.0).collect();
    let plain = |name: &&&str| {
        let rest = name.strip_prefix(FOLDER);
        rest.is_some_and(|r| !r.is_empty() && !r.contains(['/', '\\']) && r != "." && r != "..")
    };
    match names.iter().filter(plain).collect::<Vec<_>>()[..] {
        [one] if names.len() == 1 => (*one).to_owned(),
        _ => format!("{FOLDER}weight.bin"),
    }
}

fn write_into(
    program: &Program,
    description: &Description,
    template: Option<&Template<'_>>,
    out: &Path,
    package: &Path,
) -> Result<Written, Error> {
    let failed = |e| Error::io(out, "write it", e);
    let data = package.join(manifest::DATA);
    let weights = data.join(manifest::WEIGHTS);
    fs::create_dir_all(&weights).map_err(failed)?;
    let blob_name = blob_name(template);
    let file_name = blob_name.rsplit('/').next().unwrap_or_default();
    let file = File::create(weights.join(file_name)).map_err(failed)?;
    let blobs = blob::Writer::new(BufWriter::with_capacity(1 << 20, &file)).map_err(failed)?;
    let moved = HashMap::new();
    let (n_infinite, overflows) = (0, Vec::new());
    let mut encoder = Encoder {
        program,
        out,
        blobs,
        template,
        blob_name: &blob_name,
        moved,
        n_infinite,
        overflows,
    };
    let model = encoder.model(description)?;
    let overflows = encoder.overflows;
    let (_, summary) = encoder.blobs.finish().map_err(failed)?;
    file.set_len(summary.n_bytes).map_err(failed)?;
    let has_weights = summary.n_records > 0;
    if !has_weights {
        fs::remove_dir_all(&weights).map_err(failed)?;
    }
    let model = model.encode_to_vec();
    fs::write(data.join(manifest::MODEL), &model).map_err(failed)?;
    let content = Sha256::new().chain_update(&model).chain_update(summary.digest).finalize();
    let text = manifest::render(&content.into(), has_weights);
    fs::write(package.join(manifest::MANIFEST), text).map_err(failed)?;
    Ok(Written {
        model_bytes: model.len() as u64,
        weight_bytes: if has_weights { summary.n_bytes } else { 0 },
        n_weights: summary.n_records,
        n_shared: summary.n_shared,
        overflows,
    })
}
