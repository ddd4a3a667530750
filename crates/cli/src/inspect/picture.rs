//! A function as a picture: layers of boxes from inputs to outputs, values as lines between them.
//!
//! Boxes are ops, constants aside. A box lies one layer below the lowest it reads; within a layer
//! boxes are ordered by the middle of what they read, a few times up and down, which keeps lines
//! short. That is enough for networks, which are long and narrow.

use std::collections::HashMap;
use std::fmt::Write;

use russet_ir::{Graph, Op, Value};

/// One box.
struct Box {
    title: String,
    detail: String,
    color: &'static str,
    /// Boxes it reads, and the type of what it reads.
    reads: Vec<(usize, String)>,
    layer: usize,
}

/// Boxes of the function's own block; blocks within ops are part of their op.
fn boxes(g: &Graph) -> Vec<Box> {
    let mut all: Vec<Box> = Vec::new();
    let mut made_by: HashMap<Value, usize> = HashMap::new();
    for &v in g.inputs() {
        made_by.insert(v, all.len());
        let (title, detail) = (g.value(v).name.clone(), g.ty(v).to_string());
        all.push(Box { title, detail, color: "#dbeafe", reads: Vec::new(), layer: 0 });
    }
    for (_, node) in g.nodes() {
        if node.op.is_const() || node.op.is_constexpr() {
            continue;
        }
        let mut values = node.op.operands();
        for &block in &node.blocks {
            inner_reads(g, block, &mut values);
        }
        let mut reads: Vec<(usize, String)> = Vec::new();
        for v in values {
            if let Some(&from) = made_by.get(&v)
                && !reads.iter().any(|r| r.0 == from)
            {
                reads.push((from, g.ty(v).to_string()));
            }
        }
        let layer = reads.iter().map(|r| all[r.0].layer + 1).max().unwrap_or(0);
        for &v in &node.outputs {
            made_by.insert(v, all.len());
        }
        let detail = node.outputs.first().map_or_else(String::new, |&v| g.ty(v).to_string());
        let title = match node.blocks.len() {
            0 => node.op.name().to_owned(),
            n => format!("{} ({n} blocks)", node.op.name()),
        };
        all.push(Box { title, detail, color: color(&node.op), reads, layer });
    }
    for &v in g.outputs() {
        let Some(&from) = made_by.get(&v) else { continue };
        let (title, detail) = (g.value(v).name.clone(), g.ty(v).to_string());
        let layer = all[from].layer + 1;
        all.push(Box {
            title,
            detail: detail.clone(),
            color: "#dcfce7",
            reads: vec![(from, detail)],
            layer,
        });
    }
    all
}

fn inner_reads(g: &Graph, block: russet_ir::BlockId, values: &mut Vec<Value>) {
    for &id in &g.block(block).nodes {
        let node = g.node(id);
        values.extend(node.op.operands());
        node.blocks.iter().for_each(|&b| inner_reads(g, b, values));
    }
}

/// By what an op does: products, windows, moving, everything else.
fn color(op: &Op) -> &'static str {
    match op.name() {
        "conv"
        | "conv_transpose"
        | "linear"
        | "matmul"
        | "einsum"
        | "lstm"
        | "gru"
        | "rnn"
        | "scaled_dot_product_attention" => "#fed7aa",
        "softmax" | "layer_norm" | "batch_norm" | "instance_norm" | "l2_norm" => "#fde68a",
        "while_loop" | "cond" | "read_state" | "write_state" => "#fecaca",
        "transpose" | "reshape" | "concat" | "split" | "slice_by_index" | "slice_by_size"
        | "gather" | "expand_dims" | "squeeze" | "tile" | "pad" | "stack" | "cast" => "#e5e7eb",
        _ => "#f3e8ff",
    }
}

/// The picture for Graphviz.
pub fn dot(g: &Graph) -> String {
    let quoted = |s: &str| s.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = format!("digraph \"{}\" {{\n", quoted(&g.name));
    out += "  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\"];\n";
    let all = boxes(g);
    for (i, b) in all.iter().enumerate() {
        let (title, detail) = (quoted(&b.title), quoted(&b.detail));
        let _ = writeln!(out, "  n{i} [label=\"{title}\\n{detail}\", fillcolor=\"{}\"];", b.color);
    }
    for (i, b) in all.iter().enumerate() {
        for (from, ty) in &b.reads {
            let _ = writeln!(out, "  n{from} -> n{i} [tooltip=\"{}\"];", quoted(ty));
        }
    }
    out + "}\n"
}

const WIDTH: f64 = 190.0;
const HEIGHT: f64 = 40.0;
const GAP_X: f64 = 24.0;
const GAP_Y: f64 = 30.0;

/// The picture as SVG.
pub fn svg(g: &Graph) -> String {
    let all = boxes(g);
    let layers = ordered(&all);
    let widest = layers.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let width = widest as f64 * (WIDTH + GAP_X) + GAP_X;
    let height = layers.len() as f64 * (HEIGHT + GAP_Y) + GAP_Y;
    let mut at = vec![(0.0, 0.0); all.len()];
    for (row, layer) in layers.iter().enumerate() {
        let used = layer.len() as f64 * (WIDTH + GAP_X) - GAP_X;
        for (col, &i) in layer.iter().enumerate() {
            let x = (width - used) / 2.0 + col as f64 * (WIDTH + GAP_X);
            at[i] = (x, GAP_Y + row as f64 * (HEIGHT + GAP_Y));
        }
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"Helvetica, sans-serif\" \
         font-size=\"11\">\n<title>function {}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escaped(&g.name)
    );
    for (i, b) in all.iter().enumerate() {
        for (from, ty) in &b.reads {
            let (x0, y0) = (at[*from].0 + WIDTH / 2.0, at[*from].1 + HEIGHT);
            let (x1, y1) = (at[i].0 + WIDTH / 2.0, at[i].1);
            let bend = ((y1 - y0) / 2.0).min(60.0);
            let _ = writeln!(
                out,
                "<path d=\"M{x0:.0} {y0:.0} C{x0:.0} {:.0} {x1:.0} {:.0} {x1:.0} {y1:.0}\" \
                 fill=\"none\" stroke=\"#9ca3af\"><title>{}</title></path>",
                y0 + bend,
                y1 - bend,
                escaped(ty)
            );
        }
    }
    for (b, (x, y)) in all.iter().zip(at) {
        let _ = writeln!(
            out,
            "<g><rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" \
             fill=\"{}\" stroke=\"#6b7280\"/><text x=\"{:.0}\" y=\"{:.0}\" \
             text-anchor=\"middle\" font-weight=\"bold\">{}</text><text x=\"{:.0}\" y=\"{:.0}\" \
             text-anchor=\"middle\" fill=\"#4b5563\">{}</text></g>",
            b.color,
            x + WIDTH / 2.0,
            y + 16.0,
            escaped(&short(&b.title)),
            x + WIDTH / 2.0,
            y + 31.0,
            escaped(&short(&b.detail))
        );
    }
    out + "</svg>\n"
}

/// What fits into a box.
fn short(s: &str) -> String {
    match s.char_indices().nth(30) {
        Some((end, _)) => format!("{}...", &s[..end]),
        None => s.to_owned(),
    }
}

fn escaped(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The layers, each in an order that keeps lines short.
fn ordered(all: &[Box]) -> Vec<Vec<usize>> {
    let depth = all.iter().map(|b| b.layer + 1).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); depth];
    all.iter().enumerate().for_each(|(i, b)| layers[b.layer].push(i));
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (i, b) in all.iter().enumerate() {
        b.reads.iter().for_each(|r| readers[r.0].push(i));
    }
    let mut place = vec![0.0; all.len()];
    let settle = |layer: &mut Vec<usize>,
                  place: &mut Vec<f64>,
                  near: &dyn Fn(usize) -> Vec<usize>| {
        let middle = |i: usize, place: &[f64]| {
            let near = near(i);
            let sum: f64 = near.iter().map(|&j| place[j]).sum();
            if near.is_empty() { place[i] } else { sum / near.len() as f64 }
        };
        let mut keyed: Vec<(f64, usize)> = layer.iter().map(|&i| (middle(i, place), i)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        *layer = keyed.into_iter().map(|k| k.1).collect();
        // Counted from the middle, since layers are centred.
        let half = (layer.len() as f64 - 1.0) / 2.0;
        layer.iter().enumerate().for_each(|(k, &i)| place[i] = k as f64 - half);
    };
    for _ in 0..4 {
        for layer in layers.iter_mut() {
            settle(layer, &mut place, &|i| all[i].reads.iter().map(|r| r.0).collect());
        }
        for layer in layers.iter_mut().rev() {
            settle(layer, &mut place, &|i| readers[i].clone());
        }
    }
    layers
}
