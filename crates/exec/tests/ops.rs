//! Every op against the values of an independent implementation: see `bench/golden_ops.py`.

use std::collections::BTreeMap;

use russet_exec::{Arithmetic, Array, Env, Numbers, Session};
use russet_ir::text::parse;
use russet_ir::{Graph, NodeId, Op, Opset, verify};
use russet_testing::{CaseFile, repository};

/// Ops that only move or compare: their results are exact.
const INEXACT: [&str; 24] = [
    "pow",
    "erf",
    "exp",
    "gelu",
    "log",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "softmax",
    "layer_norm",
    "linear",
    "matmul",
    "conv",
    "reduce_sum",
    "reduce_mean",
    "reduce_l2_norm",
    "real_div",
    "add",
    "sub",
    "mul",
    "square",
    "clip",
];

fn function(text: &str) -> Graph {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    program.functions.into_iter().next().expect("a function")
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
    let value = |&v: &russet_ir::Value| match graph.constant(v) {
        Some(t) => Array::from_tensor(t).expect("numbers"),
        None => env.get(v).expect("computed").clone(),
    };
    graph.outputs().iter().map(value).collect()
}

fn close(op: &str, found: &Array, expected: &Array) -> bool {
    if found.shape != expected.shape {
        return false;
    }
    match (&found.data, &expected.data) {
        (Numbers::F32(a), Numbers::F32(b)) if INEXACT.contains(&op) => {
            let largest = b.iter().fold(1.0f32, |m, x| m.max(x.abs()));
            a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 2e-6 * largest || a == b)
        }
        (a, b) => a == b,
    }
}

#[test]
fn every_op_has_the_golden_values() {
    let files = CaseFile::all(&repository("cases/ops"));
    let mut wrong = Vec::new();
    for file in &files {
        for case in &file.cases {
            let expected = plainly(&function(&case.expected), &BTreeMap::new());
            let mut check = |how: &str, found: Vec<Array>| {
                if !found.iter().zip(&expected).all(|(a, b)| close(file.name(), a, b)) {
                    wrong.push(format!("{how}: {found:?}\nexpected: {expected:?}\n{}", case.input));
                }
            };
            let (open, inputs) = with_inputs(&case.input);
            let mut sides = vec![(function(&case.input), BTreeMap::new())];
            if parse(&open).is_ok() {
                sides.push((function(&open), inputs));
            }
            for (graph, inputs) in sides {
                assert_eq!(verify(&graph, Opset::Ios26), [], "{}", case.input);
                check("plain", plainly(&graph, &inputs));
                let session = Session::new(&graph, Arithmetic::F32).expect("a session");
                let mut made = session.run(&inputs).expect("a run");
                let names = graph.outputs().iter().map(|&v| &graph.value(v).name);
                check("session", names.map(|n| made.remove(n).expect("an output")).collect());
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn every_declared_op_has_cases() {
    for name in Op::DECLARED.iter().map(|d| d.name) {
        let path = repository("cases/ops").join(format!("{name}.case"));
        assert!(path.exists(), "{name} has no case");
    }
}
