//! What takes more than one op or one run: states, labels, weights decoded while they are used.

use std::collections::BTreeMap;

use russet_exec::{Arithmetic, Array, Session};
use russet_ir::ops::{Add, Const, ConstexprBlockwiseShiftScale, Conv, Linear};
use russet_ir::text::parse;
use russet_ir::{DType, Graph, Op, Tensor, TensorType, Value};
use russet_testing::Random;

fn function(text: &str) -> Graph {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    program.functions.into_iter().next().expect("a function")
}

fn inputs(x: &[f32]) -> BTreeMap<String, Array> {
    BTreeMap::from([("x".into(), Array::f32(vec![x.len()], x.to_vec()))])
}

const COUNTER: &str = "program ios18
func main(%x: fp16[2], %sum: state<fp16[2]>) {
  %before = read_state(input=%sum)
  %more = add(x=%before, y=%x)
  write_state(input=%sum, data=%more)
  %after = read_state(input=%sum)
  %two = const(val=fp16 [2.0])
  %y = mul(x=%after, y=%two)
} -> (%before, %y)
";

#[test]
fn states_are_kept_between_runs_and_nowhere_else() {
    let graph = function(COUNTER);
    for arithmetic in [Arithmetic::F32, Arithmetic::ANE] {
        let session = Session::new(&graph, arithmetic).expect("a session");
        let mut states = BTreeMap::new();
        for (x, before, y) in
            [([1.0, 2.0], [0.0, 0.0], [2.0, 4.0]), ([0.5, 4.0], [1.0, 2.0], [3.0, 12.0])]
        {
            let made = session.run_stateful(&inputs(&x), &mut states).expect("a run");
            assert_eq!(made["before"], Array::f32(vec![2], before.to_vec()));
            assert_eq!(made["y"], Array::f32(vec![2], y.to_vec()));
        }
        assert_eq!(states["sum"], Array::f32(vec![2], vec![1.5, 6.0]));
        // A run on its own begins anew, and leaves no trace.
        let made = session.run(&inputs(&[3.0, 3.0])).expect("a run");
        assert_eq!(made["before"], Array::f32(vec![2], vec![0.0; 2]));
        // A state may be given.
        states.insert("sum".into(), Array::f32(vec![2], vec![10.0, 20.0]));
        let made = session.run_stateful(&inputs(&[1.0, 1.0]), &mut states).expect("a run");
        assert_eq!(made["y"], Array::f32(vec![2], vec![22.0, 42.0]));
        states.insert("sum".into(), Array::f32(vec![3], vec![0.0; 3]));
        assert!(session.run_stateful(&inputs(&[1.0, 1.0]), &mut states).is_err());
    }
}

#[test]
fn a_loop_writes_states_too() {
    let graph = function(
        "program ios18
func main(%x: fp32[2], %sum: state<fp32[2]>) {
  %zero = const(val=int32 [0])
  %one = const(val=int32 [1])
  %three = const(val=int32 [3])
  %n = while_loop(loop_vars=(%zero)) { |%i: int32|
    %go = less(x=%i, y=%three)
  } -> %go { |%j: int32|
    %held = read_state(input=%sum)
    %more = add(x=%held, y=%x)
    write_state(input=%sum, data=%more)
    %next = add(x=%j, y=%one)
  } -> %next
  %y = read_state(input=%sum)
} -> (%y, %n)
",
    );
    let session = Session::new(&graph, Arithmetic::F32).expect("a session");
    let mut states = BTreeMap::new();
    session.run_stateful(&inputs(&[1.0, -1.0]), &mut states).expect("a run");
    let made = session.run_stateful(&inputs(&[1.0, -1.0]), &mut states).expect("a run");
    assert_eq!(made["y"], Array::f32(vec![2], vec![6.0, -6.0]));
    assert_eq!(made["n"], Array::i32(vec![], vec![3]));
}

#[test]
fn a_loop_without_an_end_is_stopped() {
    let graph = function(
        "func main(%x: fp32[1]) {
  %y = while_loop(loop_vars=(%x)) { |%i: fp32[1]|
    %go = const(val=bool [true])
  } -> %go { |%j: fp32[1]|
    %same = identity(x=%j)
  } -> %same
} -> %y
",
    );
    let session = Session::new(&graph, Arithmetic::F32).expect("a session");
    let error = session.run(&inputs(&[1.0])).expect_err("no end");
    assert!(error.to_string().contains("did not end"), "{error}");
}

#[test]
fn a_label_is_the_place_of_the_largest() {
    let graph = function(
        "func main(%x: fp32[3]) {
  %names = const(val=string[3] [\"cat\", \"dog\", \"fox\"])
  %label, %all = classify(probabilities=%x, classes=%names)
} -> (%label, %all)
",
    );
    let session = Session::new(&graph, Arithmetic::F32).expect("a session");
    let made = session.run(&inputs(&[0.2, 0.7, 0.1])).expect("a run");
    assert_eq!(made["label"], Array::i32(vec![], vec![1]));
    assert_eq!(made["all"], Array::f32(vec![3], vec![0.2, 0.7, 0.1]));
}

/// A linear layer (or a 1x1 convolution) with what follows it, its weight compressed or not.
fn layer(rng: &mut Random, conv: bool, compressed: bool) -> Graph {
    let (n_out, depth) = (300u64, 512u64);
    let mut g = Graph::new("main");
    let shape = if conv { vec![1, depth, 1, 7] } else { vec![7, depth] };
    let x = g.add_input("x", TensorType::new(DType::F32, shape));
    let tail: &[u64] = if conv { &[1, 1] } else { &[] };
    let bytes: Vec<u8> = (0..n_out * depth).map(|_| rng.below(256) as u8).collect();
    let whole = [&[n_out, depth][..], tail].concat();
    let data = Tensor::new(DType::I8, whole.clone(), bytes.into()).expect("a byte each");
    let data = g.push_const(data, "data");
    let scale: Vec<f32> = (0..n_out * 4).map(|i| 0.001 + i as f32 * 1e-6).collect();
    let scale = Tensor::f32([&[n_out, 4][..], tail].concat(), &scale);
    let scale = g.push_const(scale, "scale");
    let op = ConstexprBlockwiseShiftScale { data, scale, offset: None };
    let mut weight = g.push(op, "weight").expect("a weight")[0];
    if !compressed {
        let decoded = Tensor::f32(whole, &g.weight(weight).expect("a weight").to_f32());
        weight = g.push(Const { val: decoded }, "decoded").expect("a constant")[0];
    }
    let bias: Vec<f32> = (0..n_out).map(|i| i as f32 * 0.01 - 1.0).collect();
    let bias = Some(g.push_const(Tensor::f32(vec![n_out], &bias), "bias"));
    let op: Op = match conv {
        true => Conv::pointwise(x, weight, bias).into(),
        false => Linear { x, weight, bias }.into(),
    };
    let h: Value = g.push(op, "h").expect("a product")[0];
    let residual = g.add_input("r", g.ty(h).clone());
    let y = g.push(Add { x: h, y: residual }, "y").expect("a sum")[0];
    g.set_outputs(vec![y]);
    g
}

#[test]
fn weights_decoded_while_they_are_used_change_no_bit() {
    for (conv, arithmetic) in [
        (false, Arithmetic::F32),
        (true, Arithmetic::F32),
        (false, Arithmetic::ANE),
        (true, Arithmetic::ANE),
    ] {
        let graphs = [true, false].map(|compressed| layer(&mut Random::new(7), conv, compressed));
        let mut rng = Random::new(8);
        let inputs: BTreeMap<String, Array> = graphs[0]
            .inputs()
            .iter()
            .map(|&v| {
                let shape: Vec<usize> =
                    graphs[0].shape(v).iter().map(|d| d.fixed().unwrap() as usize).collect();
                let n = shape.iter().product();
                let data = (0..n).map(|_| rng.below(2001) as f32 / 1000.0 - 1.0).collect();
                (graphs[0].value(v).name.clone(), Array::f32(shape, data))
            })
            .collect();
        let [a, b] = graphs
            .map(|g| Session::new(&g, arithmetic).expect("a session").run(&inputs).expect("a run"));
        assert_eq!(a, b);
    }
}
