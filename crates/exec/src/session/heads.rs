//! Attention, recognised among the ops of a function.
//!
//! What is recognised: a product, any elementwise steps with a scale or masks, softmax along the
//! keys, and a product with the values on either side. Chains joined by one `concat` along the
//! axis before the matrices (one chain per head, as on the Neural Engine) are one attention.

use std::collections::BTreeMap;

use russet_ir::ops::Matmul;
use russet_ir::{Dim, Graph, NodeId, Op, Value};

use super::buffer::{Buffer, Matrices};
use super::dense::only_user;
use super::run::Run;
use crate::ExecError;
use crate::kernels::attention::{After, Head, attention};
use crate::kernels::binary::{Binary, broadcast_shape};
use crate::kernels::gemm::{Rows, View};
use crate::kernels::strided::{self, Axis};
use crate::ops::checked_len;

/// One or many attentions whose results lie side by side.
pub(super) struct Attention {
    chains: Vec<Chain>,
    pub out: Value,
    /// The ops this stands for, in order, to be run if the shapes are not those of an attention.
    pub nodes: Vec<NodeId>,
}

/// softmax(query key + ...) value, for every matrix of a batch.
struct Chain {
    query: Side,
    key: Side,
    value: Side,
    steps: Vec<Elementwise>,
    /// Is the result features by queries, rather than queries by features?
    flipped: bool,
    out: Value,
    taken: Vec<NodeId>,
}

/// A batch of matrices, and whether to exchange their rows and columns.
#[derive(Clone, Copy)]
struct Side {
    v: Value,
    transposed: bool,
}

struct Elementwise {
    op: Binary,
    other: Value,
}

/// Every attention of a function, by the node at whose place it runs, and the nodes it replaces.
pub(super) fn attentions(
    g: &Graph,
    order: &[NodeId],
) -> (BTreeMap<NodeId, Attention>, Vec<NodeId>) {
    let mut chains: BTreeMap<Value, Chain> = BTreeMap::new();
    let mut claimed: Vec<NodeId> = Vec::new();
    for chain in order.iter().filter_map(|&id| Chain::through(g, id)) {
        // A product that ends one attention may begin another: it belongs to the first.
        if chain.taken.iter().all(|id| !claimed.contains(id)) {
            claimed.extend(&chain.taken);
            chains.insert(chain.out, chain);
        }
    }
    let mut found = BTreeMap::new();
    let mut replaced = Vec::new();
    let mut add = |place: NodeId, chains: Vec<Chain>, out: Value| {
        let mut nodes: Vec<NodeId> = chains.iter().flat_map(|c| c.taken.clone()).collect();
        nodes.retain(|&id| id != place);
        replaced.extend(&nodes);
        nodes.push(place);
        found.insert(place, Attention { chains, out, nodes });
    };
    for &id in order {
        let Op::Concat(op) = &g.node(id).op else { continue };
        if joins(g, &op.values, &chains)
            && !op.interleave
            && before_matrices(g, op.values[0], op.axis)
        {
            let parts = op.values.iter().filter_map(|v| chains.remove(v)).collect();
            add(id, parts, g.node(id).outputs[0]);
        }
    }
    for (out, chain) in chains {
        let place = *chain.taken.last().expect("a chain has ops");
        add(place, vec![chain], out);
    }
    (found, replaced)
}

/// Are these the results of different chains that nothing else reads?
fn joins(g: &Graph, values: &[Value], chains: &BTreeMap<Value, Chain>) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let flipped = |v: &Value| chains.get(v).map(|c| c.flipped);
    values.len() > 1
        && sorted.len() == values.len()
        && values.iter().all(|v| flipped(v).is_some() && flipped(v) == flipped(&values[0]))
        && values.iter().all(|&v| only_user(g, v).is_some())
}

fn before_matrices(g: &Graph, v: Value, axis: i32) -> bool {
    let rank = g.shape(v).len();
    rank >= 3 && russet_ir::resolve_axis(axis, rank) == Some(rank - 3)
}

impl Chain {
    /// The attention whose softmax is node `id`.
    fn through(g: &Graph, id: NodeId) -> Option<Chain> {
        let Op::Softmax(softmax) = &g.node(id).op else { return None };
        let shape = g.shape(softmax.x);
        if russet_ir::resolve_axis(softmax.axis, shape.len())? + 1 != shape.len() {
            return None;
        }
        let (product, steps, mut taken) = scores(g, softmax.x, id)?;
        let shares = g.node(id).outputs[0];
        let last = only_user(g, shares)?;
        let Op::Matmul(sum) = &g.node(last).op else { return None };
        if sum.x == sum.y {
            return None;
        }
        let flipped = sum.y == shares;
        let value = match flipped {
            true if sum.transpose_y => Side { v: sum.x, transposed: !sum.transpose_x },
            false if !sum.transpose_x => Side { v: sum.y, transposed: sum.transpose_y },
            _ => return None,
        };
        taken.extend([id, last]);
        Some(Chain {
            query: Side { v: product.x, transposed: product.transpose_x },
            key: Side { v: product.y, transposed: product.transpose_y },
            value,
            steps,
            flipped,
            out: g.node(last).outputs[0],
            taken,
        })
    }

    fn reads(&self) -> impl Iterator<Item = Value> {
        let sides = [self.query, self.key, self.value].map(|side| side.v);
        sides.into_iter().chain(self.steps.iter().map(|s| s.other))
    }
}

/// The product whose result, after elementwise steps, is `v`, read by node `reader` only.
fn scores(
    g: &Graph,
    mut v: Value,
    reader: NodeId,
) -> Option<(&Matmul, Vec<Elementwise>, Vec<NodeId>)> {
    let shape = g.shape(v);
    let (mut steps, mut taken, mut reader) = (Vec::new(), Vec::new(), reader);
    loop {
        if only_user(g, v)? != reader || g.shape(v) != shape {
            return None;
        }
        let russet_ir::Def::Node(id, _) = g.value(v).def else { return None };
        taken.push(id);
        let (op, x, y) = match g.op(v)? {
            Op::Matmul(product) => {
                steps.reverse();
                taken.reverse();
                return Some((product, steps, taken));
            }
            Op::Add(op) => (Binary::Add, op.x, op.y),
            Op::Mul(op) => (Binary::Mul, op.x, op.y),
            Op::Sub(op) => (Binary::Sub, op.x, op.y),
            Op::RealDiv(op) => (Binary::Div, op.x, op.y),
            _ => return None,
        };
        let commutes = matches!(op, Binary::Add | Binary::Mul);
        let (rest, other) = match (repeats(g, y, shape), repeats(g, x, shape)) {
            (true, _) if leads_to_product(g, x) => (x, y),
            (_, true) if commutes && leads_to_product(g, y) => (y, x),
            _ => return None,
        };
        if rest == other {
            return None;
        }
        steps.push(Elementwise { op, other });
        (v, reader) = (rest, id);
    }
}

fn leads_to_product(g: &Graph, v: Value) -> bool {
    matches!(g.op(v), Some(Op::Matmul(_) | Op::Add(_) | Op::Mul(_) | Op::Sub(_) | Op::RealDiv(_)))
}

/// May `v` broadcast to exactly this shape?
fn repeats(g: &Graph, v: Value, shape: &[Dim]) -> bool {
    let mine = g.shape(v);
    let is_float = g.ty(v).tensor().is_some_and(|t| t.dtype.is_float());
    // Symbols are compared while running.
    let fits = |(a, b): (&Dim, &Dim)| match (a, b) {
        (Dim::Fixed(a), Dim::Fixed(b)) => *a == 1 || a == b,
        _ => true,
    };
    is_float && mine.len() <= shape.len() && mine.iter().rev().zip(shape.iter().rev()).all(fits)
}

/// The operands of a chain while running.
struct Operands {
    query: Buffer,
    key: Buffer,
    value: Buffer,
    others: Vec<Buffer>,
}

impl Attention {
    pub fn reads(&self) -> Vec<Value> {
        self.chains.iter().flat_map(Chain::reads).collect()
    }

    /// `false`, with nothing done, when symbols stand for numbers with which this is no attention.
    pub fn run(&self, run: &mut Run<'_>) -> Result<bool, ExecError> {
        let operands = self.chains.iter().map(|c| Operands::of(c, run));
        let operands: Vec<Operands> = operands
            .collect::<Option<_>>()
            .ok_or_else(|| run.fail("an operand of other than floats"))?;
        let plan: Option<Vec<Batch>> =
            self.chains.iter().zip(&operands).map(|(c, o)| Batch::of(c, o)).collect();
        let plan = plan.filter(|p| p.iter().all(|b| b.fits_beside(&p[0])));
        let Some(plan) = plan else { return Ok(false) };
        let first = &plan[0];
        let (outer, rank) = (first.outer(), first.shape.len());
        let n_heads: usize = plan.iter().map(Batch::n_heads).sum();
        let (n_queries, size) = (first.query.rows.len, first.value.cols.len);
        // Stored as (outer, queries, heads, size): merging the heads later moves nothing.
        let stored = [&first.shape[..rank.saturating_sub(1)], &[n_queries, n_heads, size]].concat();
        let mut out = run.take(checked_len(&stored)?);
        if !out.is_empty() {
            let mut heads = Vec::new();
            for (o, slab) in out.chunks_exact_mut(n_queries * n_heads * size).enumerate() {
                let mut rows = Rows::new(slab, n_queries, n_heads * size);
                for batch in &plan {
                    let each = (0..batch.n_heads()).map(|h| o * batch.n_heads() + h);
                    heads.extend(each.map(|i| batch.head(i, rows.take_cols(size))));
                }
            }
            debug_assert_eq!(heads.len(), outer * n_heads);
            attention(heads, run.rounding());
        }
        let mut axes = strided::axes(&stored);
        let feature = axes.pop().expect("pushed above");
        let head = axes.pop().expect("pushed above");
        let query = axes.pop().expect("pushed above");
        if rank > 0 {
            axes.push(head);
        }
        axes.extend(if self.chains[0].flipped { [feature, query] } else { [query, feature] });
        let made = Buffer { axes, ..Buffer::new(out, &[]) };
        run.put(self.out, made);
        Ok(true)
    }
}

impl Operands {
    fn of(c: &Chain, run: &Run<'_>) -> Option<Operands> {
        let others = c.steps.iter().map(|s| run.float(s.other)).collect::<Option<_>>()?;
        let [query, key, value] = [c.query, c.key, c.value].map(|side| run.float(side.v));
        Some(Operands { query: query?, key: key?, value: value?, others })
    }
}

/// All matrices of a chain.
struct Batch<'a> {
    query: Matrices<'a>,
    key: Matrices<'a>,
    value: Matrices<'a>,
    others: Vec<(Binary, &'a Buffer, Vec<Axis>)>,
    /// Of the result, without its matrices.
    shape: Vec<usize>,
}

impl<'a> Batch<'a> {
    fn of(c: &Chain, operands: &'a Operands) -> Option<Batch<'a>> {
        let query = Matrices::of(&operands.query, c.query.transposed)?;
        let key = Matrices::of(&operands.key, c.key.transposed)?;
        let value = Matrices::of(&operands.value, c.value.transposed)?;
        let shape = broadcast_shape(&query.batch_shape(), &key.batch_shape())?;
        let shape = broadcast_shape(&shape, &value.batch_shape())?;
        let fits = query.cols.len == key.rows.len && key.cols.len == value.rows.len;
        let scores = [&shape[..], &[query.rows.len, key.cols.len]].concat();
        let other = |(s, b): (&Elementwise, &'a Buffer)| Some((s.op, b, b.broadcast(&scores)?));
        let others = c.steps.iter().zip(&operands.others).map(other).collect::<Option<_>>()?;
        fits.then_some(Batch { query, key, value, others, shape })
    }

    /// May the results lie side by side along the last axis of the batch?
    fn fits_beside(&self, other: &Batch<'_>) -> bool {
        let outer = |b: &Batch<'_>| b.shape[..b.shape.len().saturating_sub(1)].to_vec();
        self.shape.len() == other.shape.len()
            && outer(self) == outer(other)
            && self.query.rows.len == other.query.rows.len
            && self.value.cols.len == other.value.cols.len
    }

    fn n_heads(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    fn outer(&self) -> usize {
        self.shape[..self.shape.len().saturating_sub(1)].iter().product()
    }

    fn head(&self, i: usize, out: Rows<'a>) -> Head<'a> {
        Head {
            query: self.query.view(i, &self.shape),
            key: self.key.view(i, &self.shape),
            value: self.value.view(i, &self.shape),
            after: self.others.iter().map(|o| after(o, i)).collect(),
            out,
        }
    }
}

/// What matrix `i` of a broadcast operand does to the scores.
fn after<'a>((op, buffer, axes): &(Binary, &'a Buffer, Vec<Axis>), mut i: usize) -> After<'a> {
    let (batch, matrix) = axes.split_at(axes.len() - 2);
    let mut start = buffer.start;
    for axis in batch.iter().rev() {
        start += i % axis.len * axis.stride as usize;
        i /= axis.len;
    }
    let data = &buffer.data[start.min(buffer.data.len())..];
    let [rows, cols] = [matrix[0], matrix[1]];
    let other = View::strided(data, rows.len, cols.len, rows.stride as usize, cols.stride as usize);
    After { op: *op, other }
}
