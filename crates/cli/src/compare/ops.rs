//! Op by op: what each op adds to the error, and what it inherits.

use std::collections::HashMap;

use russet_exec::{Arithmetic, Array, evaluate_node};
use russet_ir::{DType, Graph, NodeId, Value as IrValue};
use serde_json::{Value, json};

use super::Values;
use super::apart::Apart;
use crate::compile::finite;
use crate::diagnostic::Outcome;
use crate::show::table;

/// One op on both sides, over all runs.
pub struct Row {
    pub value: String,
    pub op: String,
    pub source: String,
    /// Of the results of the two sides.
    pub inherited: Apart,
    /// Of this op alone, on the reference's operands; `None` between two models.
    pub own: Option<Apart>,
    /// Its error over the largest of its operands'.
    pub growth: Option<f64>,
    node: NodeId,
    output: usize,
}

impl Row {
    pub fn own_error(&self) -> Option<f64> {
        self.own.as_ref().map(Apart::relative_l2)
    }
}

/// The ops of the reference, in its order.
pub struct Ops {
    rows: Vec<Row>,
    places: HashMap<IrValue, usize>,
}

impl Ops {
    /// The ops whose results have a counterpart, by name, on the other side.
    pub fn new(left: &Graph, has_counterpart: impl Fn(&str) -> bool) -> Ops {
        let mut ops = Ops { rows: Vec::new(), places: HashMap::new() };
        for (id, node) in left.nodes().filter(|(_, n)| !n.op.is_const() && n.blocks.is_empty()) {
            for (output, &v) in node.outputs.iter().enumerate() {
                let name = &left.value(v).name;
                if !has_counterpart(name) {
                    continue;
                }
                ops.places.insert(v, ops.rows.len());
                ops.rows.push(Row {
                    value: name.clone(),
                    op: node.op.name().to_owned(),
                    source: node.origin.source.as_deref().unwrap_or("").to_owned(),
                    inherited: Apart::default(),
                    own: None,
                    growth: None,
                    node: id,
                    output,
                });
            }
        }
        ops
    }

    /// The distance of one more result of the other side.
    pub fn add(&mut self, v: IrValue, x: &Array, y: &Array) {
        if let Some(&i) = self.places.get(&v) {
            self.rows[i].inherited.add(x, y);
        }
    }

    /// What every op alone adds: both arithmetics on the same operands, those of the reference as
    /// fp16 holds them. What only moves numbers adds nothing.
    pub fn add_own(
        &mut self,
        graph: &Graph,
        values: &Values,
        arithmetic: Arithmetic,
    ) -> Outcome<()> {
        let operand = |v: IrValue| {
            let array = values.get(&v)?;
            let rounded = array.to_tensor(DType::F16).as_ref().and_then(Array::from_tensor);
            Some(rounded.unwrap_or_else(|| array.clone()))
        };
        let mut rows = self.rows.iter_mut().peekable();
        while let Some(first) = rows.next() {
            let exact = evaluate_node(graph, first.node, Arithmetic::F32, &operand)?;
            let made = evaluate_node(graph, first.node, arithmetic, &operand)?;
            let node = first.node;
            let add = |row: &mut Row| {
                if let Some((x, y)) = exact.get(row.output).zip(made.get(row.output)) {
                    row.own.get_or_insert_default().add(x, y);
                }
            };
            add(first);
            while let Some(next) = rows.next_if(|row| row.node == node) {
                add(next);
            }
        }
        Ok(())
    }

    /// The rows that were compared, with what each does to the error of its operands.
    pub fn finish(mut self, graph: &Graph) -> Vec<Row> {
        let errors: HashMap<IrValue, f64> =
            self.places.iter().map(|(&v, &i)| (v, self.rows[i].inherited.relative_l2())).collect();
        for row in &mut self.rows {
            let operands = graph.node(row.node).op.operands();
            let before = operands.iter().filter_map(|v| errors.get(v)).copied();
            let before = before.fold(0.0, f64::max);
            let after = row.inherited.relative_l2();
            row.growth = (before > 0.0).then_some(after / before).filter(|g| g.is_finite());
        }
        self.rows.retain(|r| r.inherited.n > 0);
        self.rows
    }
}

pub fn first_broken(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|r| r.inherited.is_broken())
}

pub fn json(rows: &[Row]) -> Value {
    let row = |r: &Row| {
        let mut row = r.inherited.json();
        row["value"] = json!(r.value);
        row["op"] = json!(r.op);
        row["source"] = json!(r.source);
        row["own_relative_l2"] = json!(r.own_error().map(finite));
        row["growth"] = json!(r.growth.map(finite));
        row
    };
    rows.iter().map(row).collect()
}

pub fn text(rows: &[Row], top: usize, one_model: bool) -> String {
    let key = |r: &Row| r.own_error().unwrap_or(r.inherited.relative_l2());
    let mut worst: Vec<&Row> = rows.iter().collect();
    worst.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let shown: Vec<Vec<String>> = worst.iter().take(top).map(|r| cells(r)).collect();
    let order = if one_model { "what it adds itself" } else { "its distance" };
    let mut text = format!("\n{} ops compared; the worst by {order}:\n", rows.len());
    let head =
        ["value", "op", "own", "inherited", "max", "cosine", "dB", "inf, nan", "largest", "source"];
    text += &table(&head, &shown);
    text += &by_kind(rows);
    text += &growing(rows);
    match first_broken(rows) {
        Some(r) => {
            text + &format!(
                "\nfirst op that breaks: {} %{} (cosine {:.4}, {} numbers no longer finite)\n",
                r.op,
                r.value,
                r.inherited.cosine(),
                r.inherited.n_broken
            )
        }
        None => text + "\nno op breaks: every cosine is at least 0.99 and every number finite\n",
    }
}

fn cells(r: &Row) -> Vec<String> {
    let lost = match (r.inherited.share_infinite(), r.inherited.share_nan()) {
        (0.0, 0.0) => "-".to_owned(),
        (infinite, nan) => format!("{:.1} %, {:.1} %", 100.0 * infinite, 100.0 * nan),
    };
    vec![
        format!("%{}", r.value),
        r.op.clone(),
        r.own_error().map_or(String::new(), |o| format!("{o:.2e}")),
        format!("{:.2e}", r.inherited.relative_l2()),
        format!("{:.2e}", r.inherited.max),
        format!("{:.5}", r.inherited.cosine()),
        format!("{:.1}", r.inherited.snr_db()),
        lost,
        super::apart::shown(r.inherited.largest),
        r.source.clone(),
    ]
}

/// Where the error comes from, by kind of op: the root of the sum of squares of what each adds.
fn by_kind(rows: &[Row]) -> String {
    let mut kinds: Vec<(&str, f64, usize)> = Vec::new();
    for (op, own) in rows.iter().filter_map(|r| Some((r.op.as_str(), r.own_error()?))) {
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

/// Operands' errors below this are noise, and so is what becomes of them.
const NOISE: f64 = 1e-5;

/// The ops that make most of the error they are given.
fn growing(rows: &[Row]) -> String {
    let growth = |r: &Row| r.growth.filter(|g| *g > 1.0 && r.inherited.relative_l2() / g > NOISE);
    let mut most: Vec<(&Row, f64)> = rows.iter().filter_map(|r| Some((r, growth(r)?))).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    if most.is_empty() {
        return String::new();
    }
    let cells: Vec<Vec<String>> = most
        .iter()
        .take(5)
        .map(|(r, g)| {
            vec![
                format!("%{}", r.value),
                r.op.clone(),
                format!("{g:.1}"),
                format!("{:.2e}", r.inherited.relative_l2()),
            ]
        })
        .collect();
    format!("\nwhere it grows:\n{}", table(&["value", "op", "times", "to"], &cells))
}
