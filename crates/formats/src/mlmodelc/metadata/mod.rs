//! `metadata.json`: what Xcode and `MLModel` show of a compiled model, for people and tools.
//!
//! Fields and their spelling were read off files of Apple's compiler; the order of keys in a JSON
//! object means nothing. Where no such file was to be seen (images, states, iOS 26), the code says so.

mod ops;
mod precision;
mod read;
mod schema;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::mlpackage::proto;

pub use read::{Metadata, parse};

/// Oldest systems by specification version: iOS (and tvOS, macCatalyst), macOS, watchOS, visionOS.
/// That of 10 follows Apple's one number for all systems of 2025; it was not seen.
const SYSTEMS: &[(i32, &str, &str, &str, &str)] = &[
    (6, "15.0", "12.0", "8.0", "1.0"),
    (7, "16.0", "13.0", "9.0", "1.0"),
    (8, "17.0", "14.0", "10.0", "1.0"),
    (9, "18.0", "15.0", "11.0", "2.0"),
    (10, "26.0", "26.0", "26.0", "26.0"),
];

/// The text of the file for `model`, whose source was called `name`. `Err` says in words what
/// cannot be said.
pub fn render(model: &proto::Model, name: &str) -> Result<String, String> {
    let empty = proto::ModelDescription::default();
    let description = model.description.as_ref().unwrap_or(&empty);
    let stages: Vec<&proto::Model> = match &model.pipeline {
        Some(p) => p.models.iter().collect(),
        None => vec![model],
    };
    let programs: Vec<&proto::Program> =
        stages.iter().filter_map(|m| m.ml_program.as_ref()).collect();
    let default = Features::of(description)?;
    let mut m = Map::new();
    default.put(&mut m);
    let metadata = description.metadata.clone().unwrap_or_default();
    for (key, text) in [
        ("shortDescription", &metadata.short_description),
        ("version", &metadata.version_string),
        ("author", &metadata.author),
        ("license", &metadata.license),
    ] {
        if !text.is_empty() {
            m.insert(key.into(), json!(text));
        }
    }
    let user: BTreeMap<&String, &String> = metadata.user_defined.sorted().into_iter().collect();
    m.insert("userDefinedMetadata".into(), json!(user));
    m.insert("metadataOutputVersion".into(), json!("3.0"));
    m.insert("modelParameters".into(), json!([]));
    m.insert("specificationVersion".into(), json!(model.specification_version));
    m.insert("isUpdatable".into(), json!(if model.is_updatable { "1" } else { "0" }));
    m.insert("generatedClassName".into(), json!(class_name(name)));
    m.insert("method".into(), json!("predict"));
    m.insert("availability".into(), availability(model.specification_version));
    let kind = |m: &proto::Model| match (&m.pipeline, &m.ml_program) {
        (Some(_), _) => "MLModelType_pipeline",
        (None, Some(_)) => "MLModelType_mlProgram",
        (None, None) => "MLModelType_unknown",
    };
    let mut model_type = json!({ "name": kind(model) });
    if model.pipeline.is_some() {
        let inner: Vec<Value> = stages.iter().map(|s| json!({ "name": kind(s) })).collect();
        model_type["structure"] = json!(inner);
    }
    m.insert("modelType".into(), model_type);
    // Of several functions, the counts are those of the default one.
    let chosen = &description.default_function_name;
    let functions = |p: &proto::Program| -> Vec<proto::Function> {
        match p.functions.get(chosen) {
            Some(f) => vec![f.clone()],
            None => p.functions.values().cloned().collect(),
        }
    };
    let all: Vec<proto::Function> = programs.iter().flat_map(|p| functions(p)).collect();
    counts(&all, true, &mut m);
    if !description.functions.is_empty() {
        let mut listed = Vec::new();
        for f in &description.functions {
            let mut one = Map::new();
            Features::of_function(f)?.put(&mut one);
            one.insert("name".into(), json!(f.name));
            let function = programs.iter().find_map(|p| p.functions.get(&f.name));
            counts(function.map(std::slice::from_ref).unwrap_or_default(), false, &mut one);
            listed.push(Value::Object(one));
        }
        m.insert("functions".into(), Value::Array(listed));
        m.insert("defaultFunctionName".into(), json!(chosen));
    }
    let text = serde_json::to_string_pretty(&json!([m]));
    text.map_err(|e| e.to_string())
}

/// Inputs, outputs and states as they are listed.
struct Features([(&'static str, Vec<Value>); 3]);

impl Features {
    /// Those of the model, or of its default function.
    fn of(d: &proto::ModelDescription) -> Result<Features, String> {
        let default = d.functions.iter().find(|f| f.name == d.default_function_name);
        match default.or(d.functions.first()) {
            Some(f) => Features::of_function(f),
            None => Features::listed(&d.input, &d.output, &d.state),
        }
    }

    fn of_function(f: &proto::FunctionDescription) -> Result<Features, String> {
        Features::listed(&f.input, &f.output, &f.state)
    }

    fn listed(
        inputs: &[proto::FeatureDescription],
        outputs: &[proto::FeatureDescription],
        states: &[proto::FeatureDescription],
    ) -> Result<Features, String> {
        Ok(Features([
            ("inputSchema", schema::all(inputs)?),
            ("outputSchema", schema::all(outputs)?),
            ("stateSchema", schema::all(states)?),
        ]))
    }

    fn put(self, m: &mut Map<String, Value>) {
        for (key, all) in self.0 {
            m.insert(key.into(), Value::Array(all));
        }
    }
}

/// Which ops and which types of number there are.
fn counts(functions: &[proto::Function], with_storage: bool, m: &mut Map<String, Value>) {
    m.insert("mlProgramOperationTypeHistogram".into(), json!(ops::histogram(functions)));
    if let Some(precision) = precision::of_computing(functions) {
        m.insert("computePrecision".into(), json!(precision));
    }
    if let (true, Some(precision)) = (with_storage, precision::of_storage(functions)) {
        m.insert("storagePrecision".into(), json!(precision));
    }
}

fn availability(spec_version: i32) -> Value {
    let row = SYSTEMS.iter().rev().find(|s| s.0 <= spec_version).unwrap_or(&SYSTEMS[0]);
    let &(_, ios, macos, watchos, visionos) = row;
    json!({
        "iOS": ios, "tvOS": ios, "macCatalyst": ios, "macOS": macos, "watchOS": watchos,
        "visionOS": visionos,
    })
}

/// The name of a file as that of a class.
fn class_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Every operation, those of inner blocks too.
fn operations(functions: &[proto::Function]) -> Vec<&proto::Operation> {
    fn walk<'a>(block: &'a proto::Block, out: &mut Vec<&'a proto::Operation>) {
        for op in &block.operations {
            out.push(op);
            op.blocks.iter().for_each(|b| walk(b, out));
        }
    }
    let mut out = Vec::new();
    for f in functions {
        if let Some(block) = f.block_specializations.get(&f.opset) {
            walk(block, &mut out);
        }
    }
    out
}

/// The opset of the function an operation is in is needed with it.
fn with_opsets(functions: &[proto::Function]) -> Vec<(&str, Vec<&proto::Operation>)> {
    let of = |f| operations(std::slice::from_ref(f));
    functions.iter().map(|f| (f.opset.as_str(), of(f))).collect()
}
