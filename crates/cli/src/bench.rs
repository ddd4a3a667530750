//! `russet bench`: how long a model takes on this machine's CPU.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use russet_exec::{ProfileEntry, Session};
use russet_ir::Opset;
use serde_json::{Value, json};

use crate::arithmetic::ArithmeticName;
use crate::diagnostic::Outcome;
use crate::inputs::Source;
use crate::model::{Model, Shapes};
use crate::progress::Progress;
use crate::run::Threads;
use crate::show::{Out, path, seconds, table};

#[derive(Args, Debug)]
pub struct Arguments {
    /// A package or a Hugging Face folder.
    pub model: PathBuf,
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub shapes: Shapes,
    #[command(flatten)]
    pub threads: Threads,
    /// Arithmetics to time, interleaved.
    #[arg(long, value_name = "ARITHMETIC", value_delimiter = ',', default_value = "f32,ane")]
    pub arithmetic: Vec<ArithmeticName>,
    /// Runs of each, after two that are not counted.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The function, instead of the default one.
    #[arg(long)]
    pub function: Option<String>,
    /// Also say where the time of one more run goes, by kind of op.
    #[arg(long)]
    pub profile: bool,
}

const WARM_UP: usize = 2;

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    args.threads.apply()?;
    let progress = Progress::new(out);
    progress.stage("reading the model");
    let model = Model::load(&args.model, &args.shapes, Opset::Ios18)?;
    let graph = model.function(args.function.as_deref())?;
    let Some(inputs) = args.source.sets(&model, graph)?.into_iter().next() else {
        return Err(crate::diagnostic::Failure::usage("there is nothing to run on"));
    };
    let runs = args.runs as usize;
    let mut sides = Vec::new();
    for &arithmetic in &args.arithmetic {
        let start = Instant::now();
        let session = Session::new(graph, arithmetic.get())?;
        sides.push((arithmetic, session, start.elapsed().as_secs_f64(), Vec::new()));
    }
    for i in 0..runs + WARM_UP {
        progress.stage(&format!("run {} of {}", i + 1, runs + WARM_UP));
        for (_, session, _, times) in &mut sides {
            let start = Instant::now();
            session.run(&inputs).map_err(|e| args.source.blame(0, e.into()))?;
            if i >= WARM_UP {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    progress.done();
    let at = |times: &[f64], share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let mut rows = Vec::new();
    let mut results = Vec::new();
    let mut profiles = String::new();
    for (arithmetic, session, load_s, times) in &mut sides {
        times.sort_by(f64::total_cmp);
        let profile = if args.profile { session.profile(&inputs)?.entries } else { Vec::new() };
        if args.profile {
            let row = |e: &ProfileEntry| {
                vec![format!("  {}", e.op), e.n_steps.to_string(), seconds(e.seconds)]
            };
            let rows: Vec<Vec<String>> = profile.iter().map(row).collect();
            let name = arithmetic.name();
            profiles += &format!("\none run in {name}, by kind of step\n");
            profiles += &table(&["  op", "steps", "time"], &rows);
        }
        let profile: Vec<Value> = profile
            .iter()
            .map(|e| json!({ "op": e.op, "steps": e.n_steps, "seconds": e.seconds }))
            .collect();
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|s| at(times, s));
        let cells = [*load_s, times[0], p50, p90, p99].map(seconds);
        rows.push(std::iter::once(arithmetic.name()).chain(cells).collect());
        results.push(json!({
            "arithmetic": arithmetic.name(), "load_s": load_s, "min_s": times[0], "p50_s": p50,
            "p90_s": p90, "p99_s": p99, "runs": times.len(), "profile": profile,
        }));
    }
    let n_threads = rayon::current_num_threads();
    let shapes: Vec<String> =
        inputs.iter().map(|(name, a)| format!("{name} {:?}", a.shape)).collect();
    let text = format!(
        "{} on this CPU, {n_threads} threads, {}\n{}{profiles}",
        args.model.display(),
        shapes.join(", "),
        table(&["arithmetic", "load", "fastest", "p50", "p90", "p99"], &rows)
    );
    let json = json!({
        "schema": "russet.bench/1", "model": path(&args.model), "engine": "cpu",
        "threads": n_threads, "results": results, "version": env!("CARGO_PKG_VERSION"),
        "inputs": inputs.iter().map(|(n, a)| json!({ "name": n, "shape": a.shape })).collect::<Vec<_>>(),
    });
    out.result(json, &text)
}
