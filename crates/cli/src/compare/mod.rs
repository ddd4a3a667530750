//! `russet compare`: how far two models, or one model in two arithmetics, are apart.

mod ablate;
mod apart;
mod html;
mod ops;
mod ranges;
mod sides;
mod steps;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use russet_exec::{Array, Session};
use russet_ir::{Graph, Opset, Value};
use serde_json::json;

use crate::arithmetic::{ArithmeticName, RuleName};
use crate::diagnostic::{Failure, Outcome};
use crate::inputs::{self, Inputs, Source};
use crate::model::{Model, Shapes, is_package};
use crate::progress::Progress;
use crate::run::Threads;
use crate::show::{Out, path, table};
use ablate::Cost;
use apart::Apart;
use ops::Row;
use ranges::Range;
use sides::Compare;
use steps::Growth;

#[derive(Args, Debug)]
pub struct Arguments {
    /// The reference: a package or a Hugging Face folder.
    pub a: PathBuf,
    /// What is compared with it: a model, or recorded results of its ops by name (`.npz`,
    /// `.safetensors`); the reference itself when absent.
    pub b: Option<PathBuf>,
    /// Arithmetic of the reference.
    #[arg(long, default_value = "f32", value_name = "ARITHMETIC")]
    pub arithmetic_a: ArithmeticName,
    /// Arithmetic of the other side; `ane` when there is only one model.
    #[arg(long, value_name = "ARITHMETIC")]
    pub arithmetic_b: Option<ArithmeticName>,
    /// Rules of the engine the other side does without.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub without: Vec<RuleName>,
    /// Also op by op: what each op adds, and what it inherits.
    #[arg(long)]
    pub per_op: bool,
    /// Ops to show, the worst first.
    #[arg(long, default_value_t = 20)]
    pub top: usize,
    /// The largest magnitude at each op in f32, and the margin to each limit of the engine.
    #[arg(long)]
    pub ranges: bool,
    /// What each rule of the engine costs: the other side is run without each.
    #[arg(long, conflicts_with = "steps")]
    pub ablate: bool,
    /// Run that many steps on states that are kept, and see the error grow.
    #[arg(long, value_name = "N", value_parser = parse_steps, conflicts_with_all = ["per_op", "ranges", "record"])]
    pub steps: Option<usize>,
    /// Also a page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Save every op's result on the other side: `.npz` or `.safetensors`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
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

fn parse_steps(s: &str) -> Result<usize, String> {
    s.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or("1 to 1000000".into())
}

fn parse_cosine(s: &str) -> Result<f64, String> {
    let cosine = s.parse().ok().filter(|c: &f64| c.is_finite());
    cosine.ok_or_else(|| "a number is expected".into())
}

/// Every value of a run.
type Values = HashMap<Value, Array>;

/// The side that is compared with the reference.
enum Other<'a> {
    Model {
        graph: &'a Graph,
        session: Box<Session>,
    },
    /// Results of ops by name.
    Recorded(Inputs),
}

/// What a comparison found.
#[derive(Default)]
struct Found {
    n_sets: usize,
    outputs: Vec<(String, Apart)>,
    rows: Vec<Row>,
    ranges: Vec<Range>,
    costs: Vec<Cost>,
    growth: Option<Growth>,
}

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    args.threads.apply()?;
    let progress = Progress::new(out);
    progress.stage("reading the models");
    let recorded = args.b.as_deref().filter(|b| is_recorded(b));
    let models = args.b.as_deref().filter(|b| !is_recorded(b));
    // Of a folder and a package, shapes are for the folder.
    let both_fixed = is_package(&args.a) && models.is_none_or(is_package);
    let load = |path: &Path| match is_package(path) && !both_fixed {
        true => Model::load(path, &Shapes::default(), Opset::Ios18),
        false => Model::load(path, &args.shapes, Opset::Ios18),
    };
    let a = load(&args.a)?;
    let b = models.map(load).transpose()?;
    let left = a.function(args.function.as_deref())?;
    let right = match &b {
        Some(b) => b.function(args.function.as_deref())?,
        None => left,
    };
    let default = if b.is_none() { ArithmeticName::ANE } else { ArithmeticName::F32 };
    let other = args.arithmetic_b.unwrap_or(default).without(&args.without)?;
    let compare = Compare {
        args,
        left,
        right,
        one_model: args.b.is_none(),
        reference: args.arithmetic_a.get(),
        other,
        // Text needs a tokenizer; either model may have it.
        with_tokenizer: match &b {
            Some(b) if a.tokenizer.is_none() && b.tokenizer.is_some() => b,
            _ => &a,
        },
        progress: &progress,
    };
    let found = match (args.steps, recorded) {
        (Some(n), None) => compare.steps(n)?,
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--steps runs both sides, and one is recorded"));
        }
        (None, Some(file)) => compare.sets(Other::Recorded(inputs::named(file)?))?,
        (None, None) => {
            let session = Box::new(Session::observable(right, other.get())?);
            compare.sets(Other::Model { graph: right, session })?
        }
    };
    progress.done();
    report(args, recorded.map_or_else(|| other.name(), |_| "recorded".into()), &found, out)
}

/// Is it a file of arrays?
fn is_recorded(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    matches!(extension, Some("npz" | "safetensors")) && path.is_file()
}

fn report(args: &Arguments, other: String, found: &Found, out: &Out) -> Outcome<()> {
    let title = format!(
        "{} in {}  against  {} in {}{}",
        args.a.display(),
        args.arithmetic_a.name(),
        args.b.as_ref().unwrap_or(&args.a).display(),
        other,
        if args.source.is_made_up() { "  (made-up inputs)" } else { "" }
    );
    let mut text = title.clone() + "\n";
    if !found.outputs.is_empty() {
        text += &output_table(&found.outputs);
    }
    if found.n_sets > 1 && found.growth.is_none() {
        text += &format!("over {} sets of inputs\n", found.n_sets);
    }
    if args.per_op {
        text += &ops::text(&found.rows, args.top, args.b.is_none());
    }
    if args.ranges {
        text += &ranges::text(&found.ranges, args.top);
    }
    if args.ablate {
        text += &ablate::text(&found.costs);
    }
    text += &found.growth.as_ref().map_or(String::new(), Growth::text);
    if let Some(file) = &args.html {
        let page = html::page(&html::Page {
            title: &title,
            outputs: &found.outputs,
            rows: &found.rows,
            ranges: &found.ranges,
            costs: &found.costs,
            growth: found.growth.as_ref(),
        });
        russet_formats::mapped::write_whole(file, |out| out.write_all(page.as_bytes()))?;
    }
    let outputs = found.outputs.iter().map(|(name, d)| {
        let mut output = d.json();
        output["name"] = json!(name);
        output
    });
    let json = json!({
        "schema": "russet.compare/1",
        "a": path(&args.a), "b": args.b.as_deref().map(path),
        "arithmetic_a": args.arithmetic_a.name(), "arithmetic_b": other, "sets": found.n_sets,
        "outputs": outputs.collect::<Vec<_>>(),
        "ops": ops::json(if args.per_op { &found.rows } else { &[] }),
        "first_broken": ops::first_broken(&found.rows).map(|r| &r.value),
        "ranges": ranges::json(&found.ranges), "rules": ablate::json(&found.costs),
        "steps": found.growth.as_ref().map(Growth::json),
    });
    out.result(json, &text)?;
    let cosines = || found.outputs.iter().map(|(_, d)| d.cosine());
    match args.require {
        Some(required) if cosines().any(|c| c.is_nan() || c < required) => Err(Failure::Denied),
        _ => Ok(()),
    }
}

fn output_table(outputs: &[(String, Apart)]) -> String {
    let rows: Vec<Vec<String>> = outputs
        .iter()
        .map(|(name, d)| {
            vec![
                name.clone(),
                format!("{:.7}", d.cosine()),
                format!("{:.2e}", d.relative_l2()),
                format!("{:.2e}", d.max),
                format!("{:.1}", d.snr_db()),
            ]
        })
        .collect();
    table(&["output", "cosine", "relative L2", "largest difference", "dB"], &rows)
}
