//! `russet simulate`: where a model runs on a chip and how long it takes, predicted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use russet_ir::{Graph, Opset};
use russet_machine::{Engine, Estimate, Placement, Profile, estimate, place};
use russet_passes::{Options, pipeline};
use serde_json::{Value, json};

use crate::diagnostic::Outcome;
use crate::model::{Kind, Model, Shapes, bind, bindings, length};
use crate::progress::Progress;
use crate::show::{Out, bytes, count, path, plural, seconds, table};

#[derive(Args, Debug)]
pub struct Arguments {
    /// A package, or a Hugging Face folder (compiled first, in memory).
    pub model: PathBuf,
    /// The chip.
    #[arg(long, default_value = "m4")]
    pub chip: String,
    #[command(flatten)]
    pub shapes: Shapes,
    /// The function, instead of the default one.
    #[arg(long)]
    pub function: Option<String>,
}

/// A prediction for one length on one chip.
pub struct Prediction {
    chip: String,
    length: Option<u64>,
    placement: Placement,
    estimate: Estimate,
    /// Ops that are not on the Neural Engine: rule and its sentence, with how many.
    elsewhere: Vec<(String, String, Vec<String>)>,
    notches: Vec<(String, u64, f64)>,
}

/// Predicts a function whose shapes are fixed.
pub fn predict(graph: &Graph, chip: &Profile) -> Outcome<Prediction> {
    let placement = place(graph, chip);
    let estimate = estimate(graph, &placement, chip);
    let mut by_rule: BTreeMap<(usize, String), (String, Vec<String>)> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for p in placement.ops.iter().filter(|p| p.engine != Engine::Ane) {
        let rule = p.rule.unwrap_or("none");
        if !order.contains(&rule) {
            order.push(rule);
        }
        let at = order.iter().position(|r| *r == rule).unwrap_or(0);
        let node = graph.node(p.node);
        let name = match node.outputs.first() {
            Some(&v) => format!("{} %{}", node.op.name(), graph.value(v).name),
            None => node.op.name().to_owned(),
        };
        let entry = by_rule.entry((at, rule.to_owned())).or_insert((p.why.to_owned(), vec![]));
        entry.1.push(name);
    }
    let elsewhere = by_rule.into_iter().map(|((_, rule), (why, ops))| (rule, why, ops)).collect();
    let notches = estimate.notches.iter().filter_map(|n| {
        let value = *graph.node(n.node).outputs.first()?;
        Some((graph.value(value).name.clone(), n.bytes_per_core, n.lost_s))
    });
    let notches = notches.collect();
    let (chip, length) = (chip.name.clone(), length(graph));
    Ok(Prediction { chip, length, placement, estimate, elsewhere, notches })
}

impl Prediction {
    /// The honest summary: what it is for, how long, how much of it on the Neural Engine.
    pub fn line(&self) -> String {
        let e = &self.estimate;
        let at = self.length.map_or(String::new(), |n| format!(" at {n}"));
        let share = match e.macs {
            0 => 0.0,
            macs => 100.0 * e.macs_on_ane as f64 / macs as f64,
        };
        format!(
            "{}{at}: about {} a call, {share:.0} % of {} multiply-adds on the Neural Engine, {} (a prediction)",
            self.chip,
            seconds(e.latency_s()),
            count(e.macs),
            plural(self.placement.n_handoffs(), "hand-off"),
        )
    }

    fn text(&self) -> String {
        let e = &self.estimate;
        let total = e.latency_s();
        let row = |name: &str, s: f64, note: String| {
            vec![name.to_owned(), seconds(s), format!("{:.0} %", 100.0 * s / total), note]
        };
        let rows = [
            row("dispatch", e.dispatch_s, "calls into the Neural Engine".into()),
            row(
                "weights",
                e.weights_s,
                format!("ops bound by {} of weights", bytes(e.weight_bytes)),
            ),
            row("compute", e.compute_s, format!("ops bound by {} multiply-adds", count(e.macs))),
            row("vector", e.vector_s, "norms, softmax, activations, sums".into()),
            row("cpu", e.cpu_s, format!("{} ops on the CPU", self.placement.count(Engine::Cpu))),
            row("hand-offs", e.handoff_s, format!("{} of them", self.placement.n_handoffs())),
        ];
        let mut text = format!("{}\n\n", self.line());
        text += &table(&["part", "time", "share", "what"], &rows);
        text += &format!(
            "\n{} ops on the Neural Engine, {} elsewhere (constants not counted)\n",
            self.placement.count(Engine::Ane),
            self.placement.count(Engine::Cpu)
        );
        for (rule, why, ops) in &self.elsewhere {
            let shown: Vec<&str> = ops.iter().take(4).map(String::as_str).collect();
            let more = ops.len().saturating_sub(shown.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text += &format!("  {rule}: {why}\n    {}{more}\n", shown.join(", "));
        }
        for (name, per_core, lost) in &self.notches {
            text += &format!(
                "warning[dma-notch]: %{name} streams {} per core, close to a multiple of 1 MiB: {} lost\n   = help: split its weight along the contracted axis\n",
                bytes(*per_core),
                seconds(*lost)
            );
        }
        text
    }

    pub fn json(&self) -> Value {
        let e = &self.estimate;
        json!({
            "chip": self.chip,
            "length": self.length,
            "is_prediction": true,
            "latency_s": e.latency_s(),
            "parts_s": {
                "dispatch": e.dispatch_s, "weights": e.weights_s, "compute": e.compute_s,
                "vector": e.vector_s, "cpu": e.cpu_s, "handoff": e.handoff_s,
            },
            "macs": e.macs,
            "macs_on_ane": e.macs_on_ane,
            "weight_bytes": e.weight_bytes,
            "n_ops_ane": self.placement.count(Engine::Ane),
            "n_ops_cpu": self.placement.count(Engine::Cpu),
            "n_handoffs": self.placement.n_handoffs(),
            "elsewhere": self.elsewhere.iter().map(|(rule, why, ops)| json!({
                "rule": rule, "why": why, "ops": ops,
            })).collect::<Vec<_>>(),
            "notches": self.notches.iter().map(|(value, per_core, lost)| json!({
                "value": value, "bytes_per_core": per_core, "lost_s": lost,
            })).collect::<Vec<_>>(),
        })
    }
}

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    let chip = Profile::named(&args.chip)?;
    let progress = Progress::new(out);
    progress.stage("reading the model");
    let mut model = Model::load(&args.model, &args.shapes, Opset::Ios18)?;
    let mut note = String::new();
    if matches!(model.kind, Kind::HuggingFace { .. } | Kind::Onnx { .. }) {
        progress.stage("rewriting for the Neural Engine");
        let passes = pipeline(Options { opset: Opset::Ios18 });
        russet_passes::compile(&mut model.program, &passes, &Default::default(), &mut |_| {})?;
        note = "compiled in memory with the default passes\n".into();
    }
    let graph = model.function(args.function.as_deref())?;
    let all: Vec<Prediction> =
        bindings(graph).iter().map(|b| predict(&bind(graph, b)?, &chip)).collect::<Outcome<_>>()?;
    progress.done();
    let text: Vec<String> = all.iter().map(Prediction::text).collect();
    let json = json!({
        "schema": "russet.simulate/1",
        "model": path(&args.model),
        "chip": chip.chip,
        "predictions": all.iter().map(Prediction::json).collect::<Vec<_>>(),
    });
    out.result(json, &format!("{note}{}", text.join("\n")))
}
