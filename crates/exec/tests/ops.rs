//! Every op against the values of an independent implementation: see `bench/golden_ops.py`.

use std::collections::BTreeMap;

use russet_exec::{Arithmetic, Array, Env, Numbers, Session};
use russet_ir::text::parse;
use russet_ir::{DType, Graph, NodeId, Op, Opset, TensorType, verify};
use russet_testing::{CaseFile, repository};

/// How far a result may be from the golden one.
#[derive(Debug, Clone, Copy)]
enum Tolerance {
    /// The same numbers.
    Exact,
    /// Each within this share of itself: functions of one or two numbers.
    Each(f32),
    /// Each within this share of the largest, or of one: sums, whose parts may cancel.
    Largest(f32),
    /// As `Largest`, of an op that is several: fp16 results are rounded as often.
    Several(f32),
}
use Tolerance::*;

/// Ops that are not exact. Those of [`Each`] state the error of their approximation, or a rounding
/// in another place; sums and products are taken in another order than numpy's.
const INEXACT: &[(&str, Tolerance)] = &[
    ("acos", Each(1e-7)),
    ("asin", Each(1e-7)),
    ("atan", Each(1e-7)),
    ("atanh", Each(1e-7)),
    ("cos", Each(1e-7)),
    ("cosh", Each(1e-7)),
    ("elu", Each(1e-7)),
    ("erf", Each(4e-7)),
    ("exp", Each(2e-7)),
    ("exp2", Each(1e-7)),
    ("gelu", Largest(2e-6)),
    ("inverse", Each(2e-7)),
    ("linear_activation", Largest(2e-7)),
    ("log", Each(5e-7)),
    ("mod", Largest(1e-7)),
    ("pow", Each(3e-7)),
    ("rsqrt", Each(3e-7)),
    ("scaled_tanh", Each(1e-7)),
    ("sigmoid", Each(4e-7)),
    ("sigmoid_hard", Largest(2e-7)),
    ("silu", Each(5e-7)),
    ("sin", Each(1e-7)),
    ("sinh", Each(1e-7)),
    ("softplus", Each(1e-7)),
    ("softplus_parametric", Each(1e-7)),
    ("softsign", Each(2e-7)),
    ("tan", Each(1e-7)),
    ("tanh", Each(3e-7)),
    ("conv", Largest(2e-6)),
    ("layer_norm", Largest(2e-6)),
    ("linear", Largest(2e-6)),
    ("einsum", Largest(2e-6)),
    ("matmul", Largest(2e-6)),
    ("cumsum", Largest(2e-7)),
    ("reduce_l1_norm", Largest(2e-7)),
    ("reduce_log_sum", Largest(2e-7)),
    ("reduce_log_sum_exp", Largest(2e-7)),
    ("reduce_prod", Each(2e-7)),
    ("reduce_sum_square", Largest(2e-7)),
    ("reduce_l2_norm", Largest(2e-6)),
    ("reduce_mean", Largest(2e-6)),
    ("reduce_sum", Largest(2e-6)),
    ("softmax", Largest(2e-6)),
    ("affine", Largest(2e-6)),
    ("avg_pool", Largest(2e-7)),
    ("batch_norm", Largest(1e-6)),
    ("conv_transpose", Largest(2e-6)),
    ("crop_resize", Largest(2e-6)),
    ("dequantize", Each(1e-7)),
    ("gru", Largest(2e-6)),
    ("instance_norm", Largest(2e-6)),
    ("l2_norm", Largest(2e-7)),
    ("l2_pool", Largest(3e-7)),
    ("local_response_norm", Largest(3e-7)),
    ("lstm", Largest(2e-6)),
    ("resample", Largest(2e-6)),
    ("resize", Largest(2e-6)),
    ("resize_bilinear", Largest(2e-6)),
    ("rnn", Largest(2e-6)),
    ("scaled_dot_product_attention", Several(2e-6)),
    ("upsample_bilinear", Largest(2e-6)),
];

/// In units of the last place, what fp16 results may differ by when f32 ones do not agree: each side
/// was rounded twice.
const FP16_STEP: f32 = 1.0 / 1024.0;

/// The smallest normal fp16: below it the steps do not shrink.
const FP16_SMALL: f32 = 6.103_515_6e-5;

fn function(text: &str) -> Graph {
    program(text).0
}

fn program(text: &str) -> (Graph, Opset) {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    (program.functions.into_iter().next().expect("a function"), program.opset)
}

/// The constants called `in_*` as inputs: the function's text, and their values.
fn with_inputs(text: &str) -> (String, BTreeMap<String, Array>) {
    let graph = function(text);
    let (mut parameters, mut body) = (Vec::new(), Vec::new());
    let mut inputs = BTreeMap::new();
    for line in text.lines() {
        let name = line.trim_start().strip_prefix("%in_").and_then(|l| l.split(' ').next());
        match name {
            Some(name) if line.contains(" = const(") => {
                let name = format!("in_{name}");
                let (v, data) = graph.values().find(|(_, d)| d.name == name).expect("defined");
                parameters.push(format!("%{name}: {}", data.ty));
                let tensor = graph.constant(v).expect("a constant");
                inputs.insert(name, Array::from_tensor(tensor).expect("numbers"));
            }
            _ => body.push(line),
        }
    }
    let text = body.join("\n").replacen("main()", &format!("main({})", parameters.join(", ")), 1);
    (text, inputs)
}

fn plainly(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Vec<Array> {
    let mut env = Env::new(graph, inputs).expect("inputs that fit");
    let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    env.run(graph, &nodes).expect("an op that runs");
    let value = |&v: &russet_ir::Value| match graph.weight(v) {
        Some(t) => Array::from_tensor(&t).expect("numbers"),
        None => env.get(v).expect("computed").clone(),
    };
    graph.outputs().iter().map(value).collect()
}

/// Numbers that are the same: zeros of either sign, and any NaN.
fn same(a: f32, b: f32) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

fn close(op: &str, dtype: DType, found: &Array, expected: &Array) -> bool {
    if found.shape != expected.shape {
        return false;
    }
    let tolerance = INEXACT.iter().find(|(name, _)| *name == op).map_or(Exact, |(_, t)| *t);
    let (Numbers::F32(a), Numbers::F32(b)) = (&found.data, &expected.data) else {
        return found.data == expected.data;
    };
    let finite = b.iter().filter(|x| x.is_finite());
    let largest = finite.fold(1.0f32, |m, x| m.max(x.abs()));
    let within = |b: f32| match (tolerance, dtype) {
        (Exact, _) => 0.0,
        (Each(_), DType::F16) => FP16_STEP * b.abs().max(FP16_SMALL),
        (Largest(_), DType::F16) => FP16_STEP * largest,
        (Several(_), DType::F16) => 4.0 * FP16_STEP * largest,
        (Each(share), _) => share * b.abs().max(f32::MIN_POSITIVE),
        (Largest(share) | Several(share), _) => share * largest,
    };
    a.iter().zip(b).all(|(&a, &b)| same(a, b) || (a - b).abs() <= within(b))
}

/// What a value of this type can hold of an array: with f32 arithmetic, fp16 is not rounded to.
fn as_stated(array: Array, dtype: DType) -> Array {
    let stated = array.to_tensor(dtype).and_then(|t| Array::from_tensor(&t));
    stated.unwrap_or_else(|| panic!("{array:?} is no {dtype}"))
}

/// Every float of the function is fp16, as on the Neural Engine.
fn is_fp16(graph: &Graph) -> bool {
    let mut dtypes = graph.values().filter_map(|(_, d)| Some(d.ty.tensor()?.dtype));
    let floats: Vec<DType> = dtypes.by_ref().filter(|d| d.is_float()).collect();
    !floats.is_empty() && floats.iter().all(|&d| d == DType::F16)
}

/// The types of a function's outputs, as in its text.
fn types(graph: &Graph) -> Vec<&TensorType> {
    graph.outputs().iter().map(|&v| graph.ty(v).tensor().expect("a tensor")).collect()
}

/// Inputs a function takes: none of them empty.
fn are_inputs(inputs: &BTreeMap<String, Array>) -> bool {
    inputs.values().all(|a| a.n_elements() > 0)
}

/// Everything wrong with one case, in words.
fn check(op: &str, input: &str, expected: &str) -> Vec<String> {
    let golden = function(expected);
    let expected = plainly(&golden, &BTreeMap::new());
    let (open, inputs) = with_inputs(input);
    let (graph, opset) = program(input);
    let mut sides = vec![(graph, BTreeMap::new())];
    if are_inputs(&inputs) && parse(&open).is_ok() {
        sides.push((function(&open), inputs));
    }
    let mut wrong = Vec::new();
    for (graph, inputs) in sides {
        assert_eq!(verify(&graph, opset), [], "{input}");
        let fits = |(a, b): (&&TensorType, &&TensorType)| a.agrees(b);
        if !types(&graph).iter().zip(&types(&golden)).all(fits) {
            wrong.push(format!("types: {:?}\n{input}", types(&graph)));
            continue;
        }
        let mut compare = |how: &str, found: Vec<Array>| {
            let stated = types(&golden).into_iter().map(|t| t.dtype);
            let found: Vec<_> = found.into_iter().zip(stated).collect();
            let pairs = found.iter().zip(&expected);
            let right = |((a, dtype), b): (&(Array, DType), &Array)| {
                close(op, *dtype, &as_stated(a.clone(), *dtype), b)
            };
            if found.len() != expected.len() || !pairs.clone().all(right) {
                wrong.push(format!("{how}: {found:?}\nexpected: {expected:?}\n{input}"));
            }
        };
        compare("plain", plainly(&graph, &inputs));
        let arithmetics: &[Arithmetic] = match is_fp16(&graph) {
            true => &[Arithmetic::F32, Arithmetic::FP16],
            false => &[Arithmetic::F32],
        };
        for &arithmetic in arithmetics {
            let session = Session::new(&graph, arithmetic).expect("a session");
            let mut made = session.run(&inputs).expect("a run");
            let names = graph.outputs().iter().map(|&v| &graph.value(v).name);
            let found = names.map(|n| made.remove(n).expect("an output")).collect();
            compare(&format!("{arithmetic:?} session"), found);
        }
    }
    wrong
}

#[test]
fn every_op_has_the_golden_values() {
    let mut wrong: Vec<String> = Vec::new();
    let mut counts = BTreeMap::new();
    let files = CaseFile::all(&repository("cases/ops"));
    for file in &files {
        let checked = file.cases.iter().flat_map(|c| check(file.name(), &c.input, &c.expected));
        let first = wrong.len();
        wrong.extend(checked);
        if wrong.len() > first {
            counts.insert(file.name(), wrong.len() - first);
            // A few of each op are enough to see what is wrong.
            wrong.truncate(first + 4);
        }
    }
    assert!(wrong.is_empty(), "wrong: {counts:?}\n{}", wrong.join("\n\n"));
}

/// Ops that one function without inputs cannot show, and the tests that do.
const ELSEWHERE: &[(&str, &str)] = &[
    ("read_state", "programs.rs: states live between runs"),
    ("write_state", "programs.rs: states live between runs"),
    ("classify", "programs.rs: its label is no number"),
];

#[test]
fn every_declared_op_has_cases() {
    for name in Op::DECLARED.iter().map(|d| d.name) {
        if ELSEWHERE.iter().any(|(op, _)| *op == name) {
            continue;
        }
        let path = repository("cases/ops").join(format!("{name}.case"));
        assert!(path.exists(), "{name} has no case");
    }
}
