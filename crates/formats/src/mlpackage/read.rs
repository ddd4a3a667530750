//! A package as a program.
//!
//! Constants that only say how an op works (an axis, strides) become its attributes, as the ir
//! declares them. An op that the ir does not declare, or that does not fit its declaration, is
//! kept whole, and so is everything it reads; in the second case a finding says why.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use russet_ir::ops::{Const, Opaque};
use russet_ir::{
    Arg, ArgError, Args, Attr, BlockId, DType, Finding, Graph, Op, Opset, Origin, Program, Tensor,
    Type, Value,
};

use super::features::{Description, Feature, FunctionDescription};
use super::{blob, hints, manifest, proto, symbols, value};
use crate::{Error, mapped};

/// Nesting of blocks beyond which a program is refused.
const DEPTH_MAX: usize = 24;

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
}

/// Reads a package (a folder `NAME.mlpackage`), or a single `.mlmodel` file with its weights
/// beside it.
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
    let (root, model_file) = match path.is_dir() {
        true => (path.to_owned(), manifest::model_file(path)?),
        false => (mapped::folder_of(path), path.to_owned()),
    };
    let bytes = mapped::open(&model_file)?;
    let model_bytes = bytes.len() as u64;
    let model = decode_model(bytes, &model_file)?;
    let weights = Weights { root, model_file: model_file.clone(), files: HashMap::new() };
    let mut package = Decoder::new(&model, &model_file, weights)?.package(&model)?;
    package.model_bytes = model_bytes;
    Ok(package)
}

/// The message in the bytes of a model file, which must be an ML Program; `path` is for errors.
pub fn decode_model(bytes: Bytes, path: &Path) -> Result<proto::Model, Error> {
    let decoded = proto::Model::decode(bytes.clone());
    let model =
        decoded.map_err(|e| Error::malformed(path, None, format!("it is no model: {e}")))?;
    if model.ml_program.is_none() {
        return Err(match kind(bytes) {
            Some(found) => Error::NotMlProgram { file: path.to_owned(), found },
            None => Error::malformed(path, None, "it is no model: nothing says of which kind"),
        });
    }
    Ok(model)
}

/// The kind of model, by the field that holds it.
fn kind(mut bytes: Bytes) -> Option<&'static str> {
    while let Ok((tag, wire)) = decode_key(&mut bytes) {
        let kind = match tag {
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
            600..=610 => "feature transformer",
            900 => "identity",
            2000..=2006 => "model of the Vision, Sound or Language framework",
            3000 => "serialized model",
            _ => {
                skip_field(wire, tag, &mut bytes, DecodeContext::default()).ok()?;
                continue;
            }
        };
        return Some(kind);
    }
    None
}

/// The weight files a program refers to, opened when first needed.
struct Weights {
    root: PathBuf,
    model_file: PathBuf,
    files: HashMap<String, (PathBuf, blob::Blob)>,
}

impl Weights {
    /// The tensor `reference` leads to; `at` is the value it is for.
    fn tensor(
        &mut self,
        reference: &proto::BlobFileValue,
        dtype: DType,
        shape: Vec<u64>,
        at: &str,
    ) -> Result<Tensor, Error> {
        let name = &reference.file_name;
        if !self.files.contains_key(name) {
            let opened = self.open(name, at)?;
            self.files.insert(name.clone(), opened);
        }
        let (path, blob) = &self.files[name];
        let tensor = blob.tensor(reference.offset, dtype, shape);
        tensor.map_err(|why| Error::malformed(path, Some(at), why))
    }

    fn open(&self, name: &str, for_value: &str) -> Result<(PathBuf, blob::Blob), Error> {
        let relative = name.strip_prefix("@model_path/").unwrap_or(name);
        let folder = mapped::folder_of(&self.model_file);
        let path = manifest::inside(&self.root, &folder, relative, &self.model_file);
        let path = path.map_err(|e| match e {
            Error::NotFound { file, wanted } => {
                Error::NotFound { file, wanted: format!("{wanted}, which `{for_value}` is in,") }
            }
            other => other,
        })?;
        let place = |at: Option<String>| match at {
            Some(at) => Some(format!("{at}, on the way to `{for_value}`")),
            None => Some(for_value.to_owned()),
        };
        let blob = blob::parse(mapped::open(&path)?, &path).map_err(|e| match e {
            Error::Truncated { file, at, needed, found } => {
                Error::Truncated { file, at: place(at), needed, found }
            }
            Error::Malformed { file, at, why } => Error::Malformed { file, at: place(at), why },
            other => other,
        })?;
        Ok((path, blob))
    }
}

/// Messages becoming a program.
struct Decoder<'a> {
    file: &'a Path,
    opset: Opset,
    weights: Weights,
    findings: Vec<Finding>,
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
        Ok(Decoder { file, opset, weights, findings: Vec::new() })
    }

    fn package(mut self, model: &proto::Model) -> Result<Package, Error> {
        let empty = (proto::ModelDescription::default(), proto::Program::default());
        let description = model.description.as_ref().unwrap_or(&empty.0);
        let functions = &model.ml_program.as_ref().unwrap_or(&empty.1).functions;
        let metadata = description.metadata.clone().unwrap_or_default();
        let hints = hints::parse(metadata.user_defined.get(hints::KEY));
        let described = self.description(description, functions.keys())?;
        let mut graphs = Vec::new();
        for d in &described.functions {
            let Some(function) = functions.get(&d.name) else {
                let why = "the description speaks of it, the program has no such function";
                return Err(Error::malformed(self.file, Some(&d.name), why));
            };
            graphs.push(self.function(&d.name, function, d, hints.get(&d.name))?);
        }
        let mut program = Program::new(self.opset, graphs);
        program.metadata =
            metadata.user_defined.into_iter().filter(|m| m.0 != hints::KEY).collect();
        for (key, text) in [
            ("shortDescription", metadata.short_description),
            ("version", metadata.version_string),
            ("author", metadata.author),
            ("license", metadata.license),
        ] {
            if !text.is_empty() {
                program.metadata.insert(key.into(), text);
            }
        }
        let files = self.weights.files.values();
        Ok(Package {
            program,
            description: described,
            spec_version: model.specification_version,
            model_bytes: 0,
            weight_bytes: files.clone().map(|f| f.1.n_bytes()).sum(),
            n_weights: files.map(|f| f.1.n_records()).sum(),
            findings: self.findings,
        })
    }

    /// The features of every function, the default function first.
    fn description<'s>(
        &self,
        d: &proto::ModelDescription,
        names: impl Iterator<Item = &'s String>,
    ) -> Result<Description, Error> {
        let all = |features: &[proto::FeatureDescription]| {
            let decoded = features.iter().map(Feature::decode);
            decoded.collect::<Result<Vec<_>, _>>().map_err(|e| Error::malformed(self.file, None, e))
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
                name: "main".into(),
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
                return Err(Error::malformed(self.file, Some(&f.name), "it is described twice"));
            }
        }
        for name in names.filter(|n| !known.contains(*n)) {
            functions.push(FunctionDescription { name: name.clone(), ..Default::default() });
        }
        functions.sort_by_key(|f| f.name != d.default_function_name);
        Ok(Description { functions })
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
        let mut plan = Plan::default();
        self.plan(block, &mut plan, 0)?;
        let attributes_only = plan.attributes.difference(&plan.values).cloned().collect();
        let mut reading = Reading {
            graph,
            scope: Scope::default(),
            taken: HashSet::new(),
            attributes_only,
            constants: plan.constants.into_iter(),
        };
        for (input, ty) in types {
            let v = reading.graph.add_input(&input, ty);
            reading.taken.insert(input.clone());
            reading.scope.set(input, Entry::Value(v));
        }
        self.block(&mut reading, block, BlockId::BODY)?;
        Ok(reading.graph)
    }

    /// Decodes every constant and finds those that are read as values.
    fn plan(&mut self, block: &proto::Block, plan: &mut Plan, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::malformed(self.file, None, "blocks are nested too deeply"));
        }
        let mark = plan.scope.mark();
        for input in &block.inputs {
            plan.scope.set(input.name.clone(), None);
        }
        for op in &block.operations {
            let Some(first) = op.outputs.first() else {
                let why = format!("an op `{}` has no output", op.r#type);
                return Err(Error::malformed(self.file, None, why));
            };
            if op.r#type == "const" {
                let Some(val) = op.attributes.get("val") else {
                    return Err(Error::malformed(self.file, Some(&first.name), "it has no `val`"));
                };
                let tensor = self.tensor(val, &first.name)?;
                plan.constants.push(tensor.clone());
                plan.scope.set(first.name.clone(), Some(tensor));
                continue;
            }
            let mut arguments = Vec::new();
            for (param, argument) in &op.inputs {
                let mut operands = Vec::new();
                for binding in &argument.arguments {
                    let constant = match &binding.bound {
                        Some(proto::Bound::Name(n)) => plan.scope.get(n).cloned().flatten(),
                        Some(proto::Bound::Value(v)) => Some(self.tensor(v, &first.name)?),
                        None => None,
                    };
                    operands.push(Operand { value: Some(plan.any), constant });
                }
                arguments.push((param.clone(), operands));
            }
            let fit = fit(&op.r#type, &arguments, self.opset);
            for (param, argument) in &op.inputs {
                let names = argument.arguments.iter().filter_map(|b| match &b.bound {
                    Some(proto::Bound::Name(n)) => Some(n.clone()),
                    _ => None,
                });
                match &fit {
                    Fit::Declared(_, attrs) if attrs.contains(param) => {
                        plan.attributes.extend(names);
                    }
                    _ => plan.values.extend(names),
                }
            }
            for inner in &op.blocks {
                self.plan(inner, plan, depth + 1)?;
            }
            for output in &op.outputs {
                plan.scope.set(output.name.clone(), None);
            }
        }
        plan.values.extend(block.outputs.iter().cloned());
        plan.scope.leave(mark);
        Ok(())
    }

    fn tensor(&mut self, v: &proto::Value, at: &str) -> Result<Tensor, Error> {
        let wrong = |why: String| Error::malformed(self.file, Some(at), why);
        let ty = value::decode_type(v.r#type.as_ref(), at).map_err(wrong)?;
        match &v.contents {
            Some(proto::Contents::Immediate(i)) => value::decode_immediate(&ty, i).map_err(wrong),
            Some(proto::Contents::BlobFile(reference)) => {
                let Some((dtype, shape)) =
                    ty.tensor().and_then(|t| Some((t.dtype, t.fixed_shape()?)))
                else {
                    return Err(wrong(format!("a weight of type {ty} cannot be")));
                };
                self.weights.tensor(reference, dtype, shape, at)
            }
            None => Err(wrong("it has neither a value nor a place in the weight file".into())),
        }
    }

    fn block(&mut self, r: &mut Reading, block: &proto::Block, id: BlockId) -> Result<(), Error> {
        let mark = r.scope.mark();
        for input in &block.inputs {
            let name = r.unique(&input.name);
            let ty = value::decode_type(input.r#type.as_ref(), &name);
            let ty = ty.map_err(|e| Error::malformed(self.file, Some(&input.name), e))?;
            let v = r.graph.add_block_input(id, &name, ty);
            r.scope.set(input.name.clone(), Entry::Value(v));
        }
        for op in &block.operations {
            self.operation(r, op, id)?;
        }
        let mut outputs = Vec::new();
        for name in &block.outputs {
            match r.scope.get(name) {
                Some(Entry::Value(v)) => outputs.push(*v),
                _ => return Err(Error::malformed(self.file, Some(name), "nothing defines it")),
            }
        }
        r.graph.set_block_outputs(id, outputs);
        r.scope.leave(mark);
        Ok(())
    }

    fn operation(
        &mut self,
        r: &mut Reading,
        op: &proto::Operation,
        block: BlockId,
    ) -> Result<(), Error> {
        let file = self.file;
        let at = op.outputs.first().map_or("", |o| o.name.as_str());
        if op.r#type == "const" {
            let val = r.constants.next().expect("the plan has every constant, in this order");
            let entry = match r.attributes_only.contains(at) {
                true => Entry::Attribute(val),
                false => Entry::Value(r.constant(block, at, val)),
            };
            r.scope.set(at.to_owned(), entry);
            return Ok(());
        }
        let mut arguments = Vec::new();
        for (param, argument) in &op.inputs {
            let mut operands = Vec::new();
            for binding in &argument.arguments {
                operands.push(match &binding.bound {
                    Some(proto::Bound::Name(n)) => match r.scope.get(n) {
                        Some(Entry::Value(v)) => {
                            Operand { value: Some(*v), constant: r.graph.constant(*v).cloned() }
                        }
                        Some(Entry::Attribute(t)) => {
                            Operand { value: None, constant: Some(t.clone()) }
                        }
                        None => {
                            let why = format!("it reads `{n}`, which nothing before it defines");
                            return Err(Error::malformed(file, Some(at), why));
                        }
                    },
                    Some(proto::Bound::Value(v)) => {
                        Operand { value: None, constant: Some(self.tensor(v, at)?) }
                    }
                    None => {
                        let why = format!("`{param}` is bound to nothing");
                        return Err(Error::malformed(file, Some(at), why));
                    }
                });
            }
            arguments.push((param.clone(), operands));
        }
        // The constants of a compressed weight are attributes before iOS 18.
        for (param, v) in op.attributes.iter().filter(|(param, _)| *param != "name") {
            let operand = Operand { value: None, constant: Some(self.tensor(v, at)?) };
            arguments.push((param.clone(), vec![operand]));
        }
        let mut blocks = Vec::new();
        for inner in &op.blocks {
            let id = r.graph.add_block();
            self.block(r, inner, id)?;
            blocks.push(id);
        }
        let names: Vec<String> = op.outputs.iter().map(|o| r.unique(&o.name)).collect();
        let mut types = Vec::new();
        for (output, name) in op.outputs.iter().zip(&names) {
            let ty = value::decode_type(output.r#type.as_ref(), name);
            types.push(ty.map_err(|e| Error::malformed(file, Some(&output.name), e))?);
        }
        let declared = match fit(&op.r#type, &arguments, self.opset) {
            Fit::Declared(declared, _) => match r.agrees(&declared, &types, &blocks) {
                Ok(()) => Some(declared),
                Err(why) => {
                    self.keep_whole(&r.graph.name, op, why);
                    None
                }
            },
            Fit::Misfit(why) => {
                self.keep_whole(&r.graph.name, op, why);
                None
            }
            Fit::Undeclared => None,
        };
        let node = match declared {
            Some(declared) => declared,
            None => Op::Opaque(r.whole(block, op, arguments, types)),
        };
        let outputs = r.graph.push_node(block, node, &names, blocks, Origin::default());
        let outputs =
            outputs.map_err(|error| Error::Op { file: file.into(), at: at.into(), error })?;
        for (output, v) in op.outputs.iter().zip(outputs) {
            r.scope.set(output.name.clone(), Entry::Value(v));
        }
        Ok(())
    }

    fn keep_whole(&mut self, function: &str, op: &proto::Operation, why: String) {
        let at = op.outputs.first().map_or("", |o| o.name.as_str());
        self.findings.push(Finding {
            code: "kept-whole",
            message: format!("`{}` is kept as it is: {why}", op.r#type),
            place: format!("function {function}: {at}"),
            snippet: String::new(),
            help: None,
        });
    }
}

/// A function under construction.
struct Reading {
    graph: Graph,
    scope: Scope<Entry>,
    taken: HashSet<String>,
    /// Constants that become attributes wherever they are read.
    attributes_only: HashSet<String>,
    /// Every constant, in order.
    constants: std::vec::IntoIter<Tensor>,
}

/// What a name stands for.
enum Entry {
    Value(Value),
    /// A constant that has no node of its own.
    Attribute(Tensor),
}

impl Reading {
    /// `name`, or a variation of it when two blocks use the same.
    fn unique(&mut self, name: &str) -> String {
        let mut candidates =
            std::iter::once(name.to_owned()).chain((1..).map(|i| format!("{name}_{i}")));
        let free = candidates.find(|n| !self.taken.contains(n)).expect("numbers do not end");
        self.taken.insert(free.clone());
        free
    }

    fn constant(&mut self, block: BlockId, name: &str, val: Tensor) -> Value {
        let names = [self.unique(name)];
        let op = Const { val }.into();
        let made = self.graph.push_node(block, op, &names, vec![], Origin::default());
        made.expect("a constant has no operands")[0]
    }

    /// Does the ir infer for `op` what the package states?
    fn agrees(&self, op: &Op, stated: &[Type], blocks: &[BlockId]) -> Result<(), String> {
        let inferred = self.graph.with_block_types(blocks, |t| op.infer(t));
        let inferred = inferred.map_err(|e| self.graph.op_error(op, e).to_string())?.0;
        if inferred.len() != stated.len() {
            return Err(format!("it has {} outputs, not {}", stated.len(), inferred.len()));
        }
        let differs = inferred.iter().zip(stated).find(|(i, s)| !i.0.agrees(s));
        differs.map_or(Ok(()), |(i, s)| Err(format!("it is stated as {s}, not as {}", i.0)))
    }

    /// The op with all its operands; those that have no node get one.
    fn whole(
        &mut self,
        block: BlockId,
        op: &proto::Operation,
        arguments: Vec<(String, Vec<Operand>)>,
        types: Vec<Type>,
    ) -> Opaque {
        let at = op.outputs.first().map_or("", |o| o.name.as_str());
        let mut operands = Vec::new();
        for (param, given) in arguments {
            let mut values = Vec::new();
            for operand in given {
                values.extend(match (operand.value, operand.constant) {
                    (Some(v), _) => Some(v),
                    (None, Some(t)) => Some(self.constant(block, &format!("{at}_{param}"), t)),
                    (None, None) => None,
                });
            }
            operands.push((param, values));
        }
        Opaque { name: op.r#type.clone(), operands, types }
    }
}

/// What is found out about a function before it is built.
struct Plan {
    /// Every constant, in order.
    constants: Vec<Tensor>,
    /// Names read where the ir has an attribute, and those read where it has a value.
    attributes: HashSet<String>,
    values: HashSet<String>,
    scope: Scope<Option<Tensor>>,
    /// Stands for every value: which one it is does not matter here.
    any: Value,
}

impl Default for Plan {
    fn default() -> Plan {
        let any = Graph::new("").push_const(Tensor::bool(true), "any");
        let (attributes, values) = Default::default();
        Plan { constants: Vec::new(), attributes, values, scope: Scope::default(), any }
    }
}

/// Names in nested blocks: what an inner one defines is forgotten when it ends.
struct Scope<T> {
    names: HashMap<String, T>,
    undo: Vec<(String, Option<T>)>,
}

impl<T> Default for Scope<T> {
    fn default() -> Scope<T> {
        Scope { names: HashMap::new(), undo: Vec::new() }
    }
}

impl<T> Scope<T> {
    fn get(&self, name: &str) -> Option<&T> {
        self.names.get(name)
    }

    fn set(&mut self, name: String, entry: T) {
        let before = self.names.insert(name.clone(), entry);
        self.undo.push((name, before));
    }

    fn mark(&self) -> usize {
        self.undo.len()
    }

    fn leave(&mut self, mark: usize) {
        for (name, before) in self.undo.drain(mark..).rev() {
            match before {
                Some(entry) => self.names.insert(name, entry),
                None => self.names.remove(&name),
            };
        }
    }
}

/// What a binding of an op's parameter is.
struct Operand {
    /// `None` for a constant without a node.
    value: Option<Value>,
    constant: Option<Tensor>,
}

/// How an operation becomes an op of the ir.
enum Fit {
    /// As declared; these parameters are attributes.
    Declared(Op, HashSet<String>),
    Undeclared,
    /// The ir declares it, but not with these arguments.
    Misfit(String),
}

/// Tries every parameter as a value first, and as an attribute where the declaration says so.
fn fit(name: &str, arguments: &[(String, Vec<Operand>)], opset: Opset) -> Fit {
    let attribute = |operands: &[Operand]| match operands {
        [Operand { constant: Some(t), .. }] => attr(t),
        _ => None,
    };
    let nodeless = |operands: &[Operand]| operands.iter().any(|o| o.value.is_none());
    let mut attrs: HashSet<String> =
        arguments.iter().filter(|(_, o)| nodeless(o)).map(|(param, _)| param.clone()).collect();
    loop {
        let mut args = Args::default();
        for (param, operands) in arguments {
            let values: Vec<Value> = operands.iter().filter_map(|o| o.value).collect();
            let arg = match (attrs.contains(param), values.as_slice()) {
                (true, _) => match attribute(operands) {
                    Some(attr) => Arg::Attr(attr),
                    None => return Fit::Misfit(format!("`{param}` is not understood")),
                },
                (false, [one]) => Arg::Value(*one),
                (false, _) => Arg::Values(values),
            };
            args.0.push((param.clone(), arg));
        }
        match Op::from_args(name, args, opset) {
            None => return Fit::Undeclared,
            Some(Ok(op)) => return Fit::Declared(op, attrs),
            Some(Err(ArgError::Kind { param, .. }))
                if !attrs.contains(param)
                    && arguments.iter().any(|(p, o)| p == param && attribute(o).is_some()) =>
            {
                attrs.insert(param.to_owned());
            }
            Some(Err(e)) => return Fit::Misfit(e.to_string()),
        }
    }
}

/// A constant as an attribute.
fn attr(t: &Tensor) -> Option<Attr> {
    if let Some(strings) = t.as_strings() {
        return match strings {
            [one] => Some(Attr::Str(one.clone())),
            _ => None,
        };
    }
    let ints =
        || -> Option<Vec<i32>> { t.to_i64()?.into_iter().map(|i| i32::try_from(i).ok()).collect() };
    Some(match (t.dtype, t.shape.len()) {
        (DType::Bool, 0) => Attr::Bool(ints()?[0] != 0),
        (DType::Bool, 1) => Attr::Bools(ints()?.into_iter().map(|b| b != 0).collect()),
        (d, 0) if d.is_int() => Attr::Int(ints()?[0]),
        (d, 1) if d.is_int() => Attr::Ints(ints()?),
        (d, 0) if d.is_float() => Attr::Float(t.item_f32()?),
        _ => Attr::Tensor(t.clone()),
    })
}
