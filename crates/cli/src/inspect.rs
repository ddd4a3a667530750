//! `russet inspect`: what is in a model.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use clap::Args;
use russet_ir::{Graph, Opset, Type, text, verify_program};
use serde_json::{Value, json};

use crate::diagnostic::Outcome;
use crate::model::{Kind, Model, Shapes};
use crate::progress::Progress;
use crate::show::{Out, bytes, count, path, table};

#[derive(Args, Debug)]
pub struct Arguments {
    /// A package or a Hugging Face folder.
    pub model: PathBuf,
    /// The whole program as text, weights by name.
    #[arg(long)]
    pub text: bool,
    #[command(flatten)]
    pub shapes: Shapes,
}

/// What is counted of one function.
struct Summary<'a> {
    graph: &'a Graph,
    /// Ops by name, most frequent first, constants aside.
    ops: Vec<(String, usize)>,
    /// Multiply-accumulates by op name at fixed shapes.
    macs: BTreeMap<String, u64>,
    n_constants: usize,
    /// Constants of at least ten elements: number, elements, bytes, by dtype.
    weights: BTreeMap<&'static str, (usize, u64, u64)>,
    unknown: Vec<String>,
}

impl<'a> Summary<'a> {
    fn of(graph: &'a Graph) -> Summary<'a> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut summary = Summary {
            graph,
            ops: Vec::new(),
            macs: BTreeMap::new(),
            n_constants: 0,
            weights: BTreeMap::new(),
            unknown: Vec::new(),
        };
        for id in graph.all_nodes() {
            let node = graph.node(id);
            if let Some(t) = node.outputs.first().and_then(|&v| graph.constant(v))
                && node.op.is_const()
            {
                summary.n_constants += 1;
                if t.n_elements() >= 10 {
                    let w = summary.weights.entry(t.dtype.name()).or_default();
                    *w = (w.0 + 1, w.1 + t.n_elements(), w.2 + t.n_bytes());
                }
                continue;
            }
            *counts.entry(node.op.name()).or_default() += 1;
            let macs = graph.with_block_types(&node.blocks, |t| node.op.work(t)).macs;
            if macs > 0 {
                let sum = summary.macs.entry(node.op.name().to_owned()).or_default();
                *sum = sum.saturating_add(macs);
            }
            if node.op.declared().is_none() && !summary.unknown.iter().any(|u| u == node.op.name())
            {
                summary.unknown.push(node.op.name().to_owned());
            }
        }
        let mut ops: Vec<(String, usize)> =
            counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        ops.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        summary.ops = ops;
        summary
    }

    fn features(&self, which: &[russet_ir::Value]) -> Vec<(String, &'a Type)> {
        which.iter().map(|&v| (self.graph.value(v).name.clone(), self.graph.ty(v))).collect()
    }

    fn shapes(&self) -> Vec<String> {
        let rows = self.graph.symbols.enumerated.iter().map(|b| {
            let pairs: Vec<String> = b.iter().map(|(s, n)| format!("{s} = {n}")).collect();
            pairs.join(", ")
        });
        let ranges = self.graph.symbols.ranges.iter().map(|(s, (low, high))| match high {
            Some(high) => format!("{s} from {low} to {high}"),
            None => format!("{s} from {low} on"),
        });
        rows.chain(ranges).collect()
    }

    fn text(&self) -> String {
        let mut text = format!("function {}\n", self.graph.name);
        for (kind, which) in [("input", self.graph.inputs()), ("output", self.graph.outputs())] {
            for (name, ty) in self.features(which) {
                text += &format!("  {kind:<7} {name}: {ty}\n");
            }
        }
        if !self.shapes().is_empty() {
            text += &format!("  shapes  {}\n", self.shapes().join("; "));
        }
        for (dtype, (n, elements, size)) in &self.weights {
            text += &format!(
                "  weights {n} of {dtype}: {} elements, {}\n",
                count(*elements),
                bytes(*size)
            );
        }
        let total = self.macs.values().fold(0u64, |a, &b| a.saturating_add(b));
        text += &format!("  {} ops, {} constants\n", self.n_ops(), self.n_constants);
        let rows: Vec<Vec<String>> = self
            .ops
            .iter()
            .map(|(name, n)| {
                let macs = self.macs.get(name).copied().unwrap_or(0);
                let share = match (macs, total) {
                    (0, _) | (_, 0) => String::new(),
                    _ => format!("{:.1} %", 100.0 * macs as f64 / total as f64),
                };
                vec![format!("    {name}"), n.to_string(), share]
            })
            .collect();
        text += &table(&["    op", "count", "of the multiply-adds"], &rows);
        if !self.unknown.is_empty() {
            text += &format!("  kept whole, not known: {}\n", self.unknown.join(", "));
        }
        text
    }

    fn n_ops(&self) -> usize {
        self.ops.iter().map(|o| o.1).sum()
    }

    fn json(&self) -> Value {
        let features = |which: &[russet_ir::Value]| -> Vec<Value> {
            let all = self.features(which).into_iter();
            all.map(|(name, ty)| json!({ "name": name, "type": ty.to_string() })).collect()
        };
        json!({
            "name": self.graph.name,
            "inputs": features(self.graph.inputs()),
            "outputs": features(self.graph.outputs()),
            "shapes": self.shapes(),
            "n_ops": self.n_ops(),
            "n_constants": self.n_constants,
            "ops": self.ops.iter().map(|(op, n)| json!({ "op": op, "count": n })).collect::<Vec<_>>(),
            "macs": self.macs,
            "weights": self.weights.iter().map(|(dtype, (n, elements, size))| json!({
                "dtype": dtype, "count": n, "elements": elements, "bytes": size,
            })).collect::<Vec<_>>(),
            "unknown_ops": self.unknown,
        })
    }
}

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    let progress = Progress::new(out);
    progress.stage("reading the model");
    let model = Model::load(&args.model, &args.shapes, Opset::Ios18)?;
    progress.done();
    if args.text && !out.json {
        return out.raw(text::print(&model.program, text::Weights::Named).as_bytes());
    }
    let functions: Vec<Summary<'_>> = model.program.functions.iter().map(Summary::of).collect();
    let findings = verify_program(&model.program);
    let (kind, mut head) = match &model.kind {
        Kind::HuggingFace { family, n_parameters, n_bytes } => (
            json!({ "kind": "huggingface", "family": family, "parameters": n_parameters, "bytes": n_bytes }),
            format!(
                "{}: Hugging Face folder, {family}, {} parameters, {}\n",
                args.model.display(),
                count(*n_parameters),
                bytes(*n_bytes)
            ),
        ),
        Kind::Package(p) => (
            json!({
                "kind": "mlpackage", "spec_version": p.spec_version,
                "model_bytes": p.model_bytes, "weight_bytes": p.weight_bytes,
                "n_weights": p.n_weights,
            }),
            format!(
                "{}: ML Program, specification {} (opset {}; {}), {} in {} weights\n",
                args.model.display(),
                p.spec_version,
                p.program.opset,
                p.program.opset.systems(),
                bytes(p.weight_bytes),
                p.n_weights
            ),
        ),
    };
    for (key, value) in &model.program.metadata {
        head += &format!("  {key}: {value}\n");
    }
    let mut body: Vec<String> = functions.iter().map(Summary::text).collect();
    body.extend(findings.iter().map(|f| format!("warning{f}\n")));
    let json = json!({
        "schema": "russet.inspect/1",
        "model": path(&args.model),
        "source": kind,
        "opset": model.program.opset.name(),
        "metadata": model.program.metadata,
        "functions": functions.iter().map(Summary::json).collect::<Vec<_>>(),
        "findings": findings.iter().map(|f| json!({
            "code": f.code, "message": f.message, "place": f.place,
        })).collect::<Vec<_>>(),
        "text": args.text.then(|| text::print(&model.program, text::Weights::Named)),
    });
    out.result(json, &format!("{head}{}", body.join("")))
}
