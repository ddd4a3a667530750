//! `russet compare`: how far two models, or one model in two arithmetics, are apart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use russet_exec::{Arithmetic, Array, Session, evaluate_node};
use russet_ir::{DType, Graph, NodeId, Opset, Value};
use russet_passes::{Distance, distance};
use serde_json::json;

use crate::arithmetic::ArithmeticName;
use crate::compile::finite;
use crate::diagnostic::{Failure, Outcome};
use crate::inputs::{Inputs, Source};
use crate::model::{Model, Shapes, is_package};
use crate::progress::Progress;
use crate::run::Threads;
use crate::show::{Out, path, table};

#[derive(Args, Debug)]
pub struct Arguments {
    /// The reference: a package or a Hugging Face folder.
    pub a: PathBuf,
    /// What is compared with it; the reference itself when absent.
    pub b: Option<PathBuf>,
    /// Arithmetic of the reference.
    #[arg(long, default_value = "f32", value_name = "ARITHMETIC")]
    pub arithmetic_a: ArithmeticName,
    /// Arithmetic of the other side; `ane` when there is only one model.
    #[arg(long, value_name = "ARITHMETIC")]
    pub arithmetic_b: Option<ArithmeticName>,
    /// Also op by op: what each op adds, and what it inherits.
    #[arg(long)]
    pub per_op: bool,
    /// Ops to show, the worst first.
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub shapes: Shapes,
    /// The function, instead of the default one.
    #[arg(long)]
    pub function: Option<String>,
    /// Exit with 1 when an output's cosine is below this.
    #[arg(long, value_name = "COSINE", value_parser = parse_cosine, allow_negative_numbers = true)]
    pub require: Option<f64>,
    #[command(flatten)]
    pub threads: Threads,
}

fn parse_cosine(s: &str) -> Result<f64, String> {
    let cosine = s.parse().ok().filter(|c: &f64| c.is_finite());
    cosine.ok_or_else(|| "a number is expected".into())
}

/// One op on both sides.
struct Row {
    value: String,
    op: String,
    source: String,
    /// Of the results of the two runs.
    inherited: Distance,
    /// Of this op alone, on the reference's operands; `None` between two models.
    own: Option<f64>,
    largest: f32,
    /// Numbers that are infinite or NaN on the other side only.
    broken: usize,
}

/// Cosine below which an op counts as broken.
const BROKEN_COSINE: f64 = 0.99;

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    args.threads.apply()?;
    let progress = Progress::new(out);
    progress.stage("reading the models");
    // Of a folder and a package, shapes are for the folder.
    let both_fixed = is_package(&args.a) && args.b.as_deref().is_none_or(is_package);
    let load = |path: &Path| match is_package(path) && !both_fixed {
        true => Model::load(path, &Shapes::default(), Opset::Ios18),
        false => Model::load(path, &args.shapes, Opset::Ios18),
    };
    let a = load(&args.a)?;
    let b = args.b.as_deref().map(load).transpose()?;
    let left = a.function(args.function.as_deref())?;
    let right = match &b {
        Some(b) => b.function(args.function.as_deref())?,
        None => left,
    };
    let one_model = b.is_none();
    let default = if one_model { ArithmeticName::ANE } else { ArithmeticName::F32 };
    let other = args.arithmetic_b.unwrap_or(default);
    let inputs = inputs(args, &a, left, b.as_ref())?;
    progress.stage("running both sides");
    let run =
        |graph, arithmetic| values(graph, arithmetic, &inputs).map_err(|e| args.source.blame(0, e));
    let (ra, rb) = (run(left, args.arithmetic_a)?, run(right, other)?);
    let mut text = format!(
        "{} in {}  against  {} in {}{}\n",
        args.a.display(),
        args.arithmetic_a.name(),
        args.b.as_ref().unwrap_or(&args.a).display(),
        other.name(),
        if args.source.is_made_up() { "  (made-up inputs)" } else { "" }
    );
    let outputs = compare_outputs(left, &ra, right, &rb)?;
    text += &output_table(&outputs);
    let rows = match args.per_op {
        true => {
            progress.stage("comparing op by op");
            per_op(left, &ra, right, &rb, one_model.then(|| other.get()))?
        }
        false => Vec::new(),
    };
    progress.done();
    if args.per_op {
        text += &op_table(&rows, args.top, one_model);
    }
    let json = json!({
        "schema": "russet.compare/1",
        "a": path(&args.a), "b": args.b.as_deref().map(path), "arithmetic_a": args.arithmetic_a.name(),
        "arithmetic_b": other.name(),
        "outputs": outputs.iter().map(|(name, d)| json!({
            "name": name, "relative_l2": finite(d.relative_l2), "max": finite(d.max),
            "cosine": finite(d.cosine),
        })).collect::<Vec<_>>(),
        "ops": rows.iter().map(|r| json!({
            "value": r.value, "op": r.op, "source": r.source, "own_relative_l2": r.own.map(finite),
            "relative_l2": finite(r.inherited.relative_l2), "cosine": finite(r.inherited.cosine),
            "max": finite(r.inherited.max), "largest": finite(r.largest.into()),
            "broken_elements": r.broken,
        })).collect::<Vec<_>>(),
        "first_broken": first_broken(&rows).map(|r| &r.value),
    });
    out.result(json, &text)?;
    let worst = outputs.iter().map(|(_, d)| d.cosine);
    match args.require {
        Some(required) if worst.clone().any(|c| c.is_nan() || c < required) => Err(Failure::Denied),
        _ => Ok(()),
    }
}

/// Inputs for both sides: given ones, or made up for the reference.
fn inputs(args: &Arguments, a: &Model, left: &Graph, b: Option<&Model>) -> Outcome<Inputs> {
    // Text needs a tokenizer; either model may have it.
    let with_tokenizer = match b {
        Some(b) if a.tokenizer.is_none() && b.tokenizer.is_some() => b,
        _ => a,
    };
    let sets = args.source.sets(with_tokenizer, left)?;
    sets.into_iter().next().ok_or_else(|| Failure::usage("there is nothing to run on"))
}

type Values = HashMap<Value, Array>;

/// Every value of a run.
fn values(graph: &Graph, arithmetic: ArithmeticName, inputs: &Inputs) -> Outcome<Values> {
    let session = Session::observable(graph, arithmetic.get())?;
    // A side that lacks an input (a mask made from ids) is run without it.
    let names: Vec<&str> = graph.inputs().iter().map(|&v| graph.value(v).name.as_str()).collect();
    let mine: Inputs = inputs
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, a)| (name.clone(), a.clone()))
        .collect();
    let mut all = Values::new();
    session.run_observed(&mine, &mut |v, array| {
        all.insert(v, array());
    })?;
    for &v in graph.inputs() {
        if let Some(array) = mine.get(&graph.value(v).name) {
            all.insert(v, array.clone());
        }
    }
    Ok(all)
}

fn compare_outputs(
    left: &Graph,
    ra: &Values,
    right: &Graph,
    rb: &Values,
) -> Outcome<Vec<(String, Distance)>> {
    let mut all = Vec::new();
    for v in left.outputs() {
        let name = &left.value(*v).name;
        let same = right.outputs().iter().find(|&&w| right.value(w).name == *name);
        if let Some((x, y)) = ra.get(v).zip(same.and_then(|w| rb.get(w))) {
            all.push((name.clone(), distance(x, y)));
        }
    }
    if all.is_empty() {
        let names = |g: &Graph| {
            let all = g.outputs().iter().map(|&v| g.value(v).name.clone());
            all.collect::<Vec<_>>().join(", ")
        };
        let message =
            format!("the two have no output in common: {} and {}", names(left), names(right));
        return Err(Failure::new("no-common-output", message));
    }
    Ok(all)
}

/// Ops in the reference's order; between two models, those whose results have one name and shape.
fn per_op(
    left: &Graph,
    ra: &Values,
    right: &Graph,
    rb: &Values,
    alone_in: Option<Arithmetic>,
) -> Outcome<Vec<Row>> {
    let by_name: HashMap<&str, Value> = right
        .values()
        .filter(|(v, _)| right.is_live(*v))
        .map(|(v, d)| (d.name.as_str(), v))
        .collect();
    let mut rows = Vec::new();
    for (id, node) in left.nodes().filter(|(_, n)| !n.op.is_const() && n.blocks.is_empty()) {
        for (i, &v) in node.outputs.iter().enumerate() {
            let same = by_name.get(left.value(v).name.as_str());
            let Some((x, y)) = ra.get(&v).zip(same.and_then(|w| rb.get(w))) else { continue };
            if x.shape != y.shape {
                continue;
            }
            let own = match alone_in {
                Some(arithmetic) => Some(own_error(left, id, i, ra, arithmetic)?),
                None => None,
            };
            let broken = |x: &Array, y: &Array| match (x.as_f32(), y.as_f32()) {
                (Some(x), Some(y)) => {
                    x.iter().zip(y).filter(|(a, b)| a.is_finite() && !b.is_finite()).count()
                }
                _ => 0,
            };
            let largest = x.as_f32().map_or(0.0, |x| x.iter().fold(0.0f32, |m, v| m.max(v.abs())));
            rows.push(Row {
                value: left.value(v).name.clone(),
                op: node.op.name().to_owned(),
                source: node.origin.source.as_deref().unwrap_or("").to_owned(),
                inherited: distance(x, y),
                own,
                largest,
                broken: broken(x, y),
            });
        }
    }
    Ok(rows)
}

/// What the op alone adds: both arithmetics on the same operands, those of the reference as fp16
/// holds them. What only moves numbers adds nothing.
fn own_error(
    graph: &Graph,
    id: NodeId,
    output: usize,
    values: &Values,
    arithmetic: Arithmetic,
) -> Outcome<f64> {
    let operand = |v: Value| {
        let array = values.get(&v)?;
        let rounded = array.to_tensor(DType::F16).as_ref().and_then(Array::from_tensor);
        Some(rounded.unwrap_or_else(|| array.clone()))
    };
    let exact = evaluate_node(graph, id, Arithmetic::F32, &operand)?;
    let made = evaluate_node(graph, id, arithmetic, &operand)?;
    let pair = exact.get(output).zip(made.get(output));
    Ok(pair.map_or(f64::INFINITY, |(x, y)| distance(x, y).relative_l2))
}

fn first_broken(rows: &[Row]) -> Option<&Row> {
    rows.iter()
        .find(|r| r.broken > 0 || r.inherited.cosine.is_nan() || r.inherited.cosine < BROKEN_COSINE)
}

fn output_table(outputs: &[(String, Distance)]) -> String {
    let rows: Vec<Vec<String>> = outputs
        .iter()
        .map(|(name, d)| {
            vec![
                name.clone(),
                format!("{:.7}", d.cosine),
                format!("{:.2e}", d.relative_l2),
                format!("{:.2e}", d.max),
            ]
        })
        .collect();
    table(&["output", "cosine", "relative L2", "largest difference"], &rows)
}

fn op_table(rows: &[Row], top: usize, one_model: bool) -> String {
    let key = |r: &Row| r.own.unwrap_or(r.inherited.relative_l2);
    let mut worst: Vec<&Row> = rows.iter().collect();
    worst.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let shown: Vec<Vec<String>> = worst
        .iter()
        .take(top)
        .map(|r| {
            let own = r.own.map_or(String::new(), |o| format!("{o:.2e}"));
            vec![
                format!("%{}", r.value),
                r.op.clone(),
                own,
                format!("{:.2e}", r.inherited.relative_l2),
                format!("{:.3}", r.largest),
                r.source.clone(),
            ]
        })
        .collect();
    let order = if one_model { "what it adds itself" } else { "its distance" };
    let mut text = format!("\n{} ops compared; the worst by {order}:\n", rows.len());
    text += &table(&["value", "op", "own", "inherited", "largest", "source"], &shown);
    text += &by_kind(rows);
    match first_broken(rows) {
        Some(r) => {
            text + &format!(
                "\nfirst op that breaks: {} %{} (cosine {:.4}, {} numbers no longer finite)\n",
                r.op, r.value, r.inherited.cosine, r.broken
            )
        }
        None => text + "\nno op breaks: every cosine is at least 0.99 and every number finite\n",
    }
}

/// Where the error comes from, by kind of op: the root of the sum of squares of what each adds.
fn by_kind(rows: &[Row]) -> String {
    let mut kinds: Vec<(&str, f64, usize)> = Vec::new();
    for (op, own) in rows.iter().filter_map(|r| Some((r.op.as_str(), r.own?))) {
        match kinds.iter_mut().find(|k| k.0 == op) {
            Some(k) => (k.1, k.2) = (k.1 + own * own, k.2 + 1),
            None => kinds.push((op, own * own, 1)),
        }
    }
    if kinds.is_empty() {
        return String::new();
    }
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rows: Vec<Vec<String>> = kinds
        .iter()
        .take(6)
        .map(|(op, squares, n)| {
            vec![(*op).to_owned(), n.to_string(), format!("{:.2e}", squares.sqrt())]
        })
        .collect();
    format!("\nwhere it comes from:\n{}", table(&["op", "count", "added together"], &rows))
}
