//! A program as messages: what `write` puts into the model file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use russet_ir::{
    Arg, Attr, BlockId, DType, Def, Graph, NodeId, Op, Opset, Program, Tensor, Type, Value,
};

use super::features::{self, Description, Feature, FunctionDescription, Kind, Shapes};
use super::names::Names;
use super::template::{self, Kept, Template};
use super::weights::Weights;
use super::write::Overflow;
use super::{blob, hints, proto, read, references, value};
use crate::Error;

/// Elements from which on a constant is put into the weight file; as `coremltools` does it.
const BLOB_MIN: u64 = 10;

/// Parameters that Core ML wants inline instead of by name.
const INLINE: &[(&str, &str)] = &[
    ("classify", "classes"),
    ("reshape_like", "begins"),
    ("reshape_like", "ends"),
    ("reshape_like", "end_masks"),
];

/// A program becoming messages, its weights going to the weight file on the way.
pub struct Encoder<'a> {
    pub program: &'a Program,
    /// For errors.
    pub out: &'a Path,
    pub blobs: blob::Writer<BufWriter<&'a File>>,
    /// What is copied from the source, if there is one.
    pub template: Option<&'a Template<'a>>,
    /// What the weight file is called in references.
    pub blob_name: &'a str,
    /// Where the weights of copied operations are now, by file and place.
    pub moved: HashMap<(String, u64), u64>,
    /// Infinite numbers in the weights that were written so far.
    pub n_infinite: u64,
    /// Weights with numbers that fp16 cannot hold, as they were found.
    pub overflows: Vec<Overflow>,
}

impl Encoder<'_> {
    pub fn model(&mut self, description: &Description) -> Result<proto::Model, Error> {
        self.copy_weights()?;
        let (mut functions, mut described) = (BTreeMap::new(), Vec::new());
        for graph in &self.program.functions {
            let given = description.functions.iter().find(|f| f.name == graph.name);
            described.push(self.described(graph, given)?);
            functions.insert(graph.name.clone(), self.function(graph)?);
        }
        let source = self.template.map(|t| &t.source.model);
        let same_opset = |m: &&proto::Model| {
            let opsets = m.ml_program.iter().flat_map(|p| p.functions.values());
            opsets.into_iter().all(|f| f.opset.parse() == Ok(self.program.opset))
        };
        let spec_version = source.filter(same_opset).map(|m| m.specification_version);
        Ok(proto::Model {
            specification_version: spec_version.unwrap_or(self.program.opset.spec_version()),
            description: Some(self.description(described)),
            is_updatable: source.is_some_and(|m| m.is_updatable),
            ml_program: Some(self.ml_program(functions)),
            unknown: source.map(|m| m.unknown.clone()).unwrap_or_default(),
            ..Default::default()
        })
    }

    /// Functions in the order of the source, the others behind.
    fn ml_program(&self, mut functions: BTreeMap<String, proto::Function>) -> proto::Program {
        let source = self.template.and_then(|t| t.source.model.ml_program.as_ref());
        let Some(source) = source else {
            return proto::Program {
                version: 1,
                functions: functions.into(),
                ..Default::default()
            };
        };
        let mut ordered = proto::Map::default();
        for name in source.functions.keys() {
            if let Some(function) = functions.remove(name) {
                ordered.insert(name.clone(), function);
            }
        }
        functions.into_iter().for_each(|(name, f)| ordered.insert(name, f));
        proto::Program {
            version: source.version,
            functions: ordered,
            doc_string: source.doc_string.clone(),
            attributes: source.attributes.clone(),
            unknown: source.unknown.clone(),
        }
    }

    fn description(
        &self,
        mut functions: Vec<proto::FunctionDescription>,
    ) -> proto::ModelDescription {
        let source = self.template.and_then(|t| t.source.model.description.clone());
        let is_single = functions.len() == 1
            && match &source {
                Some(s) => s.functions.is_empty(),
                None => functions[0].name == "main",
            };
        let mut d = source.unwrap_or_default();
        d.metadata = self.metadata(d.metadata.take());
        if is_single {
            let one = functions.remove(0);
            (d.input, d.output, d.state) = (one.input, one.output, one.state);
            d.predicted_feature_name = one.predicted_feature_name;
            d.predicted_probabilities_name = one.predicted_probabilities_name;
            return d;
        }
        let default = functions[0].name.clone();
        if !functions.iter().any(|f| f.name == d.default_function_name) {
            d.default_function_name = default;
        }
        let place =
            |f: &proto::FunctionDescription| d.functions.iter().position(|g| g.name == f.name);
        functions.sort_by_key(|f| place(f).unwrap_or(usize::MAX));
        (d.input, d.output, d.state) = Default::default();
        d.functions = functions;
        d
    }

    /// The texts of the program; those of the source as they are when nothing changed.
    fn metadata(&self, source: Option<proto::Metadata>) -> Option<proto::Metadata> {
        let hint = hints::render(self.program);
        if let Some(template) = self.template {
            let same_texts = read::metadata(&template.source.model) == self.program.metadata;
            let same_symbols = self.program.functions.iter().all(|g| {
                let kept = template.function(&g.name);
                let is_same =
                    |&v: &Value| kept.is_some_and(|k| k.is_same_feature(&g.value(v).name));
                g.inputs().iter().all(is_same)
            });
            if same_texts && same_symbols {
                return source;
            }
        }
        let mut m = source.unwrap_or_default();
        let user_defined = std::mem::take(&mut m.user_defined);
        m = proto::Metadata { unknown: m.unknown, ..Default::default() };
        let texts = &self.program.metadata;
        for key in user_defined.keys().filter(|k| texts.contains_key(*k)).chain(texts.keys()) {
            let value = texts[key].clone();
            match key.as_str() {
                "shortDescription" => m.short_description = value,
                "version" => m.version_string = value,
                "author" => m.author = value,
                "license" => m.license = value,
                _ => m.user_defined.insert(key.clone(), value),
            }
        }
        if let Some(hint) = hint {
            m.user_defined.insert(hints::KEY.into(), hint);
        }
        Some(m)
    }

    /// Puts the weights of copied operations into the weight file, in the order they had.
    fn copy_weights(&mut self) -> Result<(), Error> {
        let Some(template) = self.template else { return Ok(()) };
        let source = template.source;
        let mut weights = Weights::new(&source.root, &source.file);
        for ((file, offset), r) in template::copied_references(template) {
            let wrong = |why: String| Error::malformed(&source.file, Some(r.at), why);
            let ty = value::decode_type(r.value.r#type.as_ref(), r.at).map_err(wrong)?;
            let Some((dtype, shape)) = ty.tensor().and_then(|t| Some((t.dtype, t.fixed_shape()?)))
            else {
                return Err(wrong(format!("a weight of type {ty} cannot be")));
            };
            let tensor = weights.tensor(r.blob, dtype, shape, r.at)?;
            let added = self.blobs.add_apart(&tensor);
            let at = added.map_err(|e| Error::io(self.out, "write its weights", e))?;
            self.moved.insert((file.to_owned(), offset), at);
        }
        Ok(())
    }

    /// An operation of the source, its weights where they are now.
    fn copied(&self, op: &proto::Operation) -> proto::Operation {
        let mut op = op.clone();
        references::change(&mut op, &mut |blob| {
            let at = self.moved.get(&(blob.file_name.clone(), blob.offset));
            blob.offset = *at.expect("every reference of a copied operation was moved");
            blob.file_name = self.blob_name.to_owned();
        });
        op
    }

    /// The features of a function as the source has them, as far as they did not change.
    fn described(
        &self,
        graph: &Graph,
        given: Option<&FunctionDescription>,
    ) -> Result<proto::FunctionDescription, Error> {
        let before = self.template.and_then(|t| source_features(t, &graph.name));
        let Some((kept, before)) = before else {
            return Ok(encode_function(&self.describe(graph, given)?));
        };
        let wrong = |e| Error::malformed(self.out, Some(&graph.name), e);
        let read = decode_function(&before).map_err(wrong)?;
        let given = given.unwrap_or(&read);
        if kept.is_whole && *given == read {
            return Ok(before);
        }
        let mut now = encode_function(&self.describe(graph, Some(given))?);
        let of = |d: &FunctionDescription, name: &str| {
            let all = d.inputs.iter().chain(&d.outputs).chain(&d.states);
            all.into_iter().find(|f| f.name == name).cloned()
        };
        let same = |new: &mut Vec<proto::FeatureDescription>, old: &[proto::FeatureDescription]| {
            for f in new {
                let was = old.iter().find(|o| o.name == f.name);
                let same_text = |o: &&proto::FeatureDescription| {
                    Feature::decode(o).ok() == Feature::decode(f).ok()
                        || kept.is_same_feature(&f.name) && of(given, &f.name) == of(&read, &f.name)
                };
                if let Some(was) = was.filter(same_text) {
                    *f = was.clone();
                }
            }
        };
        same(&mut now.input, &before.input);
        same(&mut now.output, &before.output);
        same(&mut now.state, &before.state);
        now.unknown = before.unknown;
        Ok(now)
    }

    /// The features of a function: what follows from its types, and what is given beside.
    fn describe(
        &self,
        graph: &Graph,
        given: Option<&FunctionDescription>,
    ) -> Result<FunctionDescription, Error> {
        let empty = FunctionDescription::default();
        let given = given.unwrap_or(&empty);
        let mut described = FunctionDescription {
            name: graph.name.clone(),
            predicted_feature: given.predicted_feature.clone(),
            predicted_probabilities: given.predicted_probabilities.clone(),
            ..Default::default()
        };
        for &v in graph.inputs() {
            match graph.ty(v) {
                Type::State(_) => described.states.push(self.feature(graph, v, &given.states)?),
                _ => described.inputs.push(self.feature(graph, v, &given.inputs)?),
            }
        }
        for &v in graph.outputs() {
            let name = &graph.value(v).name;
            if graph.outputs().iter().filter(|&&o| o == v).count() > 1 {
                return Err(self.refuse(graph, name, "it is returned twice", None));
            }
            // coremltools writes such packages, and they may be written again.
            let was = self.template.and_then(|t| t.function(&graph.name));
            let was_output = was.is_some_and(|kept| kept.block.outputs.contains(name));
            if matches!(graph.value(v).def, Def::Input(..)) && !was_output {
                let why = "an input cannot be an output as it is";
                return Err(self.refuse(graph, name, why, Some("put an `identity` between them")));
            }
            described.outputs.push(self.feature(graph, v, &given.outputs)?);
        }
        let enumerated = |f: &&Feature| matches!(&f.kind, Kind::Array(a) if matches!(a.flexible, Shapes::Enumerated(_)));
        let n_enumerated = described.inputs.iter().filter(enumerated).count();
        if n_enumerated > 1 && self.program.opset < Opset::Ios18 {
            let opset = self.program.opset;
            let why = format!(
                "{n_enumerated} inputs have enumerated shapes; {opset} allows one, ios18 several"
            );
            let help = "fix the shapes, raise the opset, or leave one input flexible (an encoder can make its mask from its ids)";
            return Err(self.refuse(graph, "its inputs", why, Some(help)));
        }
        Ok(described)
    }

    fn feature(&self, graph: &Graph, v: Value, given: &[Feature]) -> Result<Feature, Error> {
        let data = graph.value(v);
        let given = given.iter().find(|f| f.name == data.name);
        let is_input = matches!(data.def, Def::Input(..));
        let kind = match given.map(|g| &g.kind) {
            Some(kind @ (Kind::Image(_) | Kind::Dictionary { .. } | Kind::Sequence)) => {
                kind.clone()
            }
            Some(kind @ (Kind::Int64 | Kind::Double | Kind::String)) => kind.clone(),
            Some(Kind::Array(_) | Kind::State(_)) | None => {
                let opset = self.program.opset;
                let array = features::array_of(graph, &data.ty, opset, is_input);
                let help = "cast it to fp32 or int32 at the border, or raise the opset";
                let mut array =
                    array.map_err(|why| self.refuse(graph, &data.name, why, Some(help)))?;
                if let Some(Kind::Array(g)) = given.map(|g| &g.kind) {
                    array.default = g.default;
                    // Of a range the program does not know which extent is the default.
                    if matches!(g.flexible, Shapes::Ranges(_)) && g.flexible == array.flexible {
                        array.shape = g.shape.clone();
                    }
                }
                if matches!(data.ty, Type::State(_)) {
                    Kind::State(array)
                } else {
                    Kind::Array(array)
                }
            }
        };
        let text = given.map(|g| g.text.clone()).unwrap_or_default();
        let optional = given.is_some_and(|g| g.optional);
        Ok(Feature { name: data.name.clone(), text, optional, kind })
    }

    fn refuse(
        &self,
        graph: &Graph,
        what: &str,
        why: impl Into<String>,
        help: Option<&'static str>,
    ) -> Error {
        Error::unwritable(self.out, format!("function {}: {what}", graph.name), why, help)
    }

    fn function(&mut self, graph: &Graph) -> Result<proto::Function, Error> {
        let kept = self.template.and_then(|t| t.function(&graph.name));
        if let Some(kept) = kept.filter(|k| k.is_whole) {
            let mut function = kept.function.clone();
            for block in function.block_specializations.values_mut() {
                for op in &mut block.operations {
                    *op = self.copied(op);
                }
            }
            return Ok(function);
        }
        let taken = graph.values().map(|(_, d)| d.name.clone());
        let mut names = Names::of(taken.chain(kept.into_iter().flat_map(Kept::names)));
        let mut block = self.block(graph, BlockId::BODY, &mut names)?;
        let inputs = std::mem::take(&mut block.inputs);
        let opset = self.program.opset.coreml_name();
        let (attributes, unknown) = match kept {
            Some(k) => (k.function.attributes.clone(), k.function.unknown.clone()),
            None => Default::default(),
        };
        Ok(proto::Function {
            inputs,
            opset: opset.into(),
            block_specializations: proto::Map::from_iter([(opset.to_owned(), block)]),
            attributes,
            unknown,
        })
    }

    fn block(
        &mut self,
        graph: &Graph,
        id: BlockId,
        names: &mut Names,
    ) -> Result<proto::Block, Error> {
        let block = graph.block(id);
        let kept = self.template.and_then(|t| t.function(&graph.name));
        let kept = kept.filter(|_| id == BlockId::BODY);
        let mut constants = kept.map(Kept::constants).unwrap_or_default();
        let mut operations = Vec::new();
        for &node in &block.nodes {
            match kept.map(|k| (k, k.operation(node))) {
                Some((k, _)) if k.is_within(node) => {}
                Some((k, Some(i))) => {
                    // The constants that stood before it, in their order.
                    let after = constants.split_off(&i);
                    for c in std::mem::replace(&mut constants, after).into_iter().chain([i]) {
                        operations.push(self.copied(&k.block.operations[c]));
                    }
                }
                _ => self.node(graph, node, names, &mut operations)?,
            }
        }
        let (attributes, unknown) = match kept {
            Some(k) => (k.block.attributes.clone(), k.block.unknown.clone()),
            None => Default::default(),
        };
        Ok(proto::Block {
            inputs: block.inputs.iter().map(|&v| named(graph, v)).collect(),
            outputs: block.outputs.iter().map(|&v| graph.value(v).name.clone()).collect(),
            operations,
            attributes,
            unknown,
        })
    }

    /// Appends the operation of `id`, after the constants its parameters become.
    fn node(
        &mut self,
        graph: &Graph,
        id: NodeId,
        names: &mut Names,
        operations: &mut Vec<proto::Operation>,
    ) -> Result<(), Error> {
        let node = graph.node(id);
        let name = match node.outputs.first() {
            Some(&v) => graph.value(v).name.clone(),
            // Only ops with an effect have no output, such as `write_state`.
            None => names.unique(node.op.name()),
        };
        if let Op::Const(c) = &node.op {
            if !only_inlined(graph, node.outputs[0]) {
                let infinite = self.n_infinite;
                operations.push(self.constant(&name, &c.val)?);
                if self.n_infinite > infinite
                    && let Some((n, largest)) = c.val.overflow()
                {
                    let source = node.origin.source.as_deref().map(str::to_owned);
                    self.overflows.push(Overflow { weight: name, source, n, largest });
                }
            }
            return Ok(());
        }
        let op_name = node.op.name().to_owned();
        let mut operation = proto::Operation {
            r#type: op_name.clone(),
            outputs: node.outputs.iter().map(|&v| named(graph, v)).collect(),
            attributes: name_attribute(&name),
            ..Default::default()
        };
        let float = float_type(graph, &node.op);
        // Before iOS 18 the constants of a compressed weight are attributes, as of a `const`.
        let is_attribute = is_constexpr(&op_name) && self.program.opset < Opset::Ios18;
        for (param, arg) in node.op.args(self.program.opset) {
            let values = match arg {
                Arg::Value(v) => vec![v],
                Arg::Values(vs) => vs,
                Arg::Attr(attr) => {
                    let attr = typed(param, attr, float);
                    if is_constexpr(&op_name) {
                        let value = self.value(&attr)?;
                        if is_attribute {
                            operation.attributes.insert(param.to_owned(), value);
                        } else {
                            let inline = argument([by_value(value)]);
                            operation.inputs.insert(param.to_owned(), inline);
                        }
                        continue;
                    }
                    let constant = names.unique(&format!("{name}_{param}"));
                    operations.push(self.constant(&constant, &attr)?);
                    operation.inputs.insert(param.to_owned(), argument([by_name(constant)]));
                    continue;
                }
            };
            if let (true, [v]) = (is_attribute, values.as_slice())
                && let Some(t) = graph.constant(*v)
            {
                let value = self.value(t)?;
                operation.attributes.insert(param.to_owned(), value);
                continue;
            }
            let mut bindings = Vec::new();
            for v in values {
                bindings.push(match (is_inlined(&op_name, param), graph.constant(v)) {
                    (true, Some(t)) if op_name == "classify" => by_value(value::encode_list(t)),
                    (true, Some(t)) => by_value(self.value(t)?),
                    _ => by_name(graph.value(v).name.clone()),
                });
            }
            operation.inputs.insert(param.to_owned(), argument(bindings));
        }
        for &inner in &node.blocks {
            operation.blocks.push(self.block(graph, inner, names)?);
        }
        operations.push(operation);
        Ok(())
    }

    fn constant(&mut self, name: &str, tensor: &Tensor) -> Result<proto::Operation, Error> {
        let mut attributes = name_attribute(name);
        attributes.insert("val".into(), self.value(tensor)?);
        let ty = Some(value::encode_type(&tensor.ty().into()));
        Ok(proto::Operation {
            r#type: "const".into(),
            outputs: vec![proto::NamedValueType {
                name: name.to_owned(),
                r#type: ty,
                ..Default::default()
            }],
            attributes,
            ..Default::default()
        })
    }

    fn value(&mut self, tensor: &Tensor) -> Result<proto::Value, Error> {
        let spec_version = self.program.opset.spec_version();
        if tensor.n_elements() < BLOB_MIN || !blob::can_hold(tensor.dtype, spec_version) {
            return Ok(value::encode_immediate(tensor));
        }
        let added = self.blobs.add(tensor);
        let added = added.map_err(|e| Error::io(self.out, "write its weights", e))?;
        self.n_infinite += added.n_infinite;
        Ok(value::encode_blob(tensor, self.blob_name, added.at))
    }
}

fn is_constexpr(op: &str) -> bool {
    op.starts_with("constexpr_")
}

fn is_inlined(op: &str, param: &str) -> bool {
    is_constexpr(op) || INLINE.contains(&(op, param))
}

/// Is `v` read, and only where constants are written inline?
fn only_inlined(graph: &Graph, v: Value) -> bool {
    let users = graph.users(v);
    let inlined = |id: &NodeId| {
        let op = &graph.node(*id).op;
        let mut reading = op.all_args().into_iter().filter(|(_, arg)| match arg {
            Arg::Value(x) => *x == v,
            Arg::Values(vs) => vs.contains(&v),
            Arg::Attr(_) => false,
        });
        reading.all(|(param, _)| is_inlined(op.name(), param))
    };
    !users.is_empty() && !graph.is_output(v) && users.iter().all(inlined)
}

/// The element type the float parameters of `op` have: that of its first tensor operand.
fn float_type(graph: &Graph, op: &Op) -> DType {
    let dtypes = op.operands().into_iter().filter_map(|v| Some(graph.ty(v).tensor()?.dtype));
    dtypes.into_iter().next().filter(|d| d.is_float()).unwrap_or(DType::F32)
}

/// Parameters whose element type is not that of the op's first operand (coremltools' op
/// definitions).
const TYPED: [(&str, DType); 4] = [
    ("scale_factor_height", DType::F32),
    ("scale_factor_width", DType::F32),
    ("spatial_scale", DType::F32),
    ("resized_dims", DType::U32),
];

/// A parameter as the constant it is in a package.
fn typed(param: &str, attr: Attr, float: DType) -> Tensor {
    let own = TYPED.iter().find(|(p, _)| *p == param).map(|(_, dtype)| *dtype);
    match (own, attr) {
        (Some(DType::U32), Attr::Int(i)) => {
            let bytes = i.to_le_bytes().to_vec();
            Tensor::new(DType::U32, vec![], bytes.into()).expect("four bytes")
        }
        (Some(float), attr) if float.is_float() => tensor(attr, float),
        (_, attr) => tensor(attr, float),
    }
}

fn tensor(attr: Attr, float: DType) -> Tensor {
    match attr {
        Attr::Int(i) => Tensor::i32(vec![], &[i]),
        Attr::Ints(v) => Tensor::i32(vec![v.len() as u64], &v),
        Attr::Bool(b) => Tensor::bool(b),
        Attr::Bools(v) => {
            let bytes: Vec<u8> = v.iter().map(|&b| u8::from(b)).collect();
            let shape = vec![v.len() as u64];
            Tensor::new(DType::Bool, shape, bytes.into()).expect("a byte for each")
        }
        Attr::Float(x) => Tensor::f32(vec![], &[x]).cast(float),
        Attr::Str(s) => Tensor::string(&s),
        Attr::Tensor(t) => t,
    }
}

fn named(graph: &Graph, v: Value) -> proto::NamedValueType {
    let data = graph.value(v);
    let ty = Some(value::encode_type(&data.ty));
    proto::NamedValueType { name: data.name.clone(), r#type: ty, ..Default::default() }
}

fn name_attribute(name: &str) -> proto::Map<proto::Value> {
    proto::Map::from_iter([("name".to_owned(), value::encode_immediate(&Tensor::string(name)))])
}

fn by_name(name: String) -> proto::Binding {
    proto::Binding { bound: Some(proto::Bound::Name(name)), ..Default::default() }
}

fn by_value(value: proto::Value) -> proto::Binding {
    proto::Binding { bound: Some(proto::Bound::Value(Box::new(value))), ..Default::default() }
}

fn argument(bindings: impl IntoIterator<Item = proto::Binding>) -> proto::Argument {
    proto::Argument { arguments: bindings.into_iter().collect(), ..Default::default() }
}

/// The features of a function in the source, whether it lists functions or not.
fn source_features<'a>(
    t: &'a Template<'a>,
    name: &str,
) -> Option<(&'a Kept<'a>, proto::FunctionDescription)> {
    let kept = t.function(name)?;
    let d = t.source.model.description.as_ref()?;
    if let Some(f) = d.functions.iter().find(|f| f.name == name) {
        return Some((kept, f.clone()));
    }
    d.functions.is_empty().then(|| {
        let f = proto::FunctionDescription {
            name: name.to_owned(),
            input: d.input.clone(),
            output: d.output.clone(),
            predicted_feature_name: d.predicted_feature_name.clone(),
            predicted_probabilities_name: d.predicted_probabilities_name.clone(),
            state: d.state.clone(),
            ..Default::default()
        };
        (kept, f)
    })
}

fn decode_function(f: &proto::FunctionDescription) -> Result<FunctionDescription, String> {
    let all = |features: &[proto::FeatureDescription]| {
        features.iter().map(Feature::decode).collect::<Result<Vec<_>, _>>()
    };
    Ok(FunctionDescription {
        name: f.name.clone(),
        inputs: all(&f.input)?,
        outputs: all(&f.output)?,
        states: all(&f.state)?,
        predicted_feature: f.predicted_feature_name.clone(),
        predicted_probabilities: f.predicted_probabilities_name.clone(),
    })
}

fn encode_function(f: &FunctionDescription) -> proto::FunctionDescription {
    proto::FunctionDescription {
        name: f.name.clone(),
        input: f.inputs.iter().map(Feature::encode).collect(),
        output: f.outputs.iter().map(Feature::encode).collect(),
        predicted_feature_name: f.predicted_feature.clone(),
        predicted_probabilities_name: f.predicted_probabilities.clone(),
        state: f.states.iter().map(Feature::encode).collect(),
        ..Default::default()
    }
}
