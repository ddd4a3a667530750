//! A session has the bits of its ops run one by one, whatever it fuses, for any number of threads.

use std::collections::BTreeMap;
use std::fmt::Write;

use russet_exec::ane::{Ane, Family, Rule};
use russet_exec::{Arithmetic, Array, Env, Session};
use russet_ir::text::parse;
use russet_ir::{Graph, NodeId, Opset, verify};

const ARITHMETICS: [Arithmetic; 5] = [
    Arithmetic::F32,
    Arithmetic::ANE,
    Arithmetic::Bf16,
    Arithmetic::Ane(Ane::of(Family::H13)),
    Arithmetic::Ane(Ane::of(Family::H16).without(Rule::Fp16Residual)),
];

/// Numbers by a linear congruence: the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next(4001) as f32 / 2000.0 - 1.0).collect()
    }
}

fn function(text: &str) -> Graph {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let graph = program.functions.into_iter().next().expect("a function");
    assert_eq!(verify(&graph, Opset::Ios26), [], "{text}");
    graph
}

fn bits(arrays: &BTreeMap<String, Array>) -> BTreeMap<&str, (Vec<usize>, Vec<u32>)> {
    let bits = |a: &Array| match a.as_f32() {
        Some(x) => x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect(),
        None => a.as_i32().unwrap_or_default().iter().map(|&i| i as u32).collect(),
    };
    arrays.iter().map(|(n, a)| (n.as_str(), (a.shape.clone(), bits(a)))).collect()
}

/// The fused session, the observable one, the ops one by one: on one thread and on three.
fn check(graph: &Graph, inputs: &[BTreeMap<String, Array>]) {
    for arithmetic in ARITHMETICS {
        let fused = Session::new(graph, arithmetic).expect("a session");
        let observable = Session::observable(graph, arithmetic).expect("a session");
        for inputs in inputs {
            let on = |n, session: &Session| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
                pool.install(|| session.run(inputs)).expect("a run")
            };
            let expected = on(1, &observable);
            for found in [on(1, &fused), on(3, &fused), on(3, &observable), on(3, &fused)] {
                assert_eq!(bits(&found), bits(&expected), "{arithmetic:?}");
            }
            let mut env = Env::with(graph, inputs, arithmetic).expect("inputs that fit");
            let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
            env.run(graph, &nodes).expect("ops that run");
            let outputs = graph.outputs().iter();
            let plain = outputs
                .map(|&v| (graph.value(v).name.clone(), env.get(v).expect("computed").clone()));
            assert_eq!(bits(&plain.collect()), bits(&expected), "{arithmetic:?}");
        }
    }
}

/// Lines of a function, with constants of random numbers.
struct Text {
    lines: String,
    random: Random,
}

impl Text {
    fn constant(&mut self, name: &str, shape: &[usize]) {
        let numbers: Vec<String> =
            self.random.floats(shape.iter().product()).iter().map(|x| format!("{x:?}")).collect();
        let _ = writeln!(self.lines, "%{name} = const(val=fp32{shape:?} [{}])", numbers.join(", "));
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.lines, "{line}");
    }
}

const BATCH: usize = 2;
const HEADS: usize = 3;
const SIZE: usize = 8;
const C: usize = HEADS * SIZE;

/// Two layers as exported: (B, S, C), all heads in one product.
fn source(random: u64) -> String {
    let mut t = Text { lines: String::new(), random: Random(random) };
    t.line(&format!("%heads = const(val=int32[4] [{BATCH}, -1, {HEADS}, {SIZE}])"));
    t.line(&format!("%merged = const(val=int32[3] [{BATCH}, -1, {C}])"));
    t.line("%scale = const(val=fp32 [0.35])");
    let mut x = "x".to_owned();
    for l in 0..2 {
        for part in ["q", "k", "v"] {
            t.constant(&format!("w{part}{l}"), &[C, C]);
            t.constant(&format!("b{part}{l}"), &[C]);
            t.line(&format!("%{part}{l} = linear(x=%{x}, weight=%w{part}{l}, bias=%b{part}{l})"));
            t.line(&format!("%{part}s{l} = reshape(x=%{part}{l}, shape=%heads)"));
            t.line(&format!("%{part}h{l} = transpose(x=%{part}s{l}, perm=[0, 2, 1, 3])"));
        }
        t.line(&format!("%s{l} = matmul(x=%qh{l}, y=%kh{l}, transpose_x=false, transpose_y=true)"));
        t.line(&format!("%ss{l} = mul(x=%s{l}, y=%scale)"));
        t.line(&format!("%sm{l} = add(x=%ss{l}, y=%mask)"));
        t.line(&format!("%p{l} = softmax(x=%sm{l}, axis=-1)"));
        t.line(&format!("%m{l} = matmul(x=%p{l}, y=%vh{l}, transpose_x=false, transpose_y=false)"));
        t.line(&format!("%mt{l} = transpose(x=%m{l}, perm=[0, 2, 1, 3])"));
        t.line(&format!("%c{l} = reshape(x=%mt{l}, shape=%merged)"));
        for (part, n, depth) in [("o", C, C), ("u", 2 * C, C), ("d", C, 2 * C)] {
            t.constant(&format!("w{part}{l}"), &[n, depth]);
            t.constant(&format!("b{part}{l}"), &[n]);
        }
        t.constant(&format!("g{l}"), &[C]);
        t.line(&format!("%o{l} = linear(x=%c{l}, weight=%wo{l}, bias=%bo{l})"));
        t.line(&format!("%r{l} = add(x=%o{l}, y=%{x})"));
        t.line(&format!(
            "%n{l} = layer_norm(x=%r{l}, axes=[-1], gamma=%g{l}, beta=%bo{l}, epsilon=1e-5)"
        ));
        t.line(&format!("%u{l} = linear(x=%n{l}, weight=%wu{l}, bias=%bu{l})"));
        t.line(&format!("%a{l} = gelu(x=%u{l}, mode=\"EXACT\")"));
        t.line(&format!("%d{l} = linear(x=%a{l}, weight=%wd{l}, bias=%bd{l})"));
        t.line(&format!("%e{l} = add(x=%d{l}, y=%n{l})"));
        t.line(&format!(
            "%y{l} = layer_norm(x=%e{l}, axes=[-1], gamma=%g{l}, beta=%bo{l}, epsilon=1e-5)"
        ));
        x = format!("y{l}");
    }
    format!(
        "func main(%x: fp32[{BATCH}, S, {C}], %mask: fp32[{BATCH}, 1, 1, S]) where S in 1..=200 {{\n{}}} -> (%y1, %c0)",
        t.lines
    )
}

/// One layer as the Neural Engine has it: (B, C, 1, S), 1x1 convolutions, a product per head.
fn compiled(random: u64, s: usize) -> String {
    let mut t = Text { lines: String::new(), random: Random(random) };
    t.line(&format!("%heads = const(val=int32[4] [{BATCH}, {HEADS}, {SIZE}, -1])"));
    t.line(&format!("%merged = const(val=int32[4] [{BATCH}, {C}, 1, -1])"));
    let conv = |y: &str, x: &str, w: &str| {
        format!(
            "%{y} = conv(x=%{x}, weight=%w{w}, bias=%b{w}, strides=[1, 1], pad_type=\"valid\", pad=[0, 0, 0, 0], dilations=[1, 1], groups=1)"
        )
    };
    for (part, n, depth) in
        [("q", C, C), ("k", C, C), ("v", C, C), ("o", C, C), ("u", 2 * C, C), ("d", C, 2 * C)]
    {
        t.constant(&format!("w{part}"), &[n, depth, 1, 1]);
        t.constant(&format!("b{part}"), &[n]);
    }
    t.constant("g", &[C]);
    for part in ["q", "k", "v"] {
        t.line(&conv(part, "x", part));
        t.line(&format!("%{part}s = reshape(x=%{part}, shape=%heads)"));
        let parts: Vec<String> = (0..HEADS).map(|h| format!("%{part}{h}")).collect();
        t.line(&format!("{} = split(x=%{part}s, num_splits={HEADS}, axis=1)", parts.join(", ")));
    }
    for h in 0..HEADS {
        t.line(&format!("%s{h} = matmul(x=%q{h}, y=%k{h}, transpose_x=true, transpose_y=false)"));
        t.line(&format!("%m{h} = add(x=%mask, y=%s{h})"));
        t.line(&format!("%p{h} = softmax(x=%m{h}, axis=-1)"));
        t.line(&format!("%h{h} = matmul(x=%v{h}, y=%p{h}, transpose_x=false, transpose_y=true)"));
    }
    let heads: Vec<String> = (0..HEADS).map(|h| format!("%h{h}")).collect();
    t.line(&format!("%joined = concat(values=({}), axis=1, interleave=false)", heads.join(", ")));
    t.line("%c = reshape(x=%joined, shape=%merged)");
    t.line(&conv("o", "c", "o"));
    t.line("%r = add(x=%o, y=%x)");
    t.line("%n = layer_norm(x=%r, axes=[1], gamma=%g, beta=%bo, epsilon=1e-5)");
    t.line(&conv("u", "n", "u"));
    t.line("%a = gelu(x=%u, mode=\"EXACT\")");
    t.line(&conv("d", "a", "d"));
    t.line("%e = add(x=%d, y=%n)");
    t.line("%y = layer_norm(x=%e, axes=[1], gamma=%g, beta=%bo, epsilon=1e-5)");
    format!(
        "func main(%x: fp32[{BATCH}, {C}, 1, {s}], %mask: fp32[{BATCH}, 1, 1, {s}]) {{\n{}}} -> (%y, %joined)",
        t.lines
    )
}

fn encoder_inputs(x: Vec<usize>, s: usize) -> BTreeMap<String, Array> {
    let mut random = Random(s as u64);
    let n = x.iter().product();
    let hidden = |i: usize| if i % s >= s - s / 4 { -10_000.0 } else { 0.0 };
    let mask = Array::f32(vec![BATCH, 1, 1, s], (0..BATCH * s).map(hidden).collect());
    BTreeMap::from([("x".into(), Array::f32(x, random.floats(n))), ("mask".into(), mask)])
}

#[test]
fn an_encoder_as_exported() {
    let graph = function(&source(1));
    let inputs = [5, 1, 40, 130].map(|s| encoder_inputs(vec![BATCH, s, C], s));
    check(&graph, &inputs);
    let session = Session::new(&graph, Arithmetic::F32).unwrap();
    let profile = session.profile(&inputs[0]).unwrap();
    let steps = |op| profile.entries.iter().find(|e| e.op == op).map(|e| e.n_steps);
    // Query, key and value are one product; the rest are three.
    assert_eq!((steps("attention"), steps("linear"), steps("softmax")), (Some(2), Some(8), None));
}

#[test]
fn an_encoder_for_the_neural_engine() {
    for s in [5, 130] {
        let graph = function(&compiled(2, s));
        check(&graph, &[encoder_inputs(vec![BATCH, C, 1, s], s)]);
        let session = Session::new(&graph, Arithmetic::F32).unwrap();
        let profile = session.profile(&encoder_inputs(vec![BATCH, C, 1, s], s)).unwrap();
        let steps = |op| profile.entries.iter().find(|e| e.op == op).map(|e| e.n_steps);
        assert_eq!((steps("attention"), steps("conv"), steps("concat")), (Some(1), Some(4), None));
    }
}

/// A random function on (2, 3, 4, 6) tensors: elementwise ops, norms, views, products.
fn any(seed: u64) -> String {
    let mut t = Text { lines: String::new(), random: Random(seed) };
    t.constant("w", &[6, 6]);
    t.constant("w2", &[4, 6]);
    t.constant("b", &[6]);
    t.constant("kernel", &[3, 3, 1, 1]);
    t.constant("row", &[6]);
    t.line("%flat = const(val=int32[2] [24, 6])");
    t.line("%back = const(val=int32[4] [2, 3, 4, 6])");
    let mut made = vec!["x".to_owned(), "z".to_owned()];
    for i in 0..24 {
        let pick = |r: &mut Random| made[r.next(made.len() as u64) as usize].clone();
        let (a, b) = (pick(&mut t.random), pick(&mut t.random));
        let v = format!("v{i}");
        let line = match t.random.next(16) {
            0 => format!("add(x=%{a}, y=%{b})"),
            1 => format!("mul(x=%{a}, y=%row)"),
            2 => format!("sub(x=%{a}, y=%{b})"),
            3 => format!("gelu(x=%{a}, mode=\"EXACT\")"),
            4 => format!("softmax(x=%{a}, axis={})", t.random.next(4)),
            5 => format!("layer_norm(x=%{a}, axes=[-1], gamma=%b, beta=%row, epsilon=1e-3)"),
            6 => format!("layer_norm(x=%{a}, axes=[{}], epsilon=1e-3)", t.random.next(4)),
            7 | 8 => format!("linear(x=%{a}, weight=%w, bias=%b)"),
            9 | 10 => format!(
                "conv(x=%{a}, weight=%kernel, strides=[1, 1], pad_type=\"valid\", pad=[0, 0, 0, 0], dilations=[1, 1], groups=1)"
            ),
            11 => {
                t.line(&format!("%{v}t = transpose(x=%{a}, perm=[1, 2, 3, 0])"));
                t.line(&format!("%{v}s = softmax(x=%{v}t, axis=1)"));
                format!("transpose(x=%{v}s, perm=[3, 0, 1, 2])")
            }
            12 => {
                t.line(&format!(
                    "%{v}s = matmul(x=%{a}, y=%{b}, transpose_x=false, transpose_y=true)"
                ));
                t.line(&format!("%{v}p = softmax(x=%{v}s, axis=-1)"));
                format!("matmul(x=%{v}p, y=%{b}, transpose_x=false, transpose_y=false)")
            }
            13 => {
                t.line(&format!("%{v}f = reshape(x=%{a}, shape=%flat)"));
                t.line(&format!("%{v}g = relu(x=%{v}f)"));
                format!("reshape(x=%{v}g, shape=%back)")
            }
            14 => {
                t.line(&format!(
                    "%{v}l, %{v}m, %{v}r = split(x=%{a}, split_sizes=[1, 3, 2], axis=3)"
                ));
                format!("concat(values=(%{v}r, %{v}l, %{v}m), axis=3, interleave=false)")
            }
            _ => format!("tanh(x=%{a})"),
        };
        t.line(&format!("%{v} = {line}"));
        made.push(v);
    }
    let shape = "fp32[2, 3, 4, 6]";
    format!("func main(%x: {shape}, %z: {shape}) {{\n{}}} -> (%v23, %v20, %v11)", t.lines)
}

#[test]
fn random_functions() {
    for seed in 0..120 {
        let graph = function(&any(seed));
        let mut random = Random(seed + 1000);
        let mut array = || Array::f32(vec![2, 3, 4, 6], random.floats(144));
        check(&graph, &[BTreeMap::from([("x".into(), array()), ("z".into(), array())])]);
    }
}

/// Either product could take the sum along; one does.
#[test]
fn a_sum_of_two_products() {
    for sum in ["add(x=%l, y=%r)", "add(x=%g, y=%r)", "add(x=%r, y=%g)"] {
        let graph = function(&format!(
            "func main(%x: fp32[2, 3], %z: fp32[2, 3]) {{
              %w = const(val=fp32[2, 3] [0.5, -1.0, 2.0, 1.5, 0.25, -0.75])
              %b = const(val=fp32[2] [0.125, -2.0])
              %l = linear(x=%x, weight=%w, bias=%b)
              %g = gelu(x=%l, mode=\"EXACT\")
              %r = linear(x=%z, weight=%w, bias=%b)
              %y = {sum}
            }} -> %y"
        ));
        let array = |k: f32| Array::f32(vec![2, 3], (0..6).map(|i| i as f32 * k - 1.0).collect());
        check(&graph, &[BTreeMap::from([("x".into(), array(0.5)), ("z".into(), array(-0.75))])]);
    }
}
