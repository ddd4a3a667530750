//! `russet inspect`: what is in a model.

mod described;
mod picture;
mod summary;
mod weights;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use russet_formats::container::{self, Container, Content};
use russet_formats::mapped;
use russet_ir::{Finding, Graph, Opset, Program, text, verify_program};
use serde_json::{Value, json};

use crate::diagnostic::{Failure, Outcome};
use crate::model::{Kind, Model, Shapes};
use crate::progress::Progress;
use crate::show::{Out, bytes, count, path};
use summary::Summary;

#[derive(Args, Debug)]
pub struct Arguments {
    /// A package, a model file, a compiled model, a program as text, or a Hugging Face folder.
    pub model: PathBuf,
    /// The whole program in Apple's MIL syntax, weights by their place in the weight file.
    #[arg(long, conflicts_with_all = ["weights", "graph"])]
    pub text: bool,
    /// Every weight: its range, NaN and infinities, and what fp16 cannot hold.
    #[arg(long, conflicts_with = "graph")]
    pub weights: bool,
    /// A picture of a function: `.svg`, or `.dot` for Graphviz.
    #[arg(long, value_name = "FILE")]
    pub graph: Option<PathBuf>,
    /// The function to draw or to list the weights of; the default one when nothing is said.
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// The stage of a pipeline, by name or number, instead of all of them.
    #[arg(long, value_name = "STAGE")]
    pub stage: Option<String>,
    #[command(flatten)]
    pub shapes: Shapes,
}

/// A model as text for people and as JSON.
struct Account {
    text: String,
    json: Value,
}

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    let progress = Progress::new(out);
    progress.stage("reading the model");
    if !container::is_container(&args.model) {
        let model = Model::load(&args.model, &args.shapes, Opset::Ios18)?;
        return source_of(args, &model, out, progress);
    }
    let opened = container::open(&args.model)?;
    let opened = match &args.stage {
        Some(name) => staged(args, &opened, name)?,
        None => &opened,
    };
    if args.text {
        let text = match opened.text() {
            Some(text) => text.map_err(|why| {
                Failure::new("malformed", format!("Apple's text cannot say it: {why}"))
                    .in_file(&args.model)
            })?,
            None => return Err(no_program(args, opened)),
        };
        progress.done();
        let json = json!({ "schema": "russet.text/1", "model": path(&args.model), "text": text });
        return out.result(json, &text);
    }
    if args.weights || args.graph.is_some() {
        let package = opened.program().ok_or_else(|| no_program(args, opened))?;
        let graph = function(args, &package.program)?;
        if let Some(file) = &args.graph {
            return drawn(graph, file, out, progress);
        }
        if let Some((file, wanted)) = &package.absent {
            let missing = Failure::new("not-found", format!("{wanted} is not there"));
            return Err(missing.in_file(file));
        }
        progress.stage("reading the weights");
        let account = weights::table_of(graph, &progress);
        progress.done();
        return out.result(account.json, &account.text);
    }
    let account = described::container(opened);
    progress.done();
    let mut json = account.json;
    json["schema"] = json!("russet.inspect/2");
    json["model"] = json!(path(&args.model));
    out.result(json, &account.text)
}

fn staged<'c>(args: &Arguments, opened: &'c Container, name: &str) -> Outcome<&'c Container> {
    let stage = opened.stage(name).map(|s| &s.container);
    stage.ok_or_else(|| {
        let names: Vec<&str> = opened.stages().iter().map(|s| s.name.as_str()).collect();
        let message = match names.as_slice() {
            [] => "it is no pipeline, so it has no stages".into(),
            names => format!("there is no stage `{name}`; there are: {}", names.join(", ")),
        };
        Failure::usage(message).in_file(&args.model)
    })
}

fn no_program(args: &Arguments, opened: &Container) -> Failure {
    let (message, help) = match &opened.content {
        Content::Pipeline(_) => ("it is a pipeline", "choose one of its stages with --stage"),
        _ => ("it holds no ML Program", "`russet inspect` without options says what it is"),
    };
    Failure::new("wrong-kind", message).in_file(&args.model).help(help)
}

/// The function that was asked for, or the first.
fn function<'p>(args: &Arguments, program: &'p Program) -> Outcome<&'p Graph> {
    let names: Vec<&str> = program.functions.iter().map(|f| f.name.as_str()).collect();
    let found = match &args.function {
        Some(name) => program.functions.iter().find(|f| f.name == *name),
        None => program.functions.first(),
    };
    found.ok_or_else(|| {
        let wanted = args.function.as_deref().unwrap_or("main");
        let message = format!("there is no function `{wanted}`; there are: {}", names.join(", "));
        Failure::usage(message).in_file(&args.model)
    })
}

/// Draws `graph` into `file`, whose extension says how.
fn drawn(graph: &Graph, file: &Path, out: &Out, progress: Progress) -> Outcome<()> {
    progress.stage("drawing");
    let picture = match file.extension().and_then(|e| e.to_str()) {
        Some("dot" | "gv") => picture::dot(graph),
        Some("svg") => picture::svg(graph),
        _ => {
            let message = "a picture is written to a file that ends in `.svg` or `.dot`";
            return Err(Failure::usage(message).in_file(file));
        }
    };
    mapped::write_whole(file, |to| to.write_all(picture.as_bytes()))?;
    progress.done();
    let text = format!("Wrote {}: {}\n", file.display(), bytes(picture.len() as u64));
    let json = json!({
        "schema": "russet.graph/1", "function": graph.name, "output": path(file),
        "bytes": picture.len(),
    });
    out.result(json, &text)
}

fn source_of(args: &Arguments, model: &Model, out: &Out, progress: Progress) -> Outcome<()> {
    if let Some(file) = &args.graph {
        return drawn(function(args, &model.program)?, file, out, progress);
    }
    if args.weights {
        let account = weights::table_of(function(args, &model.program)?, &progress);
        progress.done();
        return out.result(account.json, &account.text);
    }
    progress.done();
    if args.text {
        // It is no program of Apple's yet: our own text says more.
        let text = text::print(&model.program, text::Weights::Named);
        let json = json!({ "schema": "russet.text/1", "model": path(&args.model), "text": text });
        return out.result(json, &text);
    }
    let functions: Vec<Summary<'_>> = model.program.functions.iter().map(Summary::of).collect();
    let findings = verify_program(&model.program);
    let (what, source, n_parameters, n_bytes) = match &model.kind {
        Kind::HuggingFace { family, n_parameters, n_bytes } => {
            let source = json!({
                "kind": "huggingface", "family": family, "parameters": n_parameters,
                "bytes": n_bytes,
            });
            (format!("Hugging Face folder, {family}"), source, n_parameters, n_bytes)
        }
        Kind::Onnx { producer, version, n_parameters, n_bytes, n_nodes } => {
            let source = json!({
                "kind": "onnx", "producer": producer, "opset": version, "nodes": n_nodes,
                "parameters": n_parameters, "bytes": n_bytes,
            });
            let what = format!("ONNX model of {producer}, opset {version}, {n_nodes} nodes");
            (what, source, n_parameters, n_bytes)
        }
        Kind::Package(_) => unreachable!("containers are described elsewhere"),
    };
    let mut text = format!(
        "{}: {what}, {} parameters, {}\n",
        args.model.display(),
        count(*n_parameters),
        bytes(*n_bytes)
    );
    functions.iter().for_each(|f| text += &f.text());
    findings.iter().for_each(|f| text += &format!("warning{f}\n"));
    let json = json!({
        "schema": "russet.inspect/2",
        "model": path(&args.model),
        "source": source,
        "opset": model.program.opset.name(),
        "functions": functions.iter().map(Summary::json).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    });
    out.result(json, &text)
}

fn finding(f: &Finding) -> Value {
    json!({ "code": f.code, "message": f.message, "place": f.place })
}
