//! `russet run`: a model on this machine's CPU.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use russet_exec::{Array, Numbers, Session};
use russet_formats::{arrays, container};
use russet_ir::{DType, Graph, Op, Opset, Type};
use serde_json::{Value, json};

use crate::arithmetic::ArithmeticChoice;
use crate::diagnostic::{Failure, Outcome};
use crate::generate;
use crate::hear;
use crate::inputs::{self, Inputs, Source};
use crate::model::{Model, Shapes, is_package};
use crate::progress::Progress;
use crate::see;
use crate::show::{Out, path, table};
use crate::stages;
use crate::text::similarities;

#[derive(Args, Debug)]
pub struct Arguments {
    /// A package or a Hugging Face folder.
    pub model: PathBuf,
    #[command(flatten)]
    pub source: Source,
    /// Where the outputs go: `.npz`, `.npy` or `.safetensors`.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub arithmetic: ArithmeticChoice,
    /// The function, instead of the default one.
    #[arg(long)]
    pub function: Option<String>,
    /// States to begin with, by name; they are zeros otherwise.
    #[arg(long, value_name = "FILE")]
    pub states: Option<PathBuf>,
    /// Where the states go after the last call.
    #[arg(long, value_name = "FILE")]
    pub save_states: Option<PathBuf>,
    /// Tokens a decoder adds to --text at most.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: u64,
    #[command(flatten)]
    pub shapes: Shapes,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Args, Debug, Clone, Copy)]
pub struct Threads {
    /// Threads to compute with; 0 for one per core.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub threads: u16,
}

impl Threads {
    /// Sets the number of threads for the rest of the program.
    pub fn apply(self) -> Outcome<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads.into());
        pool.build_global().map_err(|e| Failure::new("threads", e.to_string()))
    }
}

/// Outputs in the function's order.
pub type Outputs = Vec<(String, Array)>;

/// Runs `session` on inputs; the outputs in the function's order.
pub fn outputs(session: &Session, inputs: &Inputs) -> Outcome<Outputs> {
    stateful(session, inputs, &mut Inputs::new())
}

/// The same on states that are kept.
fn stateful(session: &Session, inputs: &Inputs, states: &mut Inputs) -> Outcome<Outputs> {
    let mut made = session.run_stateful(inputs, states)?;
    let names = session.graph().outputs().iter().map(|&v| session.graph().value(v).name.clone());
    Ok(names.filter_map(|name| made.remove(&name).map(|a| (name, a))).collect())
}

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    args.threads.apply()?;
    let progress = Progress::new(out);
    progress.stage("reading the model");
    if is_package(&args.model) {
        let opened = container::open(&args.model)?;
        if !opened.stages().is_empty() {
            return stages::command(args, &opened, out, &progress);
        }
    }
    let mut model = Model::load(&args.model, &args.shapes, Opset::Ios18)?;
    if let Some(shapes) = hear::fitting(&args.source.audio, &model, &args.shapes)? {
        model = Model::load(&args.model, &shapes, Opset::Ios18)?;
    }
    if !args.source.audio.is_empty() && hear::transcript(&model).is_some() {
        return hear::transcribe(args, &model, out, &progress);
    }
    if see::compares(&model, args) {
        return see::compare(args, &model, out, &progress);
    }
    if let Some(decoder) = generate::decoder(&model).filter(|_| !args.source.text.is_empty()) {
        return generate::command(args, &model, decoder, out, &progress);
    }
    let graph = model.function(args.function.as_deref())?;
    let sets = args.source.sets(&model, graph)?;
    progress.stage("packing weights");
    let session = Session::new(graph, args.arithmetic.chosen()?.get())?;
    let mut states = match &args.states {
        Some(file) => inputs::from_file(file, graph)?,
        None => Inputs::new(),
    };
    let mut all = Vec::new();
    for (i, inputs) in sets.iter().enumerate() {
        progress.stage(&format!("running {} of {}", i + 1, sets.len()));
        let made = stateful(&session, inputs, &mut states);
        all.push(made.map_err(|e| args.source.blame(i, e))?);
        // A sentence has nothing to do with the one before.
        if !args.source.text.is_empty() {
            states.clear();
        }
    }
    progress.done();
    if let Some(file) = &args.save_states {
        save_states(file, graph, &states)?;
    }
    if let Some(file) = &args.output {
        save(file, graph, &all)?;
    }
    let mut text = String::new();
    for (i, made) in all.iter().enumerate() {
        if let Some(sentence) = args.source.text.get(i) {
            text += &format!("{sentence:?}\n");
        }
        if let Some(file) = args.source.image.get(i).or(args.source.audio.get(i)) {
            text += &format!("{}\n", file.display());
        }
        text += &summary(made);
        for (name, label) in labels(graph, made) {
            text += &format!("  {name} is {label}\n");
        }
        let of = Said::of(&model, made);
        text += &of.text();
    }
    for (name, a) in &states {
        let (low, high, _) = range(a);
        text += &format!("state {name}: {low:.4} .. {high:.4}\n");
    }
    let vectors = embeddings(&all);
    if vectors.len() > 1 {
        text += &format!("\ncosine similarity\n{}", matrix(&vectors));
    }
    if args.source.is_made_up() {
        text += &format!("(on made-up inputs, seed {})\n", args.source.seed);
    }
    let json = json!({
        "schema": "russet.run/1",
        "model": path(&args.model),
        "arithmetic": args.arithmetic.chosen()?.name(),
        "runs": all.iter().enumerate().map(|(i, made)| json!({
            "text": args.source.text.get(i),
            "outputs": made.iter().map(|(name, a)| output_json(name, a)).collect::<Vec<_>>(),
            "labels": labels(graph, made),
            "said": Said::of(&model, made).json(),
        })).collect::<Vec<_>>(),
        "states": states.iter().map(|(name, a)| output_json(name, a)).collect::<Vec<_>>(),
        "similarity": (vectors.len() > 1).then(|| similarities(&vectors)),
        "saved": args.output.as_deref().map(path),
    });
    out.result(json, &text)
}

/// What logits stand for, by what the model says of itself.
struct Said {
    classes: Option<Vec<(String, f64)>>,
    words: Option<String>,
}

impl Said {
    fn of(model: &Model, made: &Outputs) -> Said {
        let logits = made.iter().find(|m| m.0 == "logits").map(|m| &m.1);
        Said {
            classes: logits.and_then(|l| see::classes(model, l)),
            words: logits.and_then(|l| hear::said(model, l)),
        }
    }

    fn text(&self) -> String {
        let classes = self.classes.as_deref().map_or(String::new(), see::classes_text);
        let words = self.words.as_ref().map_or(String::new(), |w| format!("  it says {w:?}\n"));
        classes + &words
    }

    fn json(&self) -> Value {
        json!({ "classes": self.classes.as_deref().map(see::classes_json), "text": self.words })
    }
}

/// One vector for each run, if the model makes them.
pub fn embeddings(all: &[Outputs]) -> Vec<Vec<f32>> {
    let vector = |made: &Outputs| {
        let found = made.iter().find(|(name, _)| name == "sentence_embedding");
        let (_, array) = found?;
        let width = *array.shape.last()?;
        Some(array.as_f32()?.get(..width)?.to_vec())
    };
    all.iter().filter_map(vector).collect()
}

pub fn matrix(vectors: &[Vec<f32>]) -> String {
    let rows: Vec<Vec<String>> = similarities(vectors)
        .iter()
        .enumerate()
        .map(|(i, row)| {
            let cells = row.iter().map(|c| format!("{c:.4}"));
            std::iter::once(format!("  {}", i + 1)).chain(cells).collect()
        })
        .collect();
    let head: Vec<String> = std::iter::once("   ".to_owned())
        .chain((1..=vectors.len()).map(|i| i.to_string()))
        .collect();
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
}

pub fn summary(made: &Outputs) -> String {
    let rows: Vec<Vec<String>> = made
        .iter()
        .map(|(name, a)| {
            let shape: Vec<String> = a.shape.iter().map(ToString::to_string).collect();
            let (low, high, bad) = range(a);
            let first: Vec<String> = numbers(a).take(4).map(|x| format!("{x:.5}")).collect();
            let bad = if bad > 0 { format!("{bad} not finite") } else { String::new() };
            let span = match low <= high {
                true => format!("{low:.4} .. {high:.4}"),
                false => "none finite".into(),
            };
            vec![format!("  {name}"), shape.join("x"), span, first.join(" "), bad]
        })
        .collect();
    table(&["  output", "shape", "range", "first numbers", ""], &rows)
}

fn numbers(a: &Array) -> Box<dyn Iterator<Item = f32> + '_> {
    match &a.data {
        Numbers::F32(x) => Box::new(x.iter().copied()),
        Numbers::I32(x) => Box::new(x.iter().map(|&i| i as f32)),
        Numbers::Bool(x) => Box::new(x.iter().map(|&b| f32::from(u8::from(b)))),
    }
}

/// Smallest and largest finite number, and how many are not finite.
fn range(a: &Array) -> (f32, f32, usize) {
    let finite = numbers(a).filter(|x| x.is_finite());
    let (low, high) =
        finite.fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), x| (l.min(x), h.max(x)));
    (low, high, numbers(a).filter(|x| !x.is_finite()).count())
}

pub fn output_json(name: &str, a: &Array) -> Value {
    let (low, high, bad) = range(a);
    let values: Option<Vec<Value>> = (a.n_elements() <= 4096)
        .then(|| numbers(a).map(|x| crate::compile::finite(x.into())).collect());
    json!({
        "name": name, "shape": a.shape, "min": crate::compile::finite(low.into()),
        "max": crate::compile::finite(high.into()), "not_finite": bad, "values": values,
    })
}

/// What a classifier says: of each output that is a label, the name it stands for.
fn labels(graph: &Graph, made: &Outputs) -> BTreeMap<String, String> {
    let label = |&v: &russet_ir::Value| {
        let Some(Op::Classify(op)) = graph.op(v) else { return None };
        if graph.def(v)?.outputs.first() != Some(&v) {
            return None;
        }
        let name = graph.value(v).name.clone();
        let place = made.iter().find(|m| m.0 == name)?.1.as_i32()?.first().copied()?;
        let classes = graph.constant(op.classes)?;
        let label = match classes.as_strings() {
            Some(names) => names.get(usize::try_from(place).ok()?)?.clone(),
            None => classes.to_i64()?.get(usize::try_from(place).ok()?)?.to_string(),
        };
        Some((name, label))
    };
    graph.outputs().iter().filter_map(label).collect()
}

fn save_states(file: &std::path::Path, graph: &Graph, states: &Inputs) -> Outcome<()> {
    let mut tensors = Vec::new();
    for (name, array) in states {
        let of_name = |v: &&russet_ir::Value| graph.value(**v).name == *name;
        let dtype = match graph.inputs().iter().find(of_name).map(|&v| graph.ty(v)) {
            Some(Type::State(t)) => t.dtype,
            _ => continue,
        };
        let tensor = array.to_tensor(dtype).ok_or_else(|| {
            Failure::new("io", format!("state `{name}` cannot be saved as {dtype}"))
        })?;
        tensors.push((name.clone(), tensor));
    }
    Ok(arrays::write(file, &tensors)?)
}

/// Writes outputs under their names; of several runs, stacked along a new first axis.
fn save(file: &std::path::Path, graph: &Graph, all: &[Outputs]) -> Outcome<()> {
    let mut tensors = Vec::new();
    for (i, &v) in graph.outputs().iter().enumerate() {
        let name = graph.value(v).name.clone();
        // A label is saved as its place among the classes.
        let dtype = match graph.ty(v).tensor().map_or(DType::F32, |t| t.dtype) {
            DType::String | DType::I64 if made_of_integers(all, i) => DType::I32,
            dtype => dtype,
        };
        // Several sentences may have been run at several lengths.
        let same = all.windows(2).all(|w| w[0][i].1.shape == w[1][i].1.shape);
        let pieces: Vec<(String, Array)> = if all.len() == 1 || !same {
            let named =
                |k: usize| if all.len() == 1 { name.clone() } else { format!("{name}_{k}") };
            all.iter().enumerate().map(|(k, made)| (named(k), made[i].1.clone())).collect()
        } else {
            vec![(name.clone(), stacked(all.iter().map(|made| &made[i].1)))]
        };
        for (name, array) in pieces {
            let tensor = array.to_tensor(dtype).ok_or_else(|| {
                Failure::new("io", format!("output `{name}` cannot be saved as {dtype}"))
            })?;
            tensors.push((name, tensor));
        }
    }
    Ok(arrays::write(file, &tensors)?)
}

fn made_of_integers(all: &[Outputs], i: usize) -> bool {
    all.iter().all(|made| matches!(made[i].1.data, Numbers::I32(_)))
}

fn stacked<'a>(mut arrays: impl Iterator<Item = &'a Array>) -> Array {
    let Some(first) = arrays.next() else { return Array::f32(vec![0], vec![]) };
    let mut all = first.clone();
    let mut n = 1;
    for a in arrays {
        n += 1;
        match (&mut all.data, &a.data) {
            (Numbers::F32(x), Numbers::F32(y)) => x.extend(y),
            (Numbers::I32(x), Numbers::I32(y)) => x.extend(y),
            (Numbers::Bool(x), Numbers::Bool(y)) => x.extend(y),
            _ => {}
        }
    }
    all.shape.insert(0, n);
    all
}
