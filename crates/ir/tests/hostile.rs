//! Programs nobody would write end in an error, soon and in little memory.

use bytes::Bytes;
use russet_ir::text::{self, Weights};
use russet_ir::{DType, Tensor, verify_program};

fn error(body: &str) -> String {
    text::parse(body).expect_err("a program that cannot be").to_string()
}

/// `%x` of this type, then forty ops each of which reads the one before twice.
fn doubled(ty: &str, op: impl Fn(&str, &str) -> String, last: &str) -> String {
    let mut text = format!("func main(%x: {ty}) {{\n  %v0 = identity(x=%x)\n{last}");
    for i in 0..40 {
        text += &format!("  %v{} = {}\n", i + 1, op(&format!("%v{i}"), ty));
    }
    text + "} -> %v40\n"
}

#[test]
fn nothing_grows_with_every_op() {
    let concat = |v: &str, _: &str| format!("concat(values=({v}, {v}), axis=0)");
    // Names of symbols made of names of symbols.
    let program = text::parse(&doubled("fp16[S]", concat, "")).unwrap();
    let printed = text::print(&program, Weights::Inline);
    assert!(printed.len() < 10_000);
    // Known shapes twice as long as the one before.
    let shape = "  %s0 = shape(x=%v0)\n  %s = concat(values=(%s0, %s0), axis=0)\n";
    text::parse(&doubled("fp16[3]", concat, shape)).unwrap();
    let known = |v: &str, _: &str| match v {
        "%v0" => "shape(x=%x)".to_owned(),
        v => format!("concat(values=({v}, {v}), axis=0)"),
    };
    text::parse(&doubled("fp16[3]", known, "")).unwrap();
    // Ranks twice as high.
    let gather = |v: &str, _: &str| format!("gather(x={v}, indices={v}, axis=0)");
    assert!(error(&doubled("int32[2, 2]", gather, "")).contains("dimensions"));
}

#[test]
fn a_number_alone_makes_no_memory() {
    let split =
        "func f(%x: fp16[2000000000]) { %a = split(x=%x, num_splits=2000000000, axis=0) } -> %a";
    assert!(error(split).contains("does not split"));
    let splats: String =
        (0..40).map(|i| format!("  %c{i} = const(val=fp64[4000000] splat(0.5))\n")).collect();
    assert!(error(&format!("func f() {{\n{splats}}} -> %c0")).contains("splats"));
    assert!(Tensor::new(DType::F32, vec![0, u64::MAX, u64::MAX], Bytes::new()).is_err());
    assert!(Tensor::new(DType::F32, vec![u64::MAX, 0, 3], Bytes::new()).is_err());
    assert!(Tensor::new(DType::F32, vec![0, 7], Bytes::new()).is_ok());
}

#[test]
fn work_on_huge_shapes_does_not_overflow() {
    let huge = u64::MAX / 2;
    let text = format!(
        "func f(%x: fp16[{huge}], %w: fp16[3, {huge}], %y: fp16[1, 1, 9, {huge}]) {{
  %a = softmax(x=%x)
  %b = gelu(x=%a)
  %c = reduce_l2_norm(x=%b)
  %d = layer_norm(x=%x)
  %e = pow(x=%d, y=%d)
  %g = clip(x=%e, alpha=0.0, beta=1.0)
  %h = linear(x=%g, weight=%w)
  %i = matmul(x=%y, y=%y, transpose_y=true)
  %k = conv(x=%y, weight=fp16[1, 1, 1, 1] [1.0])
}} -> %h"
    );
    let program = text::parse(&text).unwrap();
    assert_eq!(verify_program(&program), []);
    let graph = &program.functions[0];
    for (_, node) in graph.nodes() {
        let _ = node.op.work(&graph.types());
    }
}

#[test]
fn very_many_values_of_one_name_are_quick() {
    let ops: String =
        (1..30_000).map(|i| format!("%v{i} = add(x=%v{}, y=fp16 [1.0])\n", i - 1)).collect();
    let program = text::parse(&format!("func f(%v0: fp16[2]) {{\n{ops}}} -> %v29999")).unwrap();
    let mut graph = program.functions[0].clone();
    for _ in 0..30_000 {
        let name = graph.unique_name("v1");
        graph.push_const(Tensor::bool(true), &name);
    }
    assert_eq!(graph.remove_dead(), 30_000);
}

#[test]
fn ops_for_their_effect_stay_and_print() {
    let source = "program ios18
func main(%s: state<fp16[2]>, %x: fp16[2], %p: bool) {
  %r = read_state(input=(%s)) : fp16[2]
  %y = add(x=%r, y=%x)
  %dead = relu(x=%y)
  write_state(data=(%y), input=(%s)) : () from \"cache\"
  %c = cond(pred=%p) {
    write_state(data=(%x), input=(%s)) : ()
    %a = relu(x=%x)
  } -> %a {
    %b = square(x=%x)
  } -> %b
} -> %r
";
    let mut program = text::parse(source).unwrap();
    assert_eq!(verify_program(&program), []);
    assert_eq!(text::print(&program, Weights::Inline), source);
    // The unread `cond` writes inside.
    assert_eq!(program.functions[0].remove_dead(), 1);
    let kept = text::print(&program, Weights::Inline);
    assert_eq!(kept, source.replace("  %dead = relu(x=%y)\n", ""));
}
