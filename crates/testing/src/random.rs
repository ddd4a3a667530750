//! Random functions, the same for the same seed on every machine.

use russet_ir::ops::{
    Add, Concat, Gelu, GeluMode, LayerNorm, Linear, Matmul, Mul, ReduceMean, Relu, Reshape,
    Sigmoid, Softmax, Split, Sub, Tanh, Transpose,
};
use russet_ir::{DType, Graph, Op, Tensor, TensorType, Value};

/// Numbers by xorshift.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A number between -1 and 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 24) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// A function of about `n_ops` ops on fp32 tensors such as transformers have, (B, S, C) mostly.
pub fn random_graph(seed: u64, n_ops: usize) -> Graph {
    let mut r = Random::new(seed);
    let mut g = Graph::new("main");
    let (b, s, c) = (1 + r.below(2) as u64, 2 + r.below(4) as u64, 2 * (1 + r.below(4)) as u64);
    let mut pool: Vec<Value> = (0..2)
        .map(|i| g.add_input(&format!("x{i}"), TensorType::new(DType::F32, [b, s, c])))
        .collect();
    for i in 0..n_ops {
        let x = pool[r.below(pool.len())];
        if let Some(made) = random_op(&mut g, &mut r, &pool, x, i) {
            pool.extend(made);
        }
    }
    let last = pool.len() - 1;
    let extra = pool[r.below(pool.len() - 2) + 2.min(last)];
    let mut outputs = vec![pool[last]];
    if extra != pool[last] {
        outputs.push(extra);
    }
    // An input cannot be an output.
    outputs.retain(|v| !g.inputs().contains(v));
    if outputs.is_empty() {
        outputs = g.push(Relu { x: pool[0] }, "last").expect("a float");
    }
    g.set_outputs(outputs);
    g.remove_dead();
    g
}

fn weight(g: &mut Graph, r: &mut Random, shape: Vec<u64>, name: &str) -> Value {
    let n: u64 = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|_| r.float()).collect();
    g.push_const(Tensor::f32(shape, &values), name)
}

/// An op on `x`, or nothing when it does not fit the shapes at hand.
fn random_op(
    g: &mut Graph,
    r: &mut Random,
    pool: &[Value],
    x: Value,
    i: usize,
) -> Option<Vec<Value>> {
    let shape: Vec<u64> = g.shape(x).iter().map(|d| d.fixed()).collect::<Option<_>>()?;
    let rank = shape.len();
    let other = pool[r.below(pool.len())];
    let name = format!("v{i}");
    let op: Op = match r.below(16) {
        0 => Add { x, y: other }.into(),
        1 => Mul { x, y: other }.into(),
        2 => Sub { x, y: other }.into(),
        3 => Relu { x }.into(),
        4 => Tanh { x }.into(),
        5 => Sigmoid { x }.into(),
        6 => Gelu { x, mode: GeluMode::Exact }.into(),
        7 | 8 => {
            let (n_in, n_out) = (*shape.last()?, 1 + r.below(6) as u64);
            let w = weight(g, r, vec![n_out, n_in], &format!("w{i}"));
            let bias = match r.below(2) {
                0 => None,
                _ => Some(weight(g, r, vec![n_out], &format!("b{i}"))),
            };
            Linear { x, weight: w, bias }.into()
        }
        9 => {
            let n = *shape.last()?;
            let gamma = Some(weight(g, r, vec![n], &format!("g{i}")));
            let beta = Some(weight(g, r, vec![n], &format!("t{i}")));
            LayerNorm { x, axes: Some(vec![-1]), gamma, beta, epsilon: 1e-5 }.into()
        }
        10 => {
            let mut perm: Vec<i32> = (0..rank as i32).collect();
            if rank == 3 {
                perm = [vec![0, 2, 1], vec![0, 1, 2], vec![1, 0, 2]][r.below(3)].clone();
            }
            Transpose { x, perm }.into()
        }
        11 => {
            let flat: i32 = shape.iter().product::<u64>() as i32;
            let half = if flat % 2 == 0 { 2 } else { 1 };
            let target = Tensor::i32(vec![3], &[1, half, -1]);
            let target = g.push_const(target, &format!("s{i}"));
            Reshape { x, shape: target }.into()
        }
        12 => Softmax { x, axis: -1 }.into(),
        13 => Matmul { x, y: other, transpose_x: r.below(2) == 0, transpose_y: r.below(2) == 0 }
            .into(),
        14 => {
            let scale = g.push_const(Tensor::f32(vec![], &[r.float()]), &format!("k{i}"));
            Mul { x, y: scale }.into()
        }
        _ => match r.below(3) {
            0 => ReduceMean { x, axes: Some(vec![-1]), keep_dims: true }.into(),
            1 => Concat { values: vec![x, other], axis: -1, interleave: false }.into(),
            _ => Split { x, num_splits: Some(2), split_sizes: None, axis: -1 }.into(),
        },
    };
    g.push(op, &name).ok()
}
