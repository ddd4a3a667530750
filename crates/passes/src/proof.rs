//! Running both sides of an edit.

use std::collections::BTreeMap;

use russet_exec::{Array, Env, ExecError, Numbers};
use russet_ir::{DType, Dim, Graph, NodeId, Op, TensorType, Value};

/// Every value of a graph on some inputs, in f32.
///
/// It is kept while the graph is rewritten: new values are added, dead ones dropped.
pub struct Proof {
    env: Env,
}

/// How far two arrays are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// L2 norm of the difference over that of the first array.
    pub relative_l2: f64,
    /// Largest difference of two elements.
    pub max: f64,
    /// Cosine of the angle between them.
    pub cosine: f64,
}

impl Proof {
    /// Runs `graph` once and keeps what every op made.
    pub fn new(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<Proof, ExecError> {
        let mut env = Env::new(graph, inputs)?;
        let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        env.run(graph, &nodes)?;
        Ok(Proof { env })
    }

    pub fn value(&self, v: Value) -> Option<&Array> {
        self.env.get(v)
    }

    /// Runs nodes added to `graph`.
    pub fn extend(&mut self, graph: &Graph, nodes: &[NodeId]) -> Result<(), ExecError> {
        self.env.run(graph, nodes)
    }

    /// Forgets values of nodes that are gone.
    pub fn retain_live(&mut self, graph: &Graph) {
        self.env.retain(|v| graph.is_live(v));
    }

    /// Runs everything again: what an edit at the top does to the outputs.
    pub fn rerun(&mut self, graph: &Graph) -> Result<(), ExecError> {
        self.env.retain(|v| graph.inputs().contains(&v));
        let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        self.env.run(graph, &nodes)
    }
}

/// The distance of `b` from `a`; infinite when shapes or kinds differ or only one is NaN somewhere.
pub fn distance(a: &Array, b: &Array) -> Distance {
    const FAR: Distance =
        Distance { relative_l2: f64::INFINITY, max: f64::INFINITY, cosine: f64::NAN };
    if a.shape != b.shape {
        return FAR;
    }
    let numbers = |x: &Array| -> Vec<f32> {
        match &x.data {
            Numbers::F32(v) => v.clone(),
            Numbers::I32(v) => v.iter().map(|&i| i as f32).collect(),
            Numbers::Bool(v) => v.iter().map(|&b| b.into()).collect(),
        }
    };
    if std::mem::discriminant(&a.data) != std::mem::discriminant(&b.data) {
        return FAR;
    }
    let (mut difference, mut size_a, mut size_b, mut dot, mut max) = (0.0, 0.0, 0.0, 0.0, 0.0f64);
    for (&x, &y) in numbers(a).iter().zip(&numbers(b)) {
        if x.to_bits() == y.to_bits() || x == y || (x.is_nan() && y.is_nan()) {
            if x.is_finite() {
                let square = f64::from(x) * f64::from(x);
                (size_a, size_b, dot) = (size_a + square, size_b + square, dot + square);
            }
            continue;
        }
        let (x, y) = (f64::from(x), f64::from(y));
        let d = (x - y).abs();
        difference += d * d;
        max = if d.is_nan() { f64::INFINITY } else { max.max(d) };
        (size_a, size_b, dot) = (size_a + x * x, size_b + y * y, dot + x * y);
    }
    let relative_l2 = if max == 0.0 {
        0.0
    } else if difference.is_nan() {
        f64::INFINITY
    } else {
        (difference / f64::max(size_a, f64::MIN_POSITIVE)).sqrt()
    };
    let cosine = match size_a.sqrt() * size_b.sqrt() {
        0.0 => f64::from(u8::from(size_a == size_b)),
        sizes => dot / sizes,
    };
    Distance { relative_l2, max, cosine }
}

/// Inputs to prove on when none are given: seeded, shaped by what reads them.
///
/// Integers that index a table stay within it; other integers are a mask, ones then zeros; floats
/// are about normal. `n`, or what is nearest to it in its range, stands for every
/// symbol that has no enumerated default.
///
/// # Errors
/// An input that is larger than anything a model reads: its shape is a mistake or an attack.
pub fn random_inputs(
    graph: &Graph,
    seed: u64,
    n: u64,
) -> Result<BTreeMap<String, Array>, ExecError> {
    let mut random = Random(seed | 1);
    let default = graph.symbols.enumerated.first();
    let mut inputs = BTreeMap::new();
    for &v in graph.inputs() {
        let Some(ty) = graph.ty(v).tensor() else { continue };
        let extent = |d: &Dim| match d {
            Dim::Fixed(k) => *k,
            Dim::Symbol(s) => {
                let (low, high) = graph.symbols.ranges.get(s).copied().unwrap_or((n, Some(n)));
                let within = n.max(low).min(high.unwrap_or(u64::MAX));
                default.and_then(|b| b.get(s)).copied().unwrap_or(within)
            }
        };
        let bound = TensorType::new(DType::F32, ty.shape.iter().map(extent));
        let n_bytes = bound.n_bytes().unwrap_or(u64::MAX);
        if n_bytes > INPUT_BYTES_MAX {
            return Err(ExecError::TooLarge { bytes: n_bytes, limit: INPUT_BYTES_MAX });
        }
        let shape: Vec<usize> = ty.shape.iter().map(|d| extent(d) as usize).collect();
        let len = shape.iter().product();
        let array = if ty.dtype.is_float() {
            Array::f32(shape, (0..len).map(|_| random.normal()).collect())
        } else if ty.dtype == DType::Bool {
            Array::bool(shape, (0..len).map(|_| random.next() & 1 == 1).collect())
        } else {
            match table_rows(graph, v) {
                Some(rows) => {
                    let index = |random: &mut Random| (random.next() % rows) as i32;
                    Array::i32(shape, (0..len).map(|_| index(&mut random)).collect())
                }
                None => {
                    let row = shape.last().copied().unwrap_or(1).max(1);
                    let ones = row - row / 4;
                    Array::i32(shape, (0..len).map(|i| i32::from(i % row < ones)).collect())
                }
            }
        };
        inputs.insert(graph.value(v).name.clone(), array);
    }
    Ok(inputs)
}

/// Bytes beyond which an input is not made up.
const INPUT_BYTES_MAX: u64 = 1 << 30;

/// Rows of the smallest table that `v` indexes, if it indexes one.
fn table_rows(graph: &Graph, v: Value) -> Option<u64> {
    let mut smallest: Option<u64> = None;
    let mut work = vec![v];
    while let Some(v) = work.pop() {
        for node in graph.users(v).iter().map(|&id| graph.node(id)) {
            match &node.op {
                Op::Gather(op) if op.indices == v => {
                    let axis = graph.types().axis(op.x, op.axis).ok();
                    let rows = axis.and_then(|a| graph.shape(op.x).get(a)?.fixed());
                    let all = smallest.into_iter().chain(rows.filter(|&n| n > 0));
                    smallest = all.min();
                }
                Op::Cast(_) | Op::ExpandDims(_) | Op::Identity(_) => work.extend(&node.outputs),
                Op::Reshape(op) if op.x == v => work.extend(&node.outputs),
                _ => {}
            }
        }
    }
    smallest
}

/// Numbers by xorshift: the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// The sum of twelve uniform numbers, less six: close to normal.
    fn normal(&mut self) -> f32 {
        let uniform = |r: &mut Random| (r.next() >> 8) as f32 / (1u64 << 40) as f32;
        (0..12).map(|_| uniform(self)).sum::<f32>() - 6.0
    }
}
