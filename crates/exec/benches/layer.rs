//! One encoder layer of MiniLM's size in both forms, in both arithmetics. Items are tokens.

use std::collections::BTreeMap;

use divan::Bencher;
use divan::counter::ItemsCount;
use russet_exec::{Arithmetic, Array, Session};
use russet_ir::ops::{
    Add, Concat, Conv, Gelu, GeluMode, LayerNorm, Linear, Matmul, PadType, Reshape, Softmax, Split,
    Transpose,
};
use russet_ir::{DType, Graph, Op, Tensor, TensorType, Value};

fn main() {
    divan::main();
}

const S: u64 = 128;
const C: u64 = 384;
const HEADS: u64 = 12;
const SIZE: u64 = C / HEADS;

/// A graph being written; every name is the number of its value.
struct Layer(Graph);

impl Layer {
    fn push(&mut self, op: impl Into<Op>) -> Value {
        self.push_all(op)[0]
    }

    fn push_all(&mut self, op: impl Into<Op>) -> Vec<Value> {
        let name = format!("v{}", self.0.n_values());
        self.0.push(op, &name).expect("an op that fits")
    }

    fn weight(&mut self, shape: &[u64]) -> Value {
        let n: u64 = shape.iter().product();
        let numbers: Vec<f32> =
            (0..n).map(|i| ((i * 7919) % 1013) as f32 / 20_000.0 - 0.025).collect();
        let name = format!("v{}", self.0.n_values());
        self.0.push_const(Tensor::f32(shape.to_vec(), &numbers), &name)
    }

    fn ints(&mut self, ints: &[i32]) -> Value {
        let name = format!("v{}", self.0.n_values());
        self.0.push_const(Tensor::i32(vec![ints.len() as u64], ints), &name)
    }

    fn linear(&mut self, x: Value, n: u64, depth: u64) -> Value {
        let (weight, bias) = (self.weight(&[n, depth]), Some(self.weight(&[n])));
        self.push(Linear { x, weight, bias })
    }

    fn conv(&mut self, x: Value, n: u64, depth: u64) -> Value {
        let (weight, bias) = (self.weight(&[n, depth, 1, 1]), Some(self.weight(&[n])));
        let (strides, pad, dilations) = (None, None, None);
        self.push(Conv {
            x,
            weight,
            bias,
            strides,
            pad_type: PadType::Valid,
            pad,
            dilations,
            groups: 1,
        })
    }

    fn norm(&mut self, x: Value, axis: i32) -> Value {
        let (gamma, beta) = (Some(self.weight(&[C])), Some(self.weight(&[C])));
        self.push(LayerNorm { x, axes: Some(vec![axis]), gamma, beta, epsilon: 1e-5 })
    }
}

/// (B, S, C), as exported.
fn source() -> Graph {
    let mut l = Layer(Graph::new("main"));
    let x = l.0.add_input("x", TensorType::new(DType::F32, [1, S, C]));
    let shape = l.ints(&[1, S as i32, HEADS as i32, SIZE as i32]);
    let merged = l.ints(&[1, S as i32, C as i32]);
    let perm = vec![0, 2, 1, 3];
    let [q, k, v] = [(); 3].map(|()| {
        let whole = l.linear(x, C, C);
        let split = l.push(Reshape { x: whole, shape });
        l.push(Transpose { x: split, perm: perm.clone() })
    });
    let scores = l.push(Matmul { x: q, y: k, transpose_x: false, transpose_y: true });
    let shares = l.push(Softmax { x: scores, axis: -1 });
    let mixed = l.push(Matmul { x: shares, y: v, transpose_x: false, transpose_y: false });
    let mixed = l.push(Transpose { x: mixed, perm });
    let mixed = l.push(Reshape { x: mixed, shape: merged });
    let y = l.linear(mixed, C, C);
    let y = l.push(Add { x: y, y: x });
    let attended = l.norm(y, -1);
    let up = l.linear(attended, 4 * C, C);
    let up = l.push(Gelu { x: up, mode: GeluMode::Exact });
    let down = l.linear(up, C, 4 * C);
    let y = l.push(Add { x: down, y: attended });
    let y = l.norm(y, -1);
    l.0.set_outputs(vec![y]);
    l.0
}

/// (B, C, 1, S), as compiled for the Neural Engine.
fn compiled() -> Graph {
    let mut l = Layer(Graph::new("main"));
    let x = l.0.add_input("x", TensorType::new(DType::F32, [1, C, 1, S]));
    let shape = l.ints(&[1, HEADS as i32, SIZE as i32, S as i32]);
    let merged = l.ints(&[1, C as i32, 1, S as i32]);
    let [q, k, v] = [(); 3].map(|()| {
        let whole = l.conv(x, C, C);
        let x = l.push(Reshape { x: whole, shape });
        l.push_all(Split { x, num_splits: Some(HEADS as i32), split_sizes: None, axis: 1 })
    });
    let heads = (0..HEADS as usize).map(|h| {
        let scores = l.push(Matmul { x: q[h], y: k[h], transpose_x: true, transpose_y: false });
        let shares = l.push(Softmax { x: scores, axis: -1 });
        l.push(Matmul { x: v[h], y: shares, transpose_x: false, transpose_y: true })
    });
    let values = heads.collect();
    let mixed = l.push(Concat { values, axis: 1, interleave: false });
    let mixed = l.push(Reshape { x: mixed, shape: merged });
    let y = l.conv(mixed, C, C);
    let y = l.push(Add { x: y, y: x });
    let attended = l.norm(y, 1);
    let up = l.conv(attended, 4 * C, C);
    let up = l.push(Gelu { x: up, mode: GeluMode::Exact });
    let down = l.conv(up, C, 4 * C);
    let y = l.push(Add { x: down, y: attended });
    let y = l.norm(y, 1);
    l.0.set_outputs(vec![y]);
    l.0
}

fn layer(b: Bencher, graph: &Graph, shape: Vec<usize>, arithmetic: Arithmetic) {
    let session = Session::new(graph, arithmetic).expect("a session");
    let n = shape.iter().product();
    let x = (0..n).map(|i| ((i * 31) % 97) as f32 / 48.0 - 1.0).collect();
    let inputs = BTreeMap::from([("x".to_owned(), Array::f32(shape, x))]);
    b.counter(ItemsCount::new(S)).bench_local(|| session.run(&inputs).expect("a run"));
}

#[divan::bench]
fn source_f32(b: Bencher) {
    layer(b, &source(), vec![1, S as usize, C as usize], Arithmetic::F32);
}

#[divan::bench]
fn source_ane(b: Bencher) {
    layer(b, &source(), vec![1, S as usize, C as usize], Arithmetic::ANE);
}

#[divan::bench]
fn compiled_f32(b: Bencher) {
    layer(b, &compiled(), vec![1, C as usize, 1, S as usize], Arithmetic::F32);
}

#[divan::bench]
fn compiled_ane(b: Bencher) {
    layer(b, &compiled(), vec![1, C as usize, 1, S as usize], Arithmetic::ANE);
}
