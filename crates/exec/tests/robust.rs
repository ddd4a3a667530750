//! Functions that verify never panic: they run, or say which op cannot and why.

use std::collections::BTreeMap;

use russet_exec::{Arithmetic, Array, Env, ExecError, Numbers, Session};
use russet_ir::text::parse;
use russet_ir::{Graph, NodeId, Opset, verify};
use russet_testing::{CaseFile, repository};

fn function(text: &str) -> Graph {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let graph = program.functions.into_iter().next().expect("a function");
    assert_eq!(verify(&graph, Opset::Ios26), [], "{text}");
    graph
}

type Inputs = BTreeMap<String, Array>;

/// Both ways to run; they agree on whether it can be done.
fn run(text: &str, inputs: &Inputs) -> Result<Inputs, ExecError> {
    let graph = function(text);
    let plain = Env::new(&graph, inputs).and_then(|mut env| {
        let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        env.run(&graph, &nodes)
    });
    for arithmetic in [Arithmetic::F32, Arithmetic::ANE] {
        let made = Session::new(&graph, arithmetic).and_then(|s| s.run(inputs));
        assert_eq!(made.is_ok(), plain.is_ok(), "{text}: {:?}, {plain:?}", made.err());
    }
    Session::observable(&graph, Arithmetic::F32).and_then(|s| s.run(inputs))
}

fn input(array: Array) -> Inputs {
    BTreeMap::from([("x".into(), array)])
}

#[test]
fn empty_tensors() {
    let x = input(Array::f32(vec![2, 4], vec![0.5; 8]));
    let cut = "%none = slice_by_size(x=%x, begin=int32[2] [0, 4], size=int32[2] [2, 0])";
    for rest in [
        "%y = softmax(x=%none, axis=-1)",
        "%y = softmax(x=%none, axis=0)",
        "%y = layer_norm(x=%none, axes=[1], epsilon=1e-5)",
        "%y = layer_norm(x=%none, axes=[0], epsilon=1e-5)",
        "%y = gelu(x=%none, mode=\"EXACT\")",
        "%y = add(x=%none, y=%none)",
        "%y = transpose(x=%none, perm=[1, 0])",
        "%y = reshape(x=%none, shape=int32[2] [2, 0])",
        "%y = concat(values=(%none, %x), axis=1, interleave=false)",
        "%y = matmul(x=%none, y=%none, transpose_x=false, transpose_y=true)",
        "%y = matmul(x=%none, y=%none, transpose_x=true, transpose_y=false)",
        "%y = reduce_sum(x=%none, axes=[1], keep_dims=false)",
        "%y = reduce_max(x=%none, axes=[0], keep_dims=true)",
        "%y = reduce_mean(x=%none, keep_dims=false)",
        "%w = const(val=fp32[3, 0] []) %y = linear(x=%none, weight=%w)",
        "%w = const(val=fp32[0, 4] []) %y = linear(x=%x, weight=%w)",
        "%y, %z = split(x=%x, split_sizes=[4, 0], axis=1)",
        "%a, %b = split(x=%x, split_sizes=[4, 0], axis=1) %t = transpose(x=%b, perm=[1, 0]) %y = relu(x=%t)",
        "%y = gather(x=%x, indices=int32[0] [], axis=0, batch_dims=0, validate_indices=false)",
        "%s = matmul(x=%x, y=%none, transpose_x=true, transpose_y=false) %p = softmax(x=%s, axis=-1) %y = matmul(x=%p, y=%none, transpose_x=false, transpose_y=true)",
    ] {
        let text = format!("func main(%x: fp32[2, 4]) {{ {cut} {rest} }} -> %y");
        run(&text, &x).unwrap_or_else(|e| panic!("{e}: {text}"));
    }
}

#[test]
fn scalars_and_other_kinds() {
    let scalar = input(Array::f32(vec![], vec![-2.0]));
    for op in [
        "relu(x=%x)",
        "add(x=%x, y=%x)",
        "reduce_sum(x=%x, keep_dims=false)",
        "layer_norm(x=%x, epsilon=1e-5)",
        "expand_dims(x=%x, axes=[0, -1])",
        "transpose(x=%x, perm=[])",
        "shape(x=%x)",
        "cast(x=%x, dtype=\"bool\")",
    ] {
        let text = format!("func main(%x: fp32) {{ %y = {op} }} -> %y");
        run(&text, &scalar).unwrap_or_else(|e| panic!("{e}: {text}"));
    }
    let ints = input(Array::i32(vec![2, 2], vec![1, -2, i32::MAX, i32::MIN]));
    for op in [
        "add(x=%x, y=%x)",
        "mul(x=%x, y=%x)",
        "abs(x=%x)",
        "reduce_sum(x=%x, axes=[0], keep_dims=false)",
        "transpose(x=%x, perm=[1, 0])",
        "reshape(x=%x, shape=int32[1] [-1])",
        "identity(x=%x)",
        "cast(x=%x, dtype=\"fp32\")",
        "real_div(x=%x, y=%x)",
        "pow(x=%x, y=%x)",
        "gather(x=%x, indices=int32[1] [0], axis=0, batch_dims=0, validate_indices=false)",
    ] {
        let text = format!("func main(%x: int32[2, 2]) {{ %y = {op} }} -> %y");
        if parse(&text).is_ok() {
            let _ = run(&text, &ints); // an error is an answer, a panic is not
        }
    }
}

#[test]
fn what_cannot_be_run_is_named() {
    let x = input(Array::f32(vec![2], vec![1.0, 2.0]));
    let unknown = "func main(%x: fp32[2]) { %y = mystery(x=%x) : fp32[2] } -> %y";
    let error = run(unknown, &x).unwrap_err().to_string();
    assert!(error.contains("mystery") && error.contains('y'), "{error}");
    let outside = "func main(%x: fp32[2]) { %y = gather(x=%x, indices=int32[1] [7], axis=0, batch_dims=0, validate_indices=false) } -> %y";
    assert!(run(outside, &x).unwrap_err().to_string().contains('7'));
    let column = input(Array::f32(vec![70_000, 1], vec![0.0; 70_000]));
    let huge = "func main(%x: fp32[70000, 1]) { %y = matmul(x=%x, y=%x, transpose_x=false, transpose_y=true) } -> %y";
    let error = run(huge, &column);
    assert!(matches!(error, Err(ExecError::TooLarge { .. } | ExecError::Op { .. })), "{error:?}");
}

#[test]
fn a_symbol_may_change_between_runs_and_break_a_pattern() {
    // With T = 1 the mask widens the scores, which is no attention any more.
    let text = "func main(%q: fp32[2, S, 4], %k: fp32[2, T, 4], %m: fp32[2, S, U]) where S in 1..=9, T in 1..=9, U in 1..=9 {
        %s = matmul(x=%q, y=%k, transpose_x=false, transpose_y=true) %a = add(x=%s, y=%m) %p = softmax(x=%a, axis=-1)
        %y = matmul(x=%p, y=%v, transpose_x=false, transpose_y=false) } -> %y";
    let text = text.replace("%m: fp32[2, S, U]", "%m: fp32[2, S, U], %v: fp32[2, U, 4]");
    let graph = function(&text);
    let fused = Session::new(&graph, Arithmetic::F32).unwrap();
    let observable = Session::observable(&graph, Arithmetic::F32).unwrap();
    let some = |shape: Vec<usize>| {
        let n = shape.iter().product::<usize>();
        Array::f32(shape, (0..n).map(|i| (i * 7 % 11) as f32 / 5.0 - 1.0).collect())
    };
    for (s, t, u) in [(3, 5, 5), (3, 1, 5), (1, 1, 1), (2, 4, 5)] {
        let inputs = BTreeMap::from([
            ("q".to_owned(), some(vec![2, s, 4])),
            ("k".to_owned(), some(vec![2, t, 4])),
            ("m".to_owned(), some(vec![2, s, u])),
            ("v".to_owned(), some(vec![2, u, 4])),
        ]);
        let (a, b) = (fused.run(&inputs), observable.run(&inputs));
        assert_eq!(a.is_ok(), b.is_ok(), "{a:?} {b:?}");
        if let (Ok(a), Ok(b)) = (a, b) {
            assert_eq!(a, b);
        }
    }
}

/// The constants called `in_*` as inputs, without their values.
fn opened(text: &str) -> (String, Inputs) {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let graph = &program.functions[0];
    let (mut parameters, mut body, mut inputs) = (Vec::new(), Vec::new(), Inputs::new());
    for line in text.lines() {
        let name = line.trim_start().strip_prefix('%').and_then(|l| l.split(' ').next());
        let is_input = |name: &&str| name.starts_with("in_") && line.contains(" = const(");
        let Some(name) = name.filter(is_input) else {
            body.push(line);
            continue;
        };
        let (v, data) = graph.values().find(|(_, d)| d.name == name).expect("defined");
        parameters.push(format!("%{name}: {}", data.ty));
        let array = Array::from_tensor(graph.constant(v).expect("a constant")).expect("numbers");
        inputs.insert(name.into(), array);
    }
    let text = body.join("\n").replacen("main()", &format!("main({})", parameters.join(", ")), 1);
    (text, inputs)
}

/// Every golden case with integers it does not expect: shapes, indices, lengths and counts from
/// outside are errors or results, never panics or memory.
#[test]
fn hostile_integers() {
    let mut n_runs = 0;
    for file in CaseFile::all(&repository("cases/ops")) {
        for case in file.cases.iter().step_by(3) {
            let (open, inputs) = opened(&case.input);
            let full = inputs.values().all(|a| a.n_elements() > 0);
            if parse(&open).is_err() || !full || !inputs.values().any(|a| a.as_i32().is_some()) {
                continue;
            }
            for hostile in [i32::MAX, i32::MIN, -1, 0] {
                for last_only in [false, true] {
                    let mut wrong = inputs.clone();
                    for array in wrong.values_mut() {
                        let Numbers::I32(ints) = &mut array.data else { continue };
                        let first = if last_only { ints.len() - 1 } else { 0 };
                        ints[first..].fill(hostile);
                    }
                    let _ = run(&open, &wrong);
                    n_runs += 1;
                }
            }
        }
    }
    assert!(n_runs > 1000, "{n_runs} runs: the cases have integers");
}
