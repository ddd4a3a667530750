//! How far a random trunk of 28 layers is from 32-bit floats in each arithmetic.
//!
//! `cargo run --release -p russet-exec --example trunk [WIDTH] [TOKENS] [SEED]`
//!
//! A trunk as in Qwen2: norm, attention, residual, norm, gated SiLU, residual, with an inner width
//! of 35/6 of the outer one and heads of 64. Weights are normal over the root of their depth, what is
//! added to the residual stream over the root of twice the number of layers as well. The norm is
//! `layer_norm`, one op, stored once. Widths other than the published trunk's 1536 are smaller for
//! time alone.

use std::collections::BTreeMap;

use russet_exec::ane::{Ane, Family, Rule};
use russet_exec::{Arithmetic, Array, Session};
use russet_ir::ops::{Add, LayerNorm, Linear, Matmul, Mul, Reshape, Silu, Softmax, Transpose};
use russet_ir::{DType, Graph, Op, Tensor, TensorType, Value};

const LAYERS: u64 = 28;
const HEAD: u64 = 64;

/// Normal numbers by the method of Box and Muller, from a linear congruence.
struct Normal(u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn numbers(&mut self, n: u64, scale: f64) -> Vec<f32> {
        let next = |n: &mut Normal| {
            let radius = (-2.0 * n.uniform().ln()).sqrt();
            radius * (2.0 * std::f64::consts::PI * n.uniform()).cos()
        };
        (0..n).map(|_| (scale * next(self)) as f32).collect()
    }
}

/// A trunk being written.
struct Trunk {
    graph: Graph,
    normal: Normal,
    width: u64,
    tokens: u64,
}

impl Trunk {
    fn push(&mut self, op: impl Into<Op>) -> Value {
        let name = format!("v{}", self.graph.n_values());
        self.graph.push(op, &name).expect("an op that fits")[0]
    }

    fn ints(&mut self, ints: &[u64]) -> Value {
        let name = format!("v{}", self.graph.n_values());
        let ints: Vec<i32> = ints.iter().map(|&i| i as i32).collect();
        self.graph.push_const(Tensor::i32(vec![ints.len() as u64], &ints), &name)
    }

    fn linear(&mut self, x: Value, n: u64, depth: u64, scale: f64) -> Value {
        let numbers = self.normal.numbers(n * depth, scale / (depth as f64).sqrt());
        let name = format!("v{}", self.graph.n_values());
        let weight = self.graph.push_const(Tensor::f32(vec![n, depth], &numbers), &name);
        self.push(Linear { x, weight, bias: None })
    }

    fn norm(&mut self, x: Value) -> Value {
        self.push(LayerNorm { x, axes: Some(vec![-1]), gamma: None, beta: None, epsilon: 1e-6 })
    }

    fn attention(&mut self, x: Value, scale: f64) -> Value {
        let (width, tokens) = (self.width, self.tokens);
        let heads = self.ints(&[1, tokens, width / HEAD, HEAD]);
        let perm = vec![0, 2, 1, 3];
        // Queries carry the scale of the scores.
        let scales = [1.0 / (HEAD as f64).sqrt(), 1.0, 1.0];
        let [q, k, v] = scales.map(|scale| {
            let whole = self.linear(x, width, width, scale);
            let split = self.push(Reshape { x: whole, shape: heads });
            self.push(Transpose { x: split, perm: perm.clone() })
        });
        let scores = self.push(Matmul { x: q, y: k, transpose_x: false, transpose_y: true });
        let shares = self.push(Softmax { x: scores, axis: -1 });
        let mixed = self.push(Matmul { x: shares, y: v, transpose_x: false, transpose_y: false });
        let mixed = self.push(Transpose { x: mixed, perm });
        let shape = self.ints(&[1, tokens, width]);
        let mixed = self.push(Reshape { x: mixed, shape });
        self.linear(mixed, width, width, scale)
    }

    fn mlp(&mut self, x: Value, scale: f64) -> Value {
        let inner = self.width * 35 / 6;
        let gate = self.linear(x, inner, self.width, 1.0);
        let gate = self.push(Silu { x: gate });
        let up = self.linear(x, inner, self.width, 1.0);
        let both = self.push(Mul { x: gate, y: up });
        self.linear(both, self.width, inner, scale)
    }

    fn finish(mut self) -> Graph {
        let mut x = self.graph.inputs()[0];
        let scale = 1.0 / (2.0 * LAYERS as f64).sqrt();
        for _ in 0..LAYERS {
            let normed = self.norm(x);
            let attended = self.attention(normed, scale);
            x = self.push(Add { x: attended, y: x });
            let normed = self.norm(x);
            let changed = self.mlp(normed, scale);
            x = self.push(Add { x: changed, y: x });
        }
        let y = self.norm(x);
        self.graph.set_outputs(vec![y]);
        self.graph
    }
}

fn trunk(width: u64, tokens: u64, seed: u64) -> Graph {
    let mut graph = Graph::new("main");
    graph.add_input("x", TensorType::new(DType::F32, [1, tokens, width]));
    Trunk { graph, normal: Normal(seed), width, tokens }.finish()
}

/// The arithmetics that are compared, and what was published of each.
fn arithmetics() -> Vec<(&'static str, Arithmetic, &'static str)> {
    let ane = Ane::of(Family::H16);
    let fp16 = Ane::fp16();
    let of = Arithmetic::Ane;
    vec![
        ("fp16 products, fp32 residual", of(fp16.without(Rule::Fp16Residual)), "1.9e-3 to 2.6e-3"),
        ("fp16", of(fp16), ""),
        ("ane", of(ane), "4.7e-3 to 6.4e-3"),
        ("ane without fp16-residual", of(ane.without(Rule::Fp16Residual)), ""),
        ("ane without fused-activation", of(ane.without(Rule::FusedActivation)), ""),
        ("ane without fixed-accumulator", of(ane.without(Rule::FixedAccumulator)), ""),
        ("bf16", Arithmetic::Bf16, "5.2e-3 to 7.5e-3"),
    ]
}

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let given = |i: usize, default: u64| args.get(i).copied().unwrap_or(default);
    let (width, tokens, seed) = (given(0, 384).max(HEAD) / HEAD * HEAD, given(1, 128), given(2, 1));
    println!("{LAYERS} layers, width {width}, inner {}, {tokens} tokens", width * 35 / 6);
    let graph = trunk(width, tokens, seed);
    let x = Normal(seed + 100).numbers(tokens * width, 1.0);
    let x = Array::f32(vec![1, tokens as usize, width as usize], x);
    let inputs = BTreeMap::from([("x".to_owned(), x)]);
    let run = |arithmetic| {
        let session = Session::new(&graph, arithmetic).expect("a session");
        let made = session.run(&inputs).expect("a run");
        made.into_values().next().and_then(|a| a.as_f32().map(<[f32]>::to_vec)).expect("floats")
    };
    let exact = run(Arithmetic::F32);
    println!("{:32}  relative L2  published", "arithmetic");
    for (name, arithmetic, published) in arithmetics() {
        let found = run(arithmetic);
        let square = |x: f32| f64::from(x) * f64::from(x);
        let difference: f64 = exact.iter().zip(&found).map(|(a, b)| square(a - b)).sum();
        let size: f64 = exact.iter().map(|&a| square(a)).sum();
        println!("{name:32}  {:.2e}     {published}", (difference / size).sqrt());
    }
}
