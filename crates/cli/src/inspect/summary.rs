//! What is counted of one function.

use std::collections::{BTreeMap, HashMap};

use russet_ir::{Binding, Graph, Op, Tensor, Type, Value as V};
use serde_json::{Value, json};

use crate::show::{bytes, count, plural, table};

/// Elements from which a constant counts as a weight.
pub const WEIGHT_MIN: u64 = 10;

/// Bytes of weights that might be equal up to which they are compared at once.
const COMPARED_MAX: u64 = 16 << 20;

pub struct Summary<'a> {
    pub graph: &'a Graph,
    /// The extents at which work is counted; empty when all are fixed.
    at: Binding,
    /// Ops by name, most frequent first, constants and compressed weights aside.
    ops: Vec<(String, usize)>,
    /// Multiply-accumulates and other arithmetic by op name, at fixed shapes.
    work: BTreeMap<String, (u64, u64)>,
    n_constants: usize,
    /// By encoding and dtype.
    weights: BTreeMap<(&'static str, String), Weights>,
    duplicates: Duplicates,
    unknown: Vec<String>,
}

/// Weights of one encoding.
#[derive(Default)]
struct Weights {
    n: usize,
    /// As they are multiplied by.
    elements: u64,
    /// As they are stored.
    bytes: u64,
}

/// Weights with the contents of another.
#[derive(Default)]
struct Duplicates {
    n: usize,
    bytes: u64,
    /// Of these, those that share one place in the file.
    n_shared: usize,
    /// Too much to be compared at once: only shared places were looked at.
    partly: bool,
}

/// A weight: a constant, or a compressed one.
pub struct Weight<'a> {
    pub name: &'a str,
    pub value: V,
    /// `plain`, or how it is compressed.
    pub encoding: &'static str,
    /// As it is multiplied by.
    pub shape: Vec<u64>,
    pub dtype: russet_ir::DType,
    /// The dtype of what is stored: of codes, indices or numbers.
    pub stored: russet_ir::DType,
    pub n_bytes: u64,
}

/// Every weight of a function, in the order of its nodes.
pub fn weights(graph: &Graph) -> Vec<Weight<'_>> {
    let mut all = Vec::new();
    for id in graph.all_nodes() {
        let node = graph.node(id);
        let Some(&value) = node.outputs.first() else { continue };
        let Some(ty) = graph.ty(value).tensor() else { continue };
        let Some(shape) = ty.fixed_shape() else { continue };
        let n: u64 = shape.iter().product();
        let name = graph.value(value).name.as_str();
        match &node.op {
            Op::Const(c) => {
                let users = graph.users(value);
                let packed =
                    !users.is_empty() && users.iter().all(|&u| graph.node(u).op.is_constexpr());
                if n >= WEIGHT_MIN && !packed && c.val.as_strings().is_none() {
                    let (stored, n_bytes) = (c.val.dtype, c.val.n_bytes());
                    let encoding = "plain";
                    let dtype = stored;
                    all.push(Weight { name, value, encoding, shape, dtype, stored, n_bytes });
                }
            }
            op if op.is_constexpr() => {
                // Of several that make one weight, the last is it.
                let users = graph.users(value);
                if users.iter().any(|&u| graph.node(u).op.is_constexpr()) {
                    continue;
                }
                let parts = stored(graph, op, 0);
                let n_bytes = parts.iter().map(|t| t.n_bytes()).sum();
                let data = parts.iter().max_by_key(|t| t.n_elements());
                let stored = data.map_or(ty.dtype, |t| t.dtype);
                let encoding = encoding(graph, op, 0);
                let dtype = ty.dtype;
                all.push(Weight { name, value, encoding, shape, dtype, stored, n_bytes });
            }
            _ => {}
        }
    }
    all
}

/// Constants a compressed weight is made of.
fn stored<'g>(graph: &'g Graph, op: &Op, depth: usize) -> Vec<&'g Tensor> {
    let mut parts = Vec::new();
    for v in op.operands() {
        match (graph.constant(v), graph.op(v)) {
            (Some(t), _) => parts.push(t),
            (None, Some(inner)) if inner.is_constexpr() && depth < 8 => {
                parts.extend(stored(graph, inner, depth + 1));
            }
            _ => {}
        }
    }
    parts
}

/// How a weight is compressed, in the field's words.
fn encoding(graph: &Graph, op: &Op, depth: usize) -> &'static str {
    let inner = || {
        let ops = op.operands().into_iter().filter_map(|v| graph.op(v));
        ops.into_iter().find(|op| op.is_constexpr() && depth < 8)
    };
    match op {
        Op::ConstexprAffineDequantize(_) => "affine",
        Op::ConstexprBlockwiseShiftScale(_) => match inner() {
            Some(_) => "palette + blockwise",
            None => "blockwise",
        },
        Op::ConstexprPackedLutToDense(_) => "palette",
        Op::ConstexprLutToDense(_) => match inner() {
            Some(_) => "palette + blockwise",
            None => "palette",
        },
        Op::ConstexprPackedSparseToDense(_) => "sparse",
        Op::ConstexprSparseToDense(_) => match inner() {
            Some(Op::ConstexprLutToSparse(_)) => "sparse + palette",
            Some(_) => "sparse + blockwise",
            None => "sparse",
        },
        Op::ConstexprCast(_) => "cast",
        _ => "compressed",
    }
}

/// The default extents of what a function leaves open, or the smallest ones.
fn default(graph: &Graph) -> Binding {
    match graph.symbols.enumerated.first() {
        Some(first) => first.clone(),
        None => graph.symbols.ranges.iter().map(|(s, r)| (s.clone(), r.0.max(1))).collect(),
    }
}

impl<'a> Summary<'a> {
    pub fn of(graph: &'a Graph) -> Summary<'a> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut work: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let (mut n_constants, mut unknown) = (0, Vec::new());
        // Work is counted at the default extents, or at the smallest there are.
        let at = default(graph);
        let bound = graph.bind(&at).ok().filter(|_| !at.is_empty());
        let counted = bound.as_ref().unwrap_or(graph);
        for id in graph.all_nodes() {
            let node = graph.node(id);
            if node.op.is_const() || node.op.is_constexpr() {
                n_constants += usize::from(node.op.is_const());
                continue;
            }
            *counts.entry(node.op.name()).or_default() += 1;
            let done = counted.with_block_types(&node.blocks, |t| node.op.work(t));
            let other = done.flops.saturating_add(done.exps);
            if done.macs > 0 || other > 0 {
                let sum = work.entry(node.op.name().to_owned()).or_default();
                *sum = (sum.0.saturating_add(done.macs), sum.1.saturating_add(other));
            }
            if node.op.declared().is_none() && !unknown.iter().any(|u| u == node.op.name()) {
                unknown.push(node.op.name().to_owned());
            }
        }
        let mut ops: Vec<(String, usize)> =
            counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        ops.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let all = weights(graph);
        let mut by_kind: BTreeMap<(&'static str, String), Weights> = BTreeMap::new();
        for w in &all {
            let sum = by_kind.entry((w.encoding, w.stored.to_string())).or_default();
            sum.n += 1;
            sum.elements = sum.elements.saturating_add(w.shape.iter().product());
            sum.bytes = sum.bytes.saturating_add(w.n_bytes);
        }
        let duplicates = Duplicates::among(graph);
        Summary { graph, at, ops, work, n_constants, weights: by_kind, duplicates, unknown }
    }

    fn features(&self, which: &[V]) -> Vec<(String, &'a Type)> {
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

    pub fn text(&self) -> String {
        let mut text = format!("function {}\n", self.graph.name);
        for (kind, which) in [("input", self.graph.inputs()), ("output", self.graph.outputs())] {
            for (name, ty) in self.features(which) {
                let kind = if matches!(ty, Type::State(_)) { "state" } else { kind };
                text += &format!("  {kind:<7} {name}: {ty}\n");
            }
        }
        if !self.shapes().is_empty() {
            text += &format!("  shapes  {}\n", self.shapes().join("; "));
        }
        let elements = self.weights.values().fold(0u64, |n, w| n.saturating_add(w.elements));
        text += &format!("  {} parameters\n", count(elements));
        if !self.weights.is_empty() {
            let row = |((encoding, dtype), w): (&(&str, String), &Weights)| {
                let bits = 8.0 * w.bytes as f64 / w.elements.max(1) as f64;
                vec![
                    format!("    {encoding} {dtype}"),
                    w.n.to_string(),
                    count(w.elements),
                    bytes(w.bytes),
                    format!("{bits:.2}"),
                ]
            };
            let rows: Vec<Vec<String>> = self.weights.iter().map(row).collect();
            text += &table(&["    weights", "count", "elements", "stored", "bits each"], &rows);
        }
        text += &self.duplicates.text();
        text += &format!("  {}, {} constants\n", plural(self.n_ops(), "op"), self.n_constants);
        let totals = self
            .work
            .values()
            .fold((0u64, 0u64), |t, w| (t.0.saturating_add(w.0), t.1.saturating_add(w.1)));
        let share = |part: u64, total: u64| match (part, total) {
            (0, _) | (_, 0) => String::new(),
            _ => format!("{:.1} %", 100.0 * part as f64 / total as f64),
        };
        let row = |(name, n): &(String, usize)| {
            let (macs, other) = self.work.get(name).copied().unwrap_or_default();
            let (macs, other) = (share(macs, totals.0), share(other, totals.1));
            vec![format!("    {name}"), n.to_string(), macs, other]
        };
        let rows: Vec<Vec<String>> = self.ops.iter().map(row).collect();
        text += &table(&["    op", "count", "of the multiply-adds", "of other arithmetic"], &rows);
        if totals.0 > 0 {
            let at: Vec<String> = self.at.iter().map(|(s, n)| format!("{s} = {n}")).collect();
            let at = if at.is_empty() { at.join("") } else { format!(" at {}", at.join(", ")) };
            text += &format!("  {} multiply-adds{at}\n", count(totals.0));
        }
        if !self.unknown.is_empty() {
            text += &format!("  kept whole, not known: {}\n", self.unknown.join(", "));
        }
        text
    }

    fn n_ops(&self) -> usize {
        self.ops.iter().map(|o| o.1).sum()
    }

    pub fn json(&self) -> Value {
        let features = |which: &[V], states: bool| -> Vec<Value> {
            let all = self.features(which).into_iter();
            all.filter(|(_, ty)| matches!(ty, Type::State(_)) == states)
                .map(|(name, ty)| json!({ "name": name, "type": ty.to_string() }))
                .collect()
        };
        let op = |(op, n): &(String, usize)| {
            let (macs, other) = self.work.get(op).copied().unwrap_or_default();
            json!({ "op": op, "count": n, "macs": macs, "other_arithmetic": other })
        };
        let weight = |((encoding, dtype), w): (&(&str, String), &Weights)| {
            json!({
                "encoding": encoding, "dtype": dtype, "count": w.n, "elements": w.elements,
                "bytes": w.bytes,
            })
        };
        json!({
            "name": self.graph.name,
            "inputs": features(self.graph.inputs(), false),
            "states": features(self.graph.inputs(), true),
            "outputs": features(self.graph.outputs(), false),
            "shapes": self.shapes(),
            "parameters": self.weights.values().map(|w| w.elements).sum::<u64>(),
            "n_ops": self.n_ops(),
            "n_constants": self.n_constants,
            "ops": self.ops.iter().map(op).collect::<Vec<_>>(),
            "weights": self.weights.iter().map(weight).collect::<Vec<_>>(),
            "duplicate_weights": {
                "count": self.duplicates.n, "bytes": self.duplicates.bytes,
                "shared_places": self.duplicates.n_shared, "complete": !self.duplicates.partly,
            },
            "counted_at": self.at.iter().map(|(s, n)| (s.to_string(), *n)).collect::<BTreeMap<_, _>>(),
            "unknown_ops": self.unknown,
        })
    }
}

impl Duplicates {
    /// Weights of a function that equal an earlier one.
    fn among(graph: &Graph) -> Duplicates {
        let mut by_type: BTreeMap<String, Vec<&Tensor>> = BTreeMap::new();
        for id in graph.all_nodes() {
            if let Op::Const(c) = &graph.node(id).op
                && c.val.n_elements() >= WEIGHT_MIN
                && c.val.as_strings().is_none()
                && !c.val.is_absent()
            {
                by_type.entry(c.val.ty().to_string()).or_default().push(&c.val);
            }
        }
        let groups: Vec<Vec<&Tensor>> = by_type.into_values().filter(|g| g.len() > 1).collect();
        let maybe: u64 = groups.iter().flatten().map(|t| t.n_bytes()).sum();
        let mut found = Duplicates { partly: maybe > COMPARED_MAX, ..Duplicates::default() };
        for group in groups {
            // One tensor of each content seen so far, by a part of it.
            let mut seen: HashMap<Vec<u8>, Vec<&Tensor>> = HashMap::new();
            for t in group {
                let key = if found.partly { Vec::new() } else { start(t) };
                let before = seen.entry(key).or_default();
                let shared = before.iter().any(|b| b.is_same(t));
                if shared || (!found.partly && before.contains(&t)) {
                    found.n += 1;
                    found.n_shared += usize::from(shared);
                    found.bytes += t.n_bytes();
                } else {
                    before.push(t);
                }
            }
        }
        found
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.n > 0 {
            let n = plural(self.n, "weight");
            text += &format!("  {n} repeat another ({}", bytes(self.bytes));
            text += &match self.n_shared {
                0 => ", each stored again)\n".to_owned(),
                n if n == self.n => ", none stored twice)\n".into(),
                n => format!(", {n} of them not stored twice)\n"),
            };
        }
        if self.partly {
            text += "  weights of one type are too many to be compared here, --weights does\n";
        }
        text
    }
}

/// The first and some later bytes of a tensor: equal ones begin alike.
fn start(t: &Tensor) -> Vec<u8> {
    let bytes = t.to_bytes();
    let part = |at: usize| bytes.get(at..(at + 64).min(bytes.len())).unwrap_or_default();
    [part(0), part(bytes.len() / 2)].concat()
}
