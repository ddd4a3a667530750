//! ONNX models as programs.
//!
//! Every op of ONNX becomes the ops of MIL that compute the same ([`ops`]); shapes are calculated on
//! the way ([`fold`]), weights stay where they are. What MIL cannot say is collected and reported
//! at once, by node. Element types: `int64` becomes `int32` (what does not fit, the nearest that
//! does), `double` and `bfloat16` become fp32; integers of 8 and 16 bits are computed as int32 and
//! keep their low bits, except where MIL has them (`quantize`, compressed weights).

mod cx;
mod data;
mod elem;
mod fold;
mod importer;
mod interface;
mod lit;
mod names;
mod node;
mod ops;
pub mod proto;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use russet_ir::{Opset, Program, Tensor};

use crate::{Error, mapped};
use data::Files;
use importer::{Importer, Scope, Why};
use proto::ModelProto;

/// What the program is to be made for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub opset: Opset,
    /// Shapes of inputs by name; several are alternatives, the first is the default. Extents that
    /// are not bound stay symbols.
    pub shapes: Vec<(String, Vec<Vec<u64>>)>,
    /// Inputs that are constants of the program instead, by name: axes and shapes that a graph takes
    /// as inputs must be known when a program is written.
    pub values: BTreeMap<String, Tensor>,
    /// The same as numbers, of a scalar or a vector.
    pub numbers: BTreeMap<String, Vec<f64>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            opset: Opset::Ios18,
            shapes: Vec::new(),
            values: BTreeMap::new(),
            numbers: BTreeMap::new(),
        }
    }
}

/// A model as it was found, and its program.
#[derive(Debug, Clone)]
pub struct Source {
    /// One function `main`, with the inputs and outputs of the graph; `bool` there is int32.
    pub program: Program,
    /// Name and version of what made the file.
    pub producer: String,
    /// Version of the standard op set.
    pub version: i64,
    /// Elements of all initializers.
    pub n_parameters: u64,
    /// Bytes of the model's file and those beside it.
    pub n_bytes: u64,
    pub n_nodes: u64,
}

/// Is it an ONNX model, by what it begins with?
pub fn is_onnx(bytes: &[u8]) -> bool {
    proto::looks_like_model(bytes)
}

/// Reads the model at `path`, and the files beside it that hold its weights.
///
/// # Errors
/// A file that is damaged, shapes that do not fit; [`Error::Nodes`] with everything that has no
/// place in a program.
pub fn load(path: &Path, options: &Options) -> Result<Source, Error> {
    import(mapped::open(path)?, path, Files::beside(Some(path)), options)
}

/// The same of bytes alone: weights in other files are not there. `path` is for errors.
pub fn parse(bytes: Bytes, path: &Path, options: &Options) -> Result<Source, Error> {
    import(bytes, path, Files::beside(None), options)
}

fn import(bytes: Bytes, path: &Path, files: Files, options: &Options) -> Result<Source, Error> {
    let n_bytes = bytes.len() as u64;
    let model = ModelProto::decode(bytes)
        .map_err(|e| Error::malformed(path, None, format!("it is no ONNX model: {e}")))?;
    let Some(graph) = &model.graph else {
        return Err(Error::malformed(path, None, "it is an ONNX model without a graph"));
    };
    let mut importer = Importer::new(options.opset, &model.functions, &files, graph.node.len());
    let mut scope = Scope::of_model(&model.opset_import);
    importer.initializers(graph, &mut scope);
    interface::inputs(&mut importer, graph, &mut scope, path, options)?;
    importer.nodes(&graph.node, &mut scope);
    interface::outputs(&mut importer, graph, &scope);
    if !importer.problems.is_empty() {
        let findings = std::mem::take(&mut importer.problems);
        return Err(Error::Nodes { file: path.to_owned(), findings });
    }
    let mut main = importer.graph;
    main.remove_dead();
    let mut program = Program::new(options.opset, vec![main]);
    for entry in &model.metadata_props {
        program.metadata.insert(entry.key.clone(), entry.value.clone());
    }
    let n_parameters = graph.initializer.iter().filter_map(|t| {
        t.dims.iter().try_fold(1u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?))
    });
    let standard = |o: &&proto::OperatorSetIdProto| o.domain.is_empty() || o.domain == "ai.onnx";
    Ok(Source {
        program,
        producer: format!("{} {}", model.producer_name, model.producer_version).trim().to_owned(),
        version: model.opset_import.iter().find(standard).map_or(0, |o| o.version),
        n_parameters: n_parameters.fold(0, u64::saturating_add),
        n_bytes: n_bytes + files.n_bytes(),
        n_nodes: graph.node.len() as u64,
    })
}

/// A tensor that lies in a file of its own, as beside conformance cases.
#[derive(Debug, Clone)]
pub struct Stored {
    pub name: String,
    /// The type of its elements there, by ONNX' name: `float16`.
    pub elem: &'static str,
    /// As it lies there.
    pub stored: Tensor,
    /// As it is computed with.
    pub tensor: Tensor,
}

/// The tensor in a `.pb` file.
pub fn read_tensor(path: &Path) -> Result<Stored, Error> {
    let failed = |why: String| Error::malformed(path, None, why);
    let proto =
        proto::TensorProto::decode(mapped::open(path)?).map_err(|e| failed(e.to_string()))?;
    let read = data::tensor(&proto, &Files::beside(Some(path)));
    let (stored, elem) = read.map_err(|why| failed(why.0))?;
    let tensor = data::computed(&stored, elem).map_err(|why| failed(why.0))?;
    Ok(Stored { name: proto.name, elem: elem.name(), stored, tensor })
}
