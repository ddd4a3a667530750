//! A container in words: what it is, what callers see of it, what its functions do.

use russet_formats::container::{Container, Content, Kind};
use russet_formats::mlpackage::{
    Array, Description, Feature, FunctionDescription, Image, ImageSizes, Kind as FeatureKind,
    Package, Shapes, Span,
};
use russet_formats::network::Network;
use russet_ir::{Opset, verify_program};
use serde_json::{Value, json};

use super::summary::Summary;
use super::{Account, finding};
use crate::show::{bytes, count, plural, table};

pub fn container(c: &Container) -> Account {
    let mut account = match &c.content {
        Content::Program(p) => program(c, p),
        Content::Pipeline(stages) => {
            let mut text = head(c, &format!("pipeline of {}", plural(stages.len(), "stage")));
            text += &interface(&c.description);
            let mut all = Vec::new();
            for (i, stage) in stages.iter().enumerate() {
                let inner = container(&stage.container);
                text += &format!("stage {i} `{}`\n", stage.name);
                inner.text.lines().for_each(|line| text += &format!("  {line}\n"));
                all.push(json!({ "name": stage.name, "model": inner.json }));
            }
            let json = json!({ "content": "pipeline", "stages": all });
            Account { text, json }
        }
        Content::Network(n) => network(c, n),
        Content::Other(name) => Account {
            text: head(c, name) + &interface(&c.description),
            json: json!({ "content": name }),
        },
    };
    account.json["source"] = json!({
        "kind": c.kind.extension(), "spec_version": c.spec_version, "model_bytes": c.model_bytes,
    });
    account.json["metadata"] = json!(c.metadata);
    let functions: Vec<Value> = c.description.functions.iter().map(function_json).collect();
    account.json["interface"] = json!(functions);
    account
}

/// The first lines: what it is and what it says of itself.
fn head(c: &Container, what: &str) -> String {
    let container = match c.kind {
        Kind::Package => "package",
        Kind::ModelFile => "model file",
        Kind::Compiled => "compiled model",
        Kind::Text => "program as text",
    };
    let systems = match Opset::from_spec_version(c.spec_version) {
        Some(opset) => format!(", needs {}", opset.systems()),
        None => String::new(),
    };
    let mut text = format!(
        "{}: {container}, {what}, specification {}{systems}\n",
        c.path.display(),
        c.spec_version
    );
    c.metadata.iter().for_each(|(key, value)| text += &format!("  {key}: {value}\n"));
    text
}

fn program(c: &Container, p: &Package) -> Account {
    let opset = p.program.opset;
    let mut text = head(c, &format!("ML Program of opset {opset}"));
    match &p.absent {
        Some((_, wanted)) => text += &format!("warning[not-found]: {wanted} is not there\n"),
        None => {
            let place = match p.n_weights {
                1 => "1 place".to_owned(),
                n => format!("{n} places"),
            };
            text += &format!("  weight file: {} in {place}\n", bytes(p.weight_bytes));
        }
    }
    let functions: Vec<Summary<'_>> = p.program.functions.iter().map(Summary::of).collect();
    for summary in &functions {
        text += &summary.text();
        let described = c.description.functions.iter().find(|f| f.name == summary.graph.name);
        text += &described.map_or_else(String::new, only_described);
    }
    let mut findings = p.findings.clone();
    findings.extend(verify_program(&p.program));
    findings.iter().for_each(|f| text += &format!("warning{f}\n"));
    let json = json!({
        "content": "program",
        "opset": opset.name(),
        "systems": opset.systems(),
        "weight_bytes": p.weight_bytes,
        "n_weights": p.n_weights,
        "weights_absent": p.absent.as_ref().map(|(_, wanted)| wanted),
        "functions": functions.iter().map(Summary::json).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    });
    Account { text, json }
}

/// What callers see that the program does not say: images, labels, optional inputs.
fn only_described(f: &FunctionDescription) -> String {
    let mut text = String::new();
    let features = f.inputs.iter().chain(&f.outputs).chain(&f.states);
    for feature in features {
        let image = matches!(feature.kind, FeatureKind::Image(_));
        if image || feature.optional {
            let optional = if feature.optional { ", may be left out" } else { "" };
            text += &format!("  callers {}: {}{optional}\n", feature.name, kind(&feature.kind));
        }
    }
    if !f.predicted_feature.is_empty() {
        text += &format!("  predicts {}", f.predicted_feature);
        if !f.predicted_probabilities.is_empty() {
            text += &format!(" with {}", f.predicted_probabilities);
        }
        text.push('\n');
    }
    text
}

/// Inputs, outputs and states as callers see them.
fn interface(d: &Description) -> String {
    let mut text = String::new();
    for f in &d.functions {
        for (name, features) in [("input", &f.inputs), ("output", &f.outputs), ("state", &f.states)]
        {
            for feature in features {
                text += &format!("  {name:<7} {}: {}\n", feature.name, kind(&feature.kind));
            }
        }
    }
    text
}

fn kind(kind: &FeatureKind) -> String {
    match kind {
        FeatureKind::Array(a) => array(a),
        FeatureKind::State(a) => format!("state of {}", array(a)),
        FeatureKind::Image(i) => image(i),
        FeatureKind::Dictionary { string_keys: true } => "dictionary by text".into(),
        FeatureKind::Dictionary { .. } => "dictionary by number".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn array(a: &Array) -> String {
    let shape: Vec<String> = a.shape.iter().map(u64::to_string).collect();
    let shape = shape.join(" x ");
    match &a.flexible {
        Shapes::Fixed => format!("{} {shape}", a.dtype),
        Shapes::Enumerated(all) => {
            let all: Vec<String> = all.iter().map(|s| format!("{s:?}")).collect();
            format!("{} {shape} (or {})", a.dtype, all.join(", "))
        }
        Shapes::Ranges(spans) => {
            let spans: Vec<String> = spans.iter().map(span).collect();
            format!("{} {shape} (each axis {})", a.dtype, spans.join(", "))
        }
    }
}

fn span((low, high): &Span) -> String {
    match high {
        Some(high) if high == low => low.to_string(),
        Some(high) => format!("{low}..={high}"),
        None => format!("{low}.."),
    }
}

fn image(i: &Image) -> String {
    let size = format!("{} x {}", i.width, i.height);
    let color = format!("{:?}", i.color).to_uppercase();
    match &i.sizes {
        ImageSizes::Fixed => format!("{color} image {size}"),
        ImageSizes::Enumerated(all) => {
            let all: Vec<String> = all.iter().map(|(w, h)| format!("{w} x {h}")).collect();
            format!("{color} image {size} (or {})", all.join(", "))
        }
        ImageSizes::Ranges { width, height } => {
            format!("{color} image {size} (width {}, height {})", span(width), span(height))
        }
    }
}

fn function_json(f: &FunctionDescription) -> Value {
    let all = |features: &[Feature]| -> Vec<Value> {
        let one = |f: &Feature| {
            json!({
                "name": f.name, "kind": kind(&f.kind), "optional": f.optional,
                "description": f.text,
            })
        };
        features.iter().map(one).collect()
    };
    json!({
        "name": f.name, "inputs": all(&f.inputs), "outputs": all(&f.outputs),
        "states": all(&f.states), "predicted_feature": f.predicted_feature,
        "predicted_probabilities": f.predicted_probabilities,
    })
}

fn network(c: &Container, n: &Network) -> Account {
    let mut text = head(c, n.kind);
    text += &interface(&c.description);
    text += &format!(
        "  {} in {}, {}\n",
        plural(n.layers.len(), "layer"),
        bytes(n.parameter_bytes()),
        format_args!("{} parameters", count(n.n_parameters()))
    );
    let rows: Vec<Vec<String>> = n
        .histogram()
        .into_iter()
        .map(|(kind, n)| vec![format!("    {kind}"), n.to_string()])
        .collect();
    text += &table(&["    layer", "count"], &rows);
    text += "  note: this is the format before ML Programs; it is described, not run\n";
    let layers: Vec<Value> = n
        .layers
        .iter()
        .map(|l| {
            let facts: serde_json::Map<String, Value> =
                l.facts.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
            json!({
                "name": l.name, "kind": l.kind, "inputs": l.inputs, "outputs": l.outputs,
                "parameters": l.n_parameters, "bytes": l.parameter_bytes, "facts": facts,
            })
        })
        .collect();
    let json = json!({
        "content": n.kind, "layers": layers, "parameters": n.n_parameters(),
        "parameter_bytes": n.parameter_bytes(), "n_labels": n.labels.len(),
    });
    Account { text, json }
}
