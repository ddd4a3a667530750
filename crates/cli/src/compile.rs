//! `russet compile`: a model in, a proven package out, with the reasons.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use russet_exec::{Arithmetic, Session};
use russet_formats::container;
use russet_formats::mlpackage::{self, Description, Written};
use russet_ir::{Graph, Opset, Program, verify_program};
use russet_machine::Profile;
use russet_passes::{Distance, Options, Pass, Report, distance, pipeline, random_inputs};
use serde_json::{Value, json};

use crate::convert;
use crate::diagnostic::{Failure, Outcome};
use crate::inputs::{Inputs, Source};
use crate::model::{Kind, Model, Shapes, bind, bindings, length};
use crate::progress::Progress;
use crate::show::{Out, bytes, count, path, seconds, table};
use crate::simulate::{Prediction, predict};

#[derive(Args, Debug)]
pub struct Arguments {
    /// A Hugging Face folder, an ONNX model, or a Core ML model in any container.
    pub source: PathBuf,
    /// The package to write; `OUT.mlmodelc` of a package is the same model as Core ML loads it,
    /// without any pass.
    #[arg(short, long, value_name = "OUT.mlpackage")]
    pub output: PathBuf,
    #[command(flatten)]
    pub shapes: Shapes,
    /// The chip to predict for.
    #[arg(long, default_value = "m4")]
    pub chip: String,
    /// The op set to write, that of the oldest system that must load it: ios18 unless told
    /// otherwise; a package keeps its own.
    #[arg(long, value_parser = parse_opset)]
    pub opset: Option<Opset>,
    #[command(flatten)]
    pub inputs: Source,
    /// Do not run both sides of every rewrite.
    #[arg(long)]
    pub no_proof: bool,
    /// Run them even for a model of more than 400 M weights, which takes minutes and ten times the
    /// memory.
    #[arg(long, conflicts_with = "no_proof")]
    pub proof: bool,
    /// Only these passes, in the pipeline's order.
    #[arg(long, value_delimiter = ',', value_name = "PASS,…")]
    pub passes: Vec<String>,
    /// Not these passes.
    #[arg(long, value_delimiter = ',', value_name = "PASS,…")]
    pub skip: Vec<String>,
    /// Also list every rewrite, and what was left alone and why.
    #[arg(long, short)]
    pub verbose: bool,
}

pub fn parse_opset(s: &str) -> Result<Opset, String> {
    let names: Vec<&str> = Opset::ALL.iter().map(|o| o.name()).collect();
    s.parse().map_err(|()| format!("known are {}", names.join(", ")))
}

/// How far the compiled program is from its source, at one length.
pub struct Proven {
    pub function: String,
    pub length: Option<u64>,
    /// By output: in f32, and in the Neural Engine's arithmetic.
    pub outputs: BTreeMap<String, [Distance; 2]>,
    /// Outputs of the source that are not finite, with how many numbers: they prove nothing.
    pub not_finite: BTreeMap<String, usize>,
}

/// Weights beyond which a model is proven when that is asked for only: both sides run in f32 with all
/// weights unpacked, which for 1.2 G weights took 150 s and 11.7 GB on two cores
/// (`bench/big_llama.py --proof`).
const PROOF_WEIGHTS_MAX: u64 = 400_000_000;

impl Arguments {
    /// Are both sides of every rewrite run?
    fn proves(&self, model: &Model) -> bool {
        let asked = self.proof || !self.inputs.is_made_up();
        !self.no_proof && (asked || n_weights(&model.program) <= PROOF_WEIGHTS_MAX)
    }
}

/// Weights of the function that has most: others mostly have the same.
fn n_weights(program: &Program) -> u64 {
    let of = |g: &Graph| -> u64 {
        let consts = g.nodes().filter(|(_, n)| n.op.is_const());
        let outputs = consts.filter_map(|(_, n)| n.outputs.first());
        outputs.filter_map(|&v| g.constant(v)).map(russet_ir::Tensor::n_elements).sum()
    };
    program.functions.iter().map(of).max().unwrap_or(0)
}

/// What compiling made.
pub struct Compiled {
    pub program: Program,
    pub report: Report,
    pub proven: Vec<Proven>,
}

/// Relative L2 distance of an output in f32 beyond which a package is not written.
const F32_DISTANCE_MAX: f64 = 0.02;
/// Cosine below which the Neural Engine's arithmetic is warned about.
const ANE_COSINE_MIN: f64 = 0.999;

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    let (json, text) = produce(args, out)?;
    out.result(json, &text)
}

/// Writes the package; its account as JSON and as text.
pub fn produce(args: &Arguments, out: &Out) -> Outcome<(Value, String)> {
    if convert::is_compiled(&args.output) {
        return convert::produce(args, out);
    }
    let start = Instant::now();
    let chip = Profile::named(&args.chip)?;
    check_passes(args)?;
    // Better now than after minutes of proving.
    mlpackage::check_output(&args.output)?;
    let progress = Progress::new(out);
    progress.stage("reading the model");
    let model = Model::load(&args.source, &args.shapes, args.opset.unwrap_or(OPSET))?;
    keep_opset(args, &model)?;
    let passes = chosen_passes(args, model.program.opset);
    let compiled = compile(&model, args, &passes, &progress).map_err(|e| match e.code() {
        Some("op-failed" | "unsupported-op") if args.proves(&model) => {
            e.help("`--no-proof` compiles it without running it")
        }
        _ => args.inputs.blame(0, e),
    })?;
    progress.stage("predicting");
    let prediction = predict_all(&compiled.program, &chip)?;
    progress.stage("writing the package");
    let written = write(&model, &compiled.program, &args.output)?;
    if args.proves(&model) {
        progress.stage("reading the package back");
        read_back(args, &compiled)?;
    }
    progress.done();
    let shown = Shown { args, model: &model, compiled: &compiled, written: &written };
    let seconds = start.elapsed().as_secs_f64();
    Ok((shown.json(&prediction, seconds), shown.text(&prediction, &passes, seconds)))
}

/// Writes the package; what did not change is as the source has it. The program of a compiled
/// model is encoded anew, since its text has notes that a package cannot have.
fn write(model: &Model, program: &Program, out: &Path) -> Outcome<Written> {
    let none = Description::default();
    Ok(match (&model.kind, model.container) {
        (Kind::Package(p), Some(container::Kind::Package | container::Kind::ModelFile)) => {
            mlpackage::rewrite(program, &none, &p.source, out)?
        }
        (Kind::Package(p), _) => mlpackage::write(program, &p.description, out)?,
        (Kind::HuggingFace { .. } | Kind::Onnx { .. }, _) => mlpackage::write(program, &none, out)?,
    })
}

/// The opset of what is made from a Hugging Face folder or an ONNX model.
const OPSET: Opset = Opset::Ios18;

/// Raising a package's opset would mean rewriting ops for no gain, lowering it may be impossible.
fn keep_opset(args: &Arguments, model: &Model) -> Outcome<()> {
    match (&model.kind, args.opset) {
        (Kind::Package(_), Some(asked)) if asked != model.program.opset => {
            let message =
                format!("the package is of opset {}, --opset {asked}", model.program.opset);
            Err(Failure::usage(message)
                .in_file(&model.path)
                .help("leave --opset out, or compile the source the package was made from"))
        }
        _ => Ok(()),
    }
}

/// Are all passes that are named passes?
fn check_passes(args: &Arguments) -> Outcome<()> {
    let all = pipeline(Options { opset: Opset::Ios26 });
    for name in args.passes.iter().chain(&args.skip) {
        if !all.iter().any(|p| p.name() == name) {
            let known: Vec<&str> = all.iter().map(|p| p.name()).collect();
            return Err(Failure::usage(format!("there is no pass `{name}`"))
                .help(format!("the passes are {}", known.join(", "))));
        }
    }
    Ok(())
}

fn chosen_passes(args: &Arguments, opset: Opset) -> Vec<Box<dyn Pass>> {
    let mut all = pipeline(Options { opset });
    let wanted = |name: &str| {
        (args.passes.is_empty() || args.passes.iter().any(|p| p == name))
            && !args.skip.iter().any(|p| p == name)
    };
    all.retain(|p| wanted(p.name()));
    all
}

/// Rewrites the model; with proof, every step and the whole of it.
pub fn compile(
    model: &Model,
    args: &Arguments,
    passes: &[Box<dyn Pass>],
    progress: &Progress,
) -> Outcome<Compiled> {
    let mut program = model.program.clone();
    let source = model.function(None)?;
    let given = match args.inputs.is_made_up() {
        true => None,
        false => args.inputs.sets(model, source)?.into_iter().next(),
    };
    // Inputs are for the default function, those of others are made up.
    let mut step_inputs = russet_passes::Inputs::new();
    for graph in program.functions.iter().filter(|_| args.proves(model)) {
        let inputs = match given.as_ref().filter(|_| graph.name == source.name) {
            Some(inputs) => inputs.clone(),
            None => random_inputs(graph, args.inputs.seed, 64)?,
        };
        step_inputs.insert(graph.name.clone(), inputs);
    }
    let report = russet_passes::compile(&mut program, passes, &step_inputs, &mut |pass| {
        progress.stage(&format!("rewriting: {pass}"));
    })?;
    let findings = verify_program(&program);
    if !findings.is_empty() {
        return Err(Failure::Findings(findings));
    }
    let mut proven = Vec::new();
    for result in program.functions.iter().filter(|_| args.proves(model)) {
        let before = model.function(Some(&result.name))?;
        let given = given.clone().filter(|_| result.name == source.name);
        proven.extend(prove(before, result, given, args.inputs.seed, progress)?);
    }
    Ok(Compiled { program, report, proven })
}

/// Runs source and result whole, in both arithmetics, at every length.
fn prove(
    source: &Graph,
    result: &Graph,
    given: Option<Inputs>,
    seed: u64,
    progress: &Progress,
) -> Outcome<Vec<Proven>> {
    progress.stage("proving the whole");
    let single = given.is_some();
    let mut all = Vec::new();
    for binding in bindings(source).into_iter().take(if single { 1 } else { usize::MAX }) {
        let bound = bind(source, &binding)?;
        let inputs = match &given {
            Some(inputs) => inputs.clone(),
            None => random_inputs(&bound, seed, 64)?,
        };
        all.push((length(&bound).filter(|_| !single), inputs));
    }
    // One side after another: each holds all weights.
    let run = |graph: &Graph, arithmetic: Arithmetic| -> Outcome<Vec<Inputs>> {
        let session = Session::new(graph, arithmetic)?;
        let one = |inputs: &Inputs| -> Outcome<Inputs> {
            // What is left in the states counts like an output.
            let mut states = Inputs::new();
            let mut outputs = session.run_stateful(inputs, &mut states)?;
            outputs.append(&mut states);
            Ok(outputs)
        };
        all.iter().map(|(_, inputs)| one(inputs)).collect()
    };
    let expected = run(source, Arithmetic::F32)?;
    let sides = [run(result, Arithmetic::F32)?, run(result, Arithmetic::ANE)?];
    let mut proven = Vec::new();
    for (i, (length, _)) in all.iter().enumerate() {
        let mut outputs = BTreeMap::new();
        let mut not_finite = BTreeMap::new();
        for (name, a) in &expected[i] {
            let bad = a.as_f32().map_or(0, |x| x.iter().filter(|x| !x.is_finite()).count());
            if bad > 0 {
                not_finite.insert(name.clone(), bad);
            }
            let far = |side: usize| {
                let b = sides[side][i].get(name);
                b.map(|b| distance(a, b))
                    .ok_or_else(|| Failure::new("lost-output", format!("output `{name}` is gone")))
            };
            let distances = [far(0)?, far(1)?];
            let moved = distances[0].relative_l2;
            if moved > F32_DISTANCE_MAX {
                return Err(Failure::new(
                    "unproven",
                    format!(
                        "output `{name}` moved by {moved:.1e} (relative L2) in f32, {F32_DISTANCE_MAX} is allowed"
                    ),
                ));
            }
            outputs.insert(name.clone(), distances);
        }
        let function = source.name.clone();
        proven.push(Proven { function, length: *length, outputs, not_finite });
    }
    Ok(proven)
}

/// The package as it lies on disk holds the program that was proven.
fn read_back(args: &Arguments, compiled: &Compiled) -> Outcome<()> {
    let package = mlpackage::read(&args.output)?;
    let findings = verify_program(&package.program);
    if !findings.is_empty() {
        return Err(Failure::Findings(findings));
    }
    for (a, b) in compiled.program.functions.iter().zip(&package.program.functions) {
        let ops = |g: &Graph| -> Vec<String> {
            let live = g.nodes().filter(|(_, n)| !n.op.is_const());
            live.map(|(_, n)| n.op.name().to_owned()).collect()
        };
        let weights = |g: &Graph| -> u64 {
            let first = |n: &russet_ir::Node| n.outputs.first().copied();
            let consts = g.nodes().filter_map(|(_, n)| g.constant(first(n)?));
            consts.filter(|t| t.n_elements() >= 10).map(russet_ir::Tensor::n_bytes).sum()
        };
        if ops(a) != ops(b) || weights(a) != weights(b) {
            let message = "the package read back differs from the program that was written";
            return Err(Failure::new("read-back", message).in_file(&args.output));
        }
    }
    Ok(())
}

fn predict_all(program: &Program, chip: &Profile) -> Outcome<Vec<Prediction>> {
    let graph = &program.functions[0];
    bindings(graph).iter().map(|b| predict(&bind(graph, b)?, chip)).collect()
}

struct Shown<'a> {
    args: &'a Arguments,
    model: &'a Model,
    compiled: &'a Compiled,
    written: &'a Written,
}

impl Shown<'_> {
    /// How often each pass made an edit, in the pipeline's order.
    fn counts(&self) -> Vec<(&str, usize)> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for r in &self.compiled.report.rewrites {
            match counts.iter_mut().find(|c| c.0 == r.pass) {
                Some(c) => c.1 += 1,
                None => counts.push((r.pass, 1)),
            }
        }
        counts
    }

    /// The rewrite that moved a result most.
    fn worst(&self) -> Option<(&str, f64)> {
        let moved = self.compiled.report.rewrites.iter();
        moved.filter_map(|r| Some((r.pass, r.distance?))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn text(&self, predictions: &[Prediction], passes: &[Box<dyn Pass>], s: f64) -> String {
        let mut text = String::new();
        let from = self.model.path.display();
        text += &match &self.model.kind {
            Kind::HuggingFace { family, n_parameters, n_bytes } => format!(
                "Read       {family}, {} parameters, {}: {from}\n",
                count(*n_parameters),
                bytes(*n_bytes)
            ),
            Kind::Onnx { producer, version, n_parameters, n_bytes, n_nodes } => format!(
                "Read       ONNX model of {producer}, opset {version}, {n_nodes} nodes, {} parameters, {}: {from}\n",
                count(*n_parameters),
                bytes(*n_bytes)
            ),
            Kind::Package(p) => {
                format!("Read       package of opset {}: {from}\n", p.program.opset)
            }
        };
        let rewrites = &self.compiled.report.rewrites;
        text += &format!("Rewrote    {} places\n", rewrites.len());
        for (name, n) in self.counts() {
            let reason = passes.iter().find(|p| p.name() == name).map_or("", |p| p.reason());
            text += &format!("           {name:<19} {n:>4}  {reason}\n");
        }
        if self.args.verbose {
            text += &self.details();
        }
        text += &self.proof();
        text += &format!(
            "Wrote      {}: {}, opset {} ({})\n",
            self.args.output.display(),
            bytes(self.written.weight_bytes + self.written.model_bytes),
            self.compiled.program.opset,
            self.compiled.program.opset.systems(),
        );
        for o in &self.written.overflows {
            let from = o.source.as_deref().unwrap_or(&o.weight);
            text += &format!(
                "warning[weight-overflow]: {} of the weights of `{from}` (up to {:.4e}) are beyond 65504 and became infinite in fp16\n   = help: scale them down in the model, together with what follows them\n",
                o.n, o.largest
            );
        }
        for p in predictions {
            text += &format!("Predicted  {}\n", p.line());
        }
        text + &format!("Took       {}\n", seconds(s))
    }

    fn details(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .compiled
            .report
            .rewrites
            .iter()
            .map(|r| {
                let moved = r.distance.map_or("not run".into(), |d| format!("{d:.1e}"));
                let source = r.source.as_deref().unwrap_or("").to_owned();
                vec![r.pass.to_owned(), r.value.clone(), source, moved]
            })
            .collect();
        let mut text = table(&["pass", "value", "source", "moved"], &rows);
        for s in &self.compiled.report.skipped {
            text += &format!("left alone: {} at %{}: {}\n", s.pass, s.value, s.why);
        }
        text
    }

    fn proof(&self) -> String {
        if self.compiled.proven.is_empty() {
            return match self.args.no_proof {
                true => "Proved     nothing: --no-proof\n".into(),
                false => format!(
                    "Proved     nothing: {} weights would take minutes; `--proof` does it\n",
                    count(n_weights(&self.model.program))
                ),
            };
        }
        let mut text = String::new();
        if let Some((pass, moved)) = self.worst() {
            text += &format!(
                "Proved     every rewrite in f32; the furthest moved its result by {moved:.1e} ({pass})\n"
            );
        }
        for p in &self.compiled.proven {
            let at = p.length.map_or(String::new(), |n| format!(" at {n}"));
            let at = match self.compiled.program.functions.len() {
                1 => at,
                _ => format!("{at} of function {}", p.function),
            };
            for (name, n) in &p.not_finite {
                text += &format!(
                    "warning[not-finite]: {n} numbers of `{name}`{at} are infinite or NaN in the source itself\n   = help: nothing is proven about them; are the weights whole?\n"
                );
            }
            for (name, [f32, ane]) in &p.outputs {
                text += &format!(
                    "           {name}{at}: cosine {:.7} in f32, {:.7} in ane arithmetic\n",
                    f32.cosine, ane.cosine
                );
                if ane.cosine.is_nan() || ane.cosine < ANE_COSINE_MIN {
                    text += &format!(
                        "warning[ane-drift]: `{name}` drifts in ane arithmetic\n   = help: `russet compare {} --per-op` shows at which op it begins\n",
                        self.args.output.display()
                    );
                }
            }
        }
        text
    }

    fn json(&self, predictions: &[Prediction], s: f64) -> Value {
        let report = &self.compiled.report;
        let distance = |d: &Distance| json!({ "relative_l2": finite(d.relative_l2), "max": finite(d.max), "cosine": finite(d.cosine) });
        let proven: Vec<Value> = self
            .compiled
            .proven
            .iter()
            .map(|p| {
                let outputs: BTreeMap<&str, Value> = p
                    .outputs
                    .iter()
                    .map(|(name, [f32, ane])| {
                        (name.as_str(), json!({ "f32": distance(f32), "ane": distance(ane) }))
                    })
                    .collect();
                json!({ "function": p.function, "length": p.length, "outputs": outputs, "not_finite": p.not_finite })
            })
            .collect();
        json!({
            "schema": "russet.compile/1",
            "source": path(&self.model.path),
            "output": path(&self.args.output),
            "opset": self.compiled.program.opset.name(),
            "model_bytes": self.written.model_bytes,
            "weight_bytes": self.written.weight_bytes,
            "n_weights": self.written.n_weights,
            "overflows": self.written.overflows.iter().map(|o| json!({
                "weight": o.weight, "source": o.source, "n": o.n, "largest": finite(o.largest.into()),
            })).collect::<Vec<_>>(),
            "rewrites": report.rewrites.iter().map(|r| json!({
                "pass": r.pass, "function": r.function, "value": r.value,
                "source": r.source.as_deref(), "distance": r.distance.map(finite),
            })).collect::<Vec<_>>(),
            "skipped": report.skipped.iter().map(|s| json!({
                "pass": s.pass, "function": s.function, "value": s.value, "why": s.why.to_string(),
            })).collect::<Vec<_>>(),
            "proven": proven,
            "predictions": predictions.iter().map(Prediction::json).collect::<Vec<_>>(),
            "seconds": s,
        })
    }
}

/// JSON has no infinities: they become null.
pub fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}
