//! How near every op comes to the limits of the engine, before it passes them.

use std::collections::HashMap;

use russet_exec::Array;
use russet_exec::ane::{Ane, Rule};
use russet_ir::{Graph, Op, Value as IrValue};
use serde_json::{Value, json};

use super::apart::numbers;
use crate::compile::finite;
use crate::show::table;

/// The largest finite fp16.
const FP16_MAX: f64 = 65_504.0;
/// Where products become infinite.
const PRODUCT_LIMIT: f64 = 32_768.0;
/// The largest that passes a slice with an offset, where slices have a limit.
const SLICE_LIMIT: f64 = 4_094.0;
/// The smallest fp16 that is not subnormal.
const SMALLEST_NORMAL: f64 = 6.103_515_625e-5;

/// One op's result over all inputs.
#[derive(Debug)]
pub struct Range {
    pub value: String,
    pub op: String,
    pub source: String,
    pub largest: f64,
    /// The limit that is passed first, and its name.
    pub limit: f64,
    pub limit_name: &'static str,
    /// The share of numbers that are not zero and that fp16 holds with fewer bits, or not at all.
    pub subnormal: f64,
}

impl Range {
    /// How many times larger the numbers might be.
    pub fn margin(&self) -> f64 {
        self.limit / self.largest
    }
}

/// Margins below which an op is worth a look.
const NEAR: f64 = 4.0;

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    largest: f64,
    n: u64,
    n_subnormal: u64,
}

/// What was seen of every value.
#[derive(Default)]
pub struct Ranges(HashMap<IrValue, Seen>);

impl Ranges {
    /// Adds the value of one run.
    pub fn add(&mut self, v: IrValue, array: &Array) {
        if array.as_f32().is_none() {
            return;
        }
        let seen = self.0.entry(v).or_default();
        for x in numbers(array).map(f64::abs) {
            // NaN counts as beyond everything.
            seen.largest = if x.is_nan() { f64::INFINITY } else { seen.largest.max(x) };
            seen.n += 1;
            seen.n_subnormal += u64::from(x > 0.0 && x < SMALLEST_NORMAL);
        }
    }

    /// Every op's range against the limits of an engine, the least margin first.
    pub fn rows(&self, graph: &Graph, ane: Ane) -> Vec<Range> {
        let mut rows = Vec::new();
        for (_, node) in graph.nodes().filter(|(_, n)| !n.op.is_const()) {
            for &v in &node.outputs {
                let Some(seen) = self.0.get(&v) else { continue };
                let (limit, limit_name) = limit(&node.op, ane);
                rows.push(Range {
                    value: graph.value(v).name.clone(),
                    op: node.op.name().to_owned(),
                    source: node.origin.source.as_deref().unwrap_or("").to_owned(),
                    largest: seen.largest,
                    limit,
                    limit_name,
                    subnormal: seen.n_subnormal as f64 / seen.n.max(1) as f64,
                });
            }
        }
        rows.sort_by(|a, b| a.margin().total_cmp(&b.margin()));
        rows
    }
}

/// The limit an op's result meets first.
fn limit(op: &Op, ane: Ane) -> (f64, &'static str) {
    let is_product = matches!(
        op,
        Op::Linear(_)
            | Op::Matmul(_)
            | Op::Conv(_)
            | Op::ConvTranspose(_)
            | Op::Einsum(_)
            | Op::ScaledDotProductAttention(_)
    );
    match op {
        _ if is_product && ane.rules.has(Rule::ProductLimit) => (PRODUCT_LIMIT, "product"),
        Op::SliceByIndex(_) | Op::SliceBySize(_) if ane.rules.has(Rule::OffsetSlice) => {
            (SLICE_LIMIT, "offset slice")
        }
        _ => (FP16_MAX, "fp16"),
    }
}

pub fn text(rows: &[Range], top: usize) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .take(top)
        .map(|r| {
            let margin = match r.margin() {
                m if m <= 1.0 => format!("{m:.3} passed"),
                m if m < 1e6 => format!("{m:.2}"),
                m => format!("{m:.1e}"),
            };
            vec![
                format!("%{}", r.value),
                r.op.clone(),
                super::apart::shown(r.largest),
                format!("{} {}", r.limit, r.limit_name),
                margin,
                format!("{:.1} %", 100.0 * r.subnormal),
                r.source.clone(),
            ]
        })
        .collect();
    let passed = rows.iter().filter(|r| r.margin() <= 1.0).count();
    let near = rows.iter().filter(|r| r.margin() > 1.0 && r.margin() < NEAR).count();
    let head = ["value", "op", "largest", "limit", "margin", "subnormal", "source"];
    format!(
        "\n{} results against the engine's limits: {passed} beyond, {near} within a factor of {NEAR}\n{}",
        rows.len(),
        table(&head, &cells)
    )
}

pub fn json(rows: &[Range]) -> Value {
    let row = |r: &Range| {
        json!({
            "value": r.value, "op": r.op, "source": r.source, "largest": finite(r.largest),
            "limit": r.limit, "limit_name": r.limit_name, "margin": finite(r.margin()),
            "subnormal": r.subnormal,
        })
    };
    rows.iter().map(row).collect()
}
