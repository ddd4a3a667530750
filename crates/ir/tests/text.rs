//! The text form prints and parses without loss, and the verifier finds what is wrong.

use russet_ir::ops::{Conv, Softmax};
use russet_ir::text::{Store, Weights, parse, parse_with, print};
use russet_ir::{
    DType, Dim, Edit, Graph, Opset, Origin, Program, Symbol, Tensor, TensorType, verify_program,
};

const EVERYTHING: &str = r#"program ios18
meta "author" = "a \"quoted\" name\n"
func main(%ids: int32[1, S], %x: fp16[1, 8, 1, S], %p: bool) where S in [64, 128] {
  %w = const(val=fp16[4, 8, 1, 1] hex"00010203040506070809000102030405060708090001020304050607080900010203040506070809000102030405060708090001020304050607080900010203")
  %b = const(val=fp16[4] [0.1, -2.0, inf, 6e-8]) from "proj.bias"
  %y = conv(x=%x, weight=%w, bias=%b, strides=[1, 1], pad_type="valid", pad=[0, 0, 0, 0], dilations=[1, 1], groups=1) from "encoder.proj" by linear-to-conv, fold
  %shape = const(val=int32[4] [1, 2, 2, -1])
  %r = reshape(x=%y, shape=%shape)
  %h0, %h1 = split(x=%r, num_splits=2, axis=1)
  %c = concat(values=(%h0, %h1), axis=1, interleave=false)
  %s = softmax(x=%c, axis=-1)
  %d = shape(x=%ids)
  %n = layer_norm(x=%s, axes=[2], epsilon=1e-12)
  %k = cond(pred=%p) {
    %k1 = relu(x=%n)
  } -> %k1 {
    %k2 = tanh(x=%n)
  } -> %k2
  %o = mystery(left=(%k), right=(%s, %n)) : fp16[1, S], list<fp16[2], 3>
  %int = const(val=uint6[4] [1, 2, 63, 0])
  %odd = const(val=int4[3] hex"1f02")
  %one = const(val=fp16 [0.5])
  %str = const(val=string[2] ["a", "b\\c"])
} -> (%k, %d, %int, %odd, %one, %str, %o)
"#;

#[test]
fn printing_and_parsing_lose_nothing() {
    // An op with two outputs needs two names; the unknown one above is given the second here.
    let text = EVERYTHING.replace("%o = mystery", "%o, %o2 = mystery");
    let program = parse(&text).unwrap();
    assert_eq!(print(&program, Weights::Inline), text);
    assert_eq!(verify_program(&program), []);
    let mut store = Store::default();
    let short = print(&program, Weights::Stored(&mut store));
    assert!(short.contains('#') && short.len() < text.len());
    let again = parse_with(&short, &store).unwrap();
    assert_eq!(print(&again, Weights::Inline), text);
}

#[test]
fn every_short_float_reads_back() {
    for bits in (0..=u16::MAX).step_by(7) {
        let t = Tensor::new(DType::F16, vec![1], bits.to_le_bytes().to_vec().into()).unwrap();
        let mut g = Graph::new("main");
        let v = g.push_const(t.clone(), "c");
        g.set_outputs(vec![v]);
        let program = Program::new(Opset::Ios18, vec![g]);
        let again = parse(&print(&program, Weights::Inline)).unwrap();
        let c = again.functions[0].constant(again.functions[0].outputs()[0]).unwrap();
        assert_eq!(c.to_bytes(), t.to_bytes(), "{bits:#06x}");
    }
}

#[test]
fn errors_say_where() {
    let cases = [
        ("func f(%x: fp16[2]) {\n %y = relu(x=%z)\n} -> %y", 2, "`%z` is not defined"),
        ("func f() {\n\n %y = nope()\n} -> %y", 3, "no op `nope`"),
        ("func f(%x: fp16[2]) { %y = relu(x=%x, x=%x) } -> %y", 1, "no parameter `x`"),
        ("func f(%x: fp16[2]) { %y = softmax(x=%x, axis=1) } -> %y", 1, "axis 1 does not exist"),
        (
            "func f(%x: fp16[1, 4, 8], %w: fp16[4, 4, 0]) { %y = conv(x=%x, weight=%w, pad_type=\"same\") } -> %y",
            1,
            "a kernel of extents [0]",
        ),
        ("func f(%x: int9[2]) {", 1, "no type `int9`"),
        ("func f(%x: fp16[99999999999999999999]) {", 1, "too large"),
        ("program ios18 func f() { %c = const(val=fp16[2] [1]) } -> %c", 1, "needs 4 bytes"),
        (
            "program ios15 func f(%x: fp16[2], %i: int32[1]) { %y = gather(x=%x, indices=%i, batch_dims=0) } -> %y",
            1,
            "exists from ios16",
        ),
    ];
    for (text, line, message) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.line == line && error.message.contains(message), "{error}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let mut text = String::from("func f(%p: bool, %x: fp16[1]) {");
    text.extend((0..10_000).map(|i| format!("%a{i} = cond(pred=%p) {{")));
    assert!(parse(&text).unwrap_err().message.contains("too deeply"));
    assert!(parse(&format!("func f(%x: {}", "list<".repeat(10_000))).is_err());
}

#[test]
fn the_verifier_returns_all_findings() {
    let mut g = Graph::new("main");
    let x = g.add_input("x", TensorType::new(DType::F16, [2u64, 4]));
    let y = g.push(Softmax { x, axis: 1 }, "bad name").unwrap()[0];
    let z = g.push(Softmax { x: y, axis: 0 }, "x").unwrap()[0];
    g.set_origin(z, Origin::source("layers.3"));
    g.set_outputs(vec![z]);
    let program = Program::new(Opset::Ios15, vec![g]);
    let codes: Vec<_> = verify_program(&program).into_iter().map(|f| f.code).collect();
    assert_eq!(codes, ["bad-name", "duplicate-name"]);
}

#[test]
fn binding_makes_every_shape_a_number() {
    let text = EVERYTHING.replace("%o = mystery", "%o, %o2 = mystery");
    let graph = &parse(&text).unwrap().functions[0];
    assert!(graph.is_symbolic());
    let bound = graph.bind(&[(Symbol::new("S"), 64)].into()).unwrap();
    let k = bound.outputs()[0];
    assert_eq!(bound.shape(k), [1, 2, 2, 64].map(Dim::Fixed));
    assert_eq!(bound.types().ints(bound.outputs()[1]), Some(vec![1, 64]));
}

#[test]
fn an_edit_replaces_and_cleans_up() {
    let text = "program ios18 func main(%x: fp16[1, 8, 1, 4]) {
        %w = const(val=fp16[4, 8, 1, 1] splat(0.5))
        %y = conv(x=%x, weight=%w)
        %z = relu(x=%y)
    } -> %z";
    let mut g = parse(text).unwrap().functions.remove(0);
    let (x, z) = (g.inputs()[0], g.outputs()[0]);
    let mut edit = Edit::of(&g);
    let w = edit.constant(Tensor::f32(vec![4, 8, 1, 1], &[0.25; 32]).cast(DType::F16), "w");
    let y = edit.push(Conv::pointwise(x, w, None), "y").unwrap();
    let change = edit.replace(z, y).finish();
    assert_eq!(g.region(&change).len(), 2);
    assert_eq!(g.blocker(&change), None);
    g.apply(change, &"test-pass".into()).unwrap();
    let program = Program::new(Opset::Ios18, vec![g]);
    assert_eq!(verify_program(&program), []);
    let shown = print(&program, Weights::Named);
    assert_eq!(shown.matches(" = ").count(), 2, "{shown}");
    assert!(shown.contains("%z = conv(") && shown.contains("by test-pass"), "{shown}");
}
