//! Products with constant weights, and what they take along.
//!
//! A linear layer and a 1x1 convolution are the same product: rows of features times a packed
//! weight. A convolution's features are its second axis, so its result is stored with channels
//! last and seen through strides: the next convolution, norm or attention then reads rows too.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;
use russet_ir::{Graph, NodeId, Op, Tensor, Value};

use super::Fuse;
use super::buffer::Buffer;
use super::run::Run;
use crate::ExecError;
use crate::ane::{Rule, node};
use crate::kernels::gemm::{
    Activation, Bias, Epilogue, Operand, PackedRight, Rows, View, multiply,
};
use crate::kernels::rounding::Rounding;
use crate::kernels::strided::{self, Axis};
use crate::kernels::unary::Unary;
use crate::ops::{checked_len, unary_kernel};

/// A product with constant weights and what follows it.
pub(super) struct Dense {
    pub x: Value,
    /// Which axis of `x` is summed over; the results take its place.
    features: Features,
    weight: Weight,
    bias: Option<Vec<f32>>,
    activation: Activation,
    pub residual: Option<Value>,
    /// Products that share `x` are one, whose columns are these values'.
    pub outs: Vec<Out>,
    depth: usize,
    /// Of the product and all that it takes along.
    rounding: Rounding,
}

/// A weight, `[outputs, depth]`.
enum Weight {
    Packed(Arc<PackedRight>),
    /// Decoded while it is multiplied by, some rows at a time, so that it stays small in memory.
    Compressed(Tensor),
}

/// Numbers of a compressed weight that are decoded at once.
const DECODED_MAX: usize = 1 << 18;

/// A value and its number of features.
pub(super) struct Out {
    pub value: Value,
    n: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Features {
    Last,
    Second,
}

/// A product as found, its weight not packed yet.
struct Draft {
    x: Value,
    features: Features,
    weight: Value,
    /// Is the weight `[depth, outputs]`, as an operand of `matmul` is?
    turned: bool,
    bias: Option<Value>,
    activation: Activation,
    residual: Option<Value>,
    out: Value,
    /// The product and the ops it takes along, in order.
    taken: Vec<NodeId>,
    n_out: usize,
    depth: usize,
    compressed: bool,
}

/// Packed weights that several sessions have in common, as functions of one program do: each is
/// packed once.
#[derive(Default)]
pub struct Packs(Vec<Pack>);

struct Pack {
    /// What was packed, one below the other.
    weights: Vec<Tensor>,
    rounding: Rounding,
    packed: Arc<PackedRight>,
}

impl Packs {
    /// The weights packed as one, from earlier on if they are the very same.
    fn get(&mut self, weights: Vec<Tensor>, rounding: Rounding, depth: usize) -> Arc<PackedRight> {
        let same = |p: &&Pack| {
            p.rounding == rounding
                && p.weights.len() == weights.len()
                && p.weights.iter().zip(&weights).all(|(a, b)| a.is_same(b))
        };
        if let Some(pack) = self.0.iter().find(same) {
            return pack.packed.clone();
        }
        let mut all = Vec::new();
        for t in &weights {
            let first = all.len();
            all.extend(t.to_f32());
            rounding.store_weight(&mut all[first..], t.is_compressed());
        }
        let n_out = weights.iter().map(|t| t.shape[0] as usize).sum();
        let view = View::new(&all, n_out, depth);
        let packed = Arc::new(PackedRight::new(view.transposed()));
        self.0.push(Pack { weights, rounding, packed: packed.clone() });
        packed
    }
}

/// Every product among `nodes`, by the node at whose place it runs, and the nodes it replaces;
/// with `fuse` it takes along others of `nodes`.
pub(super) fn products(
    g: &Graph,
    nodes: &[NodeId],
    rounding: Rounding,
    fuse: Fuse,
    packs: &mut Packs,
) -> (BTreeMap<NodeId, Dense>, Vec<NodeId>) {
    let free: &[NodeId] = if fuse == Fuse::Yes { nodes } else { &[] };
    let mut taken: HashSet<NodeId> = HashSet::new();
    let mut drafts = Vec::new();
    for &id in nodes {
        let Some(mut draft) = Draft::at(g, id, free) else { continue };
        // The sum of two products belongs to the first alone.
        if draft.taken.iter().any(|id| taken.contains(id)) {
            draft = Draft::at(g, id, &[]).expect("it was one with what follows");
        }
        taken.extend(&draft.taken);
        drafts.push(draft);
    }
    // Those that only multiply and share their operand become one, at the place of the first.
    let mut groups: Vec<Vec<Draft>> = Vec::new();
    for draft in drafts {
        match groups.iter_mut().find(|group| fuse == Fuse::Yes && group[0].joins(&draft)) {
            Some(group) => group.push(draft),
            None => groups.push(vec![draft]),
        }
    }
    let mut replaced = Vec::new();
    let mut products = BTreeMap::new();
    for group in groups {
        // A product runs where the last op it takes along stands: all it reads is there.
        let place = *group[0].taken.last().expect("the product itself is taken");
        replaced.extend(group.iter().flat_map(|d| &d.taken).filter(|&&id| id != place));
        products.insert(place, Dense::packed(g, &group, rounding, packs));
    }
    (products, replaced)
}

impl Draft {
    /// The product at node `id`, with those of `free` it takes along.
    fn at(g: &Graph, id: NodeId, free: &[NodeId]) -> Option<Draft> {
        let node = g.node(id);
        let (x, weight, bias, features, turned) = match &node.op {
            Op::Linear(op) => (op.x, op.weight, op.bias, Features::Last, false),
            Op::Conv(op) if op.is_pointwise(&g.types()) => {
                (op.x, op.weight, op.bias, Features::Second, false)
            }
            Op::Matmul(op) if !op.transpose_x && g.shape(op.x).len() > 1 => {
                let weight = g.weight(op.y)?;
                let whole = weight.can_be_transposed() && !super::is_large(&weight);
                whole.then_some((op.x, op.y, None, Features::Last, !op.transpose_y))?
            }
            _ => return None,
        };
        let is_float = |v: Value| g.weight(v).is_some_and(|t| t.dtype.is_float());
        let constant = is_float(weight) && bias.is_none_or(is_float) && g.weight(x).is_none();
        let mut shape = g.weight(weight)?.shape.clone();
        if turned {
            shape.reverse();
        }
        let draft = Draft {
            x,
            features,
            weight,
            turned,
            bias,
            activation: Activation::None,
            residual: None,
            out: node.outputs[0],
            taken: vec![id],
            n_out: *shape.first()? as usize,
            depth: *shape.get(1)? as usize,
            compressed: super::is_large(&g.weight(weight)?),
        };
        constant.then(|| draft.with_what_follows(g, free))
    }

    fn with_what_follows(mut self, g: &Graph, free: &[NodeId]) -> Draft {
        let only_user = |v| only_user(g, v).filter(|id| free.contains(id));
        if let Some(id) = only_user(self.out)
            && let Some(activation) = activation(&g.node(id).op)
        {
            self.activation = activation;
            self.out = g.node(id).outputs[0];
            self.taken.push(id);
        }
        if let Some(id) = only_user(self.out)
            && let Op::Add(op) = &g.node(id).op
        {
            let other = if op.x == self.out { op.y } else { op.x };
            if g.ty(other) == g.ty(self.out) && g.constant(other).is_none() && other != self.out {
                self.residual = Some(other);
                self.out = g.node(id).outputs[0];
                self.taken.push(id);
            }
        }
        self
    }

    /// The rounding of all that is taken along: whether a residual sum is wide depends on the sum.
    fn rounding(&self, g: &Graph, rounding: Rounding) -> Rounding {
        match (rounding, self.taken.last()) {
            (Rounding::Ane(rules), Some(&last)) if !node::is_residual(g, &g.node(last).op) => {
                Rounding::Ane(rules.with(Rule::Fp16Residual))
            }
            _ => rounding,
        }
    }

    fn joins(&self, other: &Draft) -> bool {
        let plain = |d: &Draft| d.taken.len() == 1;
        let key = |d: &Draft| (d.x, d.depth, d.bias.is_some());
        plain(self)
            && plain(other)
            && !(self.compressed || other.compressed)
            && key(self) == key(other)
            && self.features == other.features
    }
}

/// The activation that a product takes along for this op.
pub(super) fn activation(op: &Op) -> Option<Activation> {
    match unary_kernel(op)?.0 {
        Unary::Gelu => Some(Activation::Gelu),
        Unary::GeluTanh => Some(Activation::GeluTanh),
        Unary::Relu => Some(Activation::Relu),
        Unary::Silu => Some(Activation::Silu),
        _ => None,
    }
}

/// The node that alone reads `v`, when nothing else can see it.
pub(super) fn only_user(g: &Graph, v: Value) -> Option<NodeId> {
    match g.users(v) {
        [id] if !g.is_output(v) && g.is_listed(*id) && g.node(*id).blocks.is_empty() => Some(*id),
        _ => None,
    }
}

impl Dense {
    fn packed(g: &Graph, group: &[Draft], rounding: Rounding, packs: &mut Packs) -> Dense {
        let floats = |v: Value| {
            let t = g.weight(v).expect("checked when drafted");
            let mut x = t.to_f32();
            rounding.store_weight(&mut x, t.is_compressed());
            x
        };
        let weight = |d: &Draft| {
            let weight = g.weight(d.weight).expect("checked when drafted");
            if d.turned { weight.transposed() } else { weight }
        };
        let first = &group[0];
        let outs: Vec<Out> = group.iter().map(|d| Out { value: d.out, n: d.n_out }).collect();
        let weight = match first.compressed {
            true => Weight::Compressed(weight(first)),
            false => {
                let weights = group.iter().map(weight).collect();
                Weight::Packed(packs.get(weights, rounding, first.depth))
            }
        };
        let bias = first.bias.is_some().then(|| group.iter().filter_map(|d| d.bias));
        Dense {
            x: first.x,
            features: first.features,
            weight,
            bias: bias.map(|values| values.flat_map(floats).collect()),
            activation: first.activation,
            residual: first.residual,
            outs,
            depth: first.depth,
            rounding: first.rounding(g, rounding),
        }
    }

    /// The op that others are counted with.
    pub fn name(&self) -> &'static str {
        match self.features {
            Features::Last => "linear",
            Features::Second => "conv",
        }
    }

    /// The axes of a tensor of this rank that make rows, in order, and the one with the features.
    fn split(&self, rank: usize) -> Option<(Vec<usize>, usize)> {
        let col = match self.features {
            Features::Last => rank.checked_sub(1)?,
            Features::Second => 1,
        };
        (col < rank).then(|| ((0..rank).filter(|&i| i != col).collect(), col))
    }

    pub fn run(&self, run: &mut Run<'_>) -> Result<(), ExecError> {
        let x = run.float(self.x).ok_or_else(|| run.fail("a product of other than floats"))?;
        let mut shape = x.shape();
        let split = self.split(shape.len()).filter(|(_, col)| shape[*col] == self.depth);
        let (rows, col) =
            split.ok_or_else(|| run.fail(format!("{shape:?} has not {} features", self.depth)))?;
        let n_out: usize = self.outs.iter().map(|o| o.n).sum();
        shape[col] = n_out;
        let mut out = run.take(checked_len(&shape)?);
        let x = self.in_rows(run, x, &rows, col);
        let residual = match self.residual {
            Some(v) => {
                let r = run.float(v).ok_or_else(|| run.fail("a sum of other than floats"))?;
                if r.shape() != shape {
                    return Err(run.fail(format!("{:?} plus {shape:?}", r.shape())));
                }
                Some(self.in_rows(run, r, &rows, col))
            }
            None => None,
        };
        let left = x.matrix(&rows, col).expect("made so");
        let n_rows = left.n_rows();
        let epilogue = Epilogue {
            bias: self.bias.as_deref().map_or(Bias::None, Bias::PerColumn),
            activation: self.activation,
            residual: residual.as_ref().map(|r| r.matrix(&rows, col).expect("made so")),
            rounding: self.rounding,
        };
        if n_rows * n_out > 0 {
            let rows = Rows::new(&mut out, n_rows, n_out);
            match &self.weight {
                Weight::Packed(weight) => {
                    multiply(left, Operand::Packed(&**weight), rows, &epilogue);
                }
                Weight::Compressed(t) => self.multiply_decoded(left, t, rows, &epilogue),
            }
        }
        let mut whole = Buffer::new(out, &shape);
        whole.axes = features_last(&shape, col);
        let mut start = 0;
        for o in &self.outs {
            let mut part = Buffer { start, ..whole.clone() };
            part.axes[col].len = o.n;
            start += o.n;
            run.put(o.value, part);
        }
        Ok(())
    }

    /// The product with a weight of which each thread decodes the rows it is about to use.
    fn multiply_decoded(
        &self,
        left: View<'_>,
        t: &Tensor,
        mut rest: Rows<'_>,
        whole: &Epilogue<'_>,
    ) {
        let n_out = rest.n_cols();
        let step = (DECODED_MAX / self.depth.max(1)).clamp(1, n_out);
        let mut parts = Vec::new();
        for first in (0..n_out).step_by(step) {
            let n = step.min(n_out - first);
            parts.push((first, n, rest.take_cols(n)));
        }
        parts.into_par_iter().for_each(|(first, n, out)| {
            let depth = self.depth as u64;
            let mut rows = t.elements(first as u64 * depth, n as u64 * depth);
            whole.rounding.store_weight(&mut rows, true);
            let epilogue = Epilogue {
                bias: match whole.bias {
                    Bias::PerColumn(b) => Bias::PerColumn(&b[first..first + n]),
                    other => other,
                },
                residual: whole.residual.map(|r| r.columns(first, n)),
                ..*whole
            };
            multiply(left, View::new(&rows, n, self.depth).transposed(), out, &epilogue);
        });
    }

    /// `x`, moved if its rows do not lie at equal distances.
    fn in_rows(&self, run: &mut Run<'_>, x: Buffer, rows: &[usize], col: usize) -> Buffer {
        if x.matrix(rows, col).is_some() {
            return x;
        }
        let order = [rows, &[col]].concat();
        let mut data = run.take(x.n_elements());
        strided::copy(&x.data, x.start, x.permuted(&order).axes, &mut data);
        let axes = features_last(&x.shape(), col);
        Buffer { axes, ..Buffer::new(data, &[]) }
    }
}

/// Axes of contiguous memory in which axis `col` is the innermost.
fn features_last(shape: &[usize], col: usize) -> Vec<Axis> {
    let mut moved = shape.to_vec();
    let n = moved.remove(col);
    moved.push(n);
    let mut axes = strided::axes(&moved);
    let last = axes.pop().expect("pushed above");
    axes.insert(col, last);
    axes
}
