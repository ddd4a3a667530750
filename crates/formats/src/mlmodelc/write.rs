//! A model as a compiled model, without Apple's compiler.
//!
//! The folder is what Apple's compiler makes of the same model, but for `buildInfo`, which says
//! who made it. It has not yet been loaded on a Mac.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::data::{self, Data, ML_PROGRAM, PIPELINE};
use super::{lower, metadata};
use crate::mil_text::{self, Syntax};
use crate::mlpackage::weights::Weights;
use crate::mlpackage::{self, manifest, proto, references, value};
use crate::{Error, mapped, whole};

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the programs' text.
    pub text_bytes: u64,
    /// Bytes of all weight files.
    pub weight_bytes: u64,
    /// Constants that are in weight files.
    pub n_weights: u64,
}

/// Could a compiled model be written to `out`, as far as its name and what is there go?
pub fn check_output(out: &Path) -> Result<(), Error> {
    if out.extension().is_none_or(|e| e != "mlmodelc") {
        let why = "the name of a compiled model ends in `.mlmodelc`";
        return Err(Error::unwritable(out, "the output", why, None));
    }
    match whole::in_the_way(out, "coremldata.bin") {
        Some(found) => Err(Error::Exists { file: out.to_owned(), found }),
        None => Ok(()),
    }
}

/// Makes the compiled model `out` of the package or `.mlmodel` file `source`: an ML Program, or a
/// pipeline of such. Nothing about the program is changed; weights are copied as they are. A
/// compiled model already at `out` is replaced; when anything fails, `out` is as it was.
///
/// # Errors
/// What cannot be read, a model of another kind, weights that are not there or do not fit.
pub fn write(source: &Path, out: &Path) -> Result<Written, Error> {
    check_output(out)?;
    let (root, model_file) = mlpackage::locate(source)?;
    let bytes = mapped::open(&model_file)?;
    let model = mlpackage::decode_any(bytes.clone(), &model_file)?;
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let files = files(&model, &bytes, &stem(source), &stem(&model_file));
    let files = files.map_err(|why| Error::unwritable(out, "the model", why, None))?;
    whole::write(out, |folder| {
        let failed = |e| Error::io(out, "write it", e);
        let mut written = Written::default();
        for (path, contents) in &files {
            let path = folder.join(path);
            fs::create_dir_all(mapped::folder_of(&path)).map_err(failed)?;
            fs::write(&path, contents).map_err(failed)?;
            if path.extension().is_some_and(|e| e == "mil") {
                written.text_bytes += contents.len() as u64;
            }
        }
        for (i, stage) in stages(&model).into_iter().enumerate() {
            let to = match model.pipeline {
                Some(_) => folder.join(format!("model{i}")),
                None => folder.to_owned(),
            };
            weights(stage, &root, &model_file, &to, out, &mut written)?;
        }
        Ok(written)
    })
}

/// The files of the compiled model by path, all but the weights. `bytes` are those of the model
/// file, which is called `file_stem`; of a package, `name` is the package's. `Err` says in words
/// what cannot be written.
pub fn files(
    model: &proto::Model,
    bytes: &[u8],
    name: &str,
    file_stem: &str,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut files = BTreeMap::new();
    let n_stages = model.pipeline.as_ref().map(|p| p.models.len());
    let hash = base64(&Sha256::digest(bytes));
    let mut description = model.description.clone().unwrap_or_default();
    description.metadata.get_or_insert_default();
    files.insert("metadata.json".into(), metadata::render(model, name)?.into_bytes());
    let analytics = data::render_analytics(n_stages, Some((&hash, file_stem)));
    files.insert("analytics/coremldata.bin".into(), analytics);
    match &model.pipeline {
        Some(pipeline) => {
            let spec_version = model.specification_version;
            let data = Data { kind: PIPELINE, spec_version, description };
            files.insert("coremldata.bin".into(), data::render(&data, 0, n_stages));
            let names = data::render_names(&stage_names(pipeline));
            files.insert("modelNames/coremldata.bin".into(), names);
            for (i, stage) in pipeline.models.iter().enumerate() {
                let place = |e| format!("stage {i}: {e}");
                let description = stage.description.clone().unwrap_or_default();
                for (path, contents) in program(stage, description).map_err(place)? {
                    files.insert(format!("model{i}/{path}"), contents);
                }
                let path = format!("model{i}/analytics/coremldata.bin");
                files.insert(path, data::render_analytics(None, None));
            }
        }
        None => files.extend(program(model, description)?),
    }
    Ok(files)
}

/// Names of the stages; those without one are called by their place.
pub(crate) fn stage_names(pipeline: &proto::Pipeline) -> Vec<String> {
    let name = |i: usize| match pipeline.names.get(i) {
        Some(name) if !name.is_empty() => name.clone(),
        _ => format!("model{i}"),
    };
    (0..pipeline.models.len()).map(name).collect()
}

/// The text and the description of one ML Program.
fn program(
    model: &proto::Model,
    description: proto::ModelDescription,
) -> Result<[(String, Vec<u8>); 2], String> {
    let Some(program) = &model.ml_program else {
        return Err("only ML Programs, and pipelines of them, are compiled".into());
    };
    let spec_version = model.specification_version;
    let lowered = lower::lower(program, &description);
    let text = mil_text::print(&lowered, Syntax::of_spec_version(spec_version))?;
    let data = Data { kind: ML_PROGRAM, spec_version, description };
    let data = data::render(&data, program.functions.len().max(1), None);
    Ok([("model.mil".into(), text.into_bytes()), ("coremldata.bin".into(), data)])
}

fn stages(model: &proto::Model) -> Vec<&proto::Model> {
    match &model.pipeline {
        Some(p) => p.models.iter().collect(),
        None => vec![model],
    }
}

/// Copies the weight files a program refers to, each to where it is referred to from `to`.
fn weights(
    model: &proto::Model,
    root: &Path,
    model_file: &Path,
    to: &Path,
    out: &Path,
    written: &mut Written,
) -> Result<(), Error> {
    let Some(program) = &model.ml_program else { return Ok(()) };
    let mut weights = Weights::new(root, model_file);
    let mut names = BTreeSet::new();
    for reference in references::of_program(program) {
        let wrong = |why: String| Error::malformed(model_file, Some(reference.at), why);
        let ty = value::decode_type(reference.value.r#type.as_ref(), reference.at);
        let ty = ty.map_err(wrong)?;
        let Some((dtype, shape)) = ty.tensor().and_then(|t| Some((t.dtype, t.fixed_shape()?)))
        else {
            return Err(wrong(format!("a weight of type {ty} cannot be")));
        };
        weights.tensor(reference.blob, dtype, shape, reference.at)?;
        names.insert(&reference.blob.file_name);
        written.n_weights += 1;
    }
    for name in names {
        let relative = name.strip_prefix("@model_path/").unwrap_or(name);
        let folder = mapped::folder_of(model_file);
        let from = manifest::inside(root, &folder, relative, model_file)?;
        let failed = |e| Error::io(out, "copy its weights", e);
        let path = to.join(relative);
        fs::create_dir_all(mapped::folder_of(&path)).map_err(failed)?;
        written.weight_bytes += fs::copy(&from, &path).map_err(failed)?;
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            match i <= chunk.len() {
                true => out.push(DIGITS[(word >> (18 - 6 * i) & 63) as usize].into()),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
