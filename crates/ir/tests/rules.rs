//! Type rules: what an op makes of shapes that are known or not, and what it says of wrong operands.

use russet_ir::text::parse;
use russet_ir::{Graph, verify_program};

fn function(body: &str) -> Result<Graph, String> {
    let lines: Vec<String> = body.lines().map(|l| format!("  {}", l.trim())).collect();
    let inputs =
        "%x: fp16[1, S, 4], %i: int32[1, S], %b: bool[1, S], %n: int8[3], %m: fp16[2, 3, 4, 6]";
    let last = body.trim().lines().last().unwrap_or_default();
    let names: Vec<&str> = last.split(" = ").next().unwrap_or_default().split(", ").collect();
    let text = format!(
        "program ios18\nfunc main({inputs}) where S in 1..=512 {{\n{}\n}} -> ({})\n",
        lines.join("\n"),
        names.join(", ")
    );
    let program = parse(&text).map_err(|e| e.to_string())?;
    assert_eq!(verify_program(&program), [], "{text}");
    Ok(program.functions.into_iter().next().expect("a function"))
}

/// The types of the last op's outputs.
fn types(body: &str) -> String {
    let graph = function(body).unwrap_or_else(|e| panic!("{e} in\n{body}"));
    let types: Vec<String> = graph.outputs().iter().map(|&v| graph.ty(v).to_string()).collect();
    types.join(", ")
}

#[test]
fn symbols_survive() {
    for (body, expected) in [
        ("%y = tile(x=%x, reps=int32[3] [1, 1, 2])", "fp16[1, S, 8]"),
        ("%y = tile(x=%x, reps=int32[3] [1, 3, 1])", "fp16[1, S.mul.3, 4]"),
        ("%y = stack(values=(%i, %i), axis=-1)", "int32[1, S, 2]"),
        ("%y = pad(x=%x, pad=int32[2] [1, 2])", "fp16[1, S, 7]"),
        ("%y = pad(x=%x, pad=int32[4] [1, 2, 0, 0])", "fp16[1, S.plus.3, 4]"),
        ("%y = one_hot(indices=%i, one_hot_vector_size=int32 [7])", "int32[1, S, 7]"),
        ("%y = flatten2d(x=%x, axis=2)", "fp16[S, 4]"),
        ("%y = flatten2d(x=%x, axis=1)", "fp16[1, S.mul.4]"),
        ("%y = sliding_windows(x=%x, axis=1, size=3, stride=2)", "fp16[1, S.windows3s2, 3, 4]"),
        ("%y = reverse(x=%x)", "fp16[1, S, 4]"),
        ("%y = argsort(x=%x)", "int32[1, S, 4]"),
        ("%y, %z = topk(x=%x, k=2)", "fp16[1, S, 2], int32[1, S, 2]"),
        ("%y = reduce_argmax(x=%x, axis=1, output_dtype=\"uint16\")", "uint16[1, 4]"),
        ("%y = cumsum(x=%x, axis=1)", "fp16[1, S, 4]"),
        ("%y = non_zero(x=%x)", "int32[x.nonzero, 3]"),
        ("%y = fill_like(ref_tensor=%x, value=bool [true])", "bool[1, S, 4]"),
        ("%y = gather_along_axis(x=%i, indices=%i, axis=1)", "int32[1, S]"),
        ("%y = gather_nd(x=%x, indices=int32[5, 2] splat(0))", "fp16[5, 4]"),
        ("%y = crop(x=%m, crop_height=[1, 2], crop_width=[0, 1])", "fp16[2, 3, 1, 5]"),
        ("%y = random_categorical(x=%x, size=3)", "fp16[1, S, 3]"),
    ] {
        assert_eq!(types(body), expected, "{body}");
    }
}

/// Of lengths with different names it is not known that they differ: it shows when they are numbers.
#[test]
fn lengths_may_turn_out_to_be_equal() {
    let types = |body: &str, to: &str| {
        let text = format!(
            "program ios18
            func main(%x: fp32[2, S], %y: fp32[T, 3], %z: fp32[2, 3]) where S in 1..=9, T in 1..=9 {{
              %v = {body}
            }} -> %v"
        );
        let program = parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
        assert_eq!(verify_program(&program), [], "{text}");
        let graph = &program.functions[0];
        assert_eq!(graph.ty(graph.outputs()[0]).to_string(), to, "{body}");
    };
    types("matmul(x=%x, y=%y)", "fp32[2, 3]");
    types("concat(values=(%x, %y), axis=0)", "fp32[n2.plus.T, 3]");
    types("concat(values=(%y, %z), axis=0)", "fp32[T.plus.2, 3]");
    types("reshape(x=%x, shape=int32[2] [3, 4])", "fp32[3, 4]");
    types("reshape(x=%x, shape=int32[3] [3, 2, -1])", "fp32[3, 2, S.mul2div6]");
}

#[test]
fn shapes_are_calculated_before_running() {
    let size = "%s = shape(x=%x)
                %len = gather(x=%s, indices=int32[1] [1])\n";
    for (rest, expected) in [
        ("%y = fill(shape=%s, value=fp16 [0.5])", "fp16[1, S, 4]"),
        (
            "%c = const(val=int32[1] [3])\n%t = concat(values=(%len, %c), axis=0)\n%y = fill(shape=%t)",
            "fp32[S, 3]",
        ),
        ("%t = add(x=%len, y=int32[1] [0])\n%y = fill(shape=%t)", "fp32[S]"),
        ("%t = mul(x=%len, y=int32[1] [4])\n%y = fill(shape=%t)", "fp32[S.mul.4]"),
        ("%t = floor_div(x=%len, y=int32[1] [2])\n%y = fill(shape=%t)", "fp32[S.div.2]"),
        ("%t = mod(x=int32[1] [-7], y=int32[1] [4])\n%y = fill(shape=%t)", "fp32[1]"),
        ("%t = sub(x=%len, y=%len)\n%y = fill(shape=%t)", "fp32[0]"),
        (
            "%e = squeeze(x=%len)\n%y = range_1d(end=%e, start=int32 [0], step=int32 [1])",
            "int32[S]",
        ),
        (
            "%e = squeeze(x=%len)\n%c = const(val=int32 [2])\n%t = stack(values=(%e, %c), axis=0)\n%y = fill(shape=%t)",
            "fp32[S, 2]",
        ),
        ("%t = tile(x=%len, reps=int32[1] [2])\n%y = fill(shape=%t)", "fp32[S, S]"),
        (
            "%r = range_1d(end=int32 [9], start=int32 [1], step=int32 [4])\n%y = fill(shape=%r)",
            "fp32[1, 5]",
        ),
        (
            "%t = slice_by_size(x=%s, begin=int32[1] [1], size=int32[1] [2])\n%y = fill(shape=%t)",
            "fp32[S, 4]",
        ),
        ("%a, %t = split(x=%s, split_sizes=[1, 2], axis=0)\n%y = fill(shape=%t)", "fp32[S, 4]"),
        ("%t = reduce_prod(x=%s, axes=[0], keep_dims=true)\n%y = fill(shape=%t)", "fp32[S.mul.4]"),
        // As many elements, though the names do not show it.
        ("%t = mul(x=%len, y=int32[1] [4])\n%y = reshape(x=%x, shape=%t)", "fp16[S.mul.4]"),
        ("%y = reshape(x=%x, shape=int32[2] [0, -1])", "fp16[S, 4]"),
    ] {
        let body = format!("{size}{rest}");
        assert_eq!(types(&body), expected, "{body}");
    }
}

#[test]
fn wrong_operands_are_named() {
    for (body, expected) in [
        ("%y = add(x=%n, y=%n)", "`x` of `add` is int8, a float or int32 is expected"),
        ("%y = acos(x=%i)", "`x` of `acos` is int32, a float is expected"),
        ("%y = threshold(x=%i, alpha=0.5)", "alpha is a float"),
        ("%y = logical_or(x=%i, y=%i)", "`x` of `logical_or` is int32, bool is expected"),
        ("%y = prelu(x=%m, alpha=fp16[2] [0.5, 1.0])", "`alpha` of `prelu` is 2 along axis 0, 3"),
        ("%y, %z = topk(x=%x, k=5)", "k 5 of 4 elements"),
        ("%y = reduce_argmin(x=%x, axis=3)", "`x` of `reduce_argmin` has rank 3, axis 3"),
        ("%y = tile(x=%x, reps=int32[2] [1, 1])", "`x` of `tile`"),
        ("%y = tile(x=%x, reps=int32[3] [1, 0, 1])", "axis 1 is repeated 0 times"),
        ("%y = stack(values=(%i, %x), axis=0)", "`values[1]` of `stack` is fp16"),
        (
            "%y = pad(x=%x, pad=int32[2] [4, 0], mode=\"reflect\")",
            "`x` of `pad` is 4 along axis 2, 5",
        ),
        ("%y = pad(x=%x, pad=int32[3] [4, 0, 0])", "3 numbers of padding"),
        ("%y = pad(x=%i, pad=int32[2] [1, 1], constant_val=1.5)", "constant_val is a float"),
        ("%y = fill(shape=int32[2] [2, -1])", "a shape of [2, -1]"),
        ("%y = range_1d(end=int32 [3], start=int32 [0], step=int32 [0])", "0 to 3 by 0"),
        ("%y = depth_to_space(x=%m, block_size=2)", "not made of blocks of 4"),
        ("%y = pixel_shuffle(x=%x, upscale_factor=2)", "`x` of `pixel_shuffle` has rank 3, 4"),
        ("%y = space_to_batch(x=%m, block_shape=[3, 2], paddings=int32[2, 2] splat(0))", "axis 2"),
        (
            "%y = gather_nd(x=%x, indices=int32[2, 4] splat(0))",
            "of `gather_nd` is 4 along axis 1, 3",
        ),
        (
            "%y = scatter(data=%m, indices=int32[1] [0], updates=%x)",
            "`updates` of `scatter` is fp16[1, S, 4]",
        ),
        ("%y = einsum(values=(%m, %m), equation=\"abcd,adce->abde\")", "is none of"),
        ("%y = reverse(x=%x, axes=[0, -3])", "name one axis twice"),
        (
            "%y = reverse_sequence(x=%m, lengths=%n)",
            "`lengths` of `reverse_sequence` is 3 along axis 0, 2",
        ),
        (
            "%y = sliding_windows(x=%x, axis=2, size=5)",
            "`x` of `sliding_windows` is 4 along axis 2, 5",
        ),
        ("%y = one_hot(indices=%i, one_hot_vector_size=int32 [-2])", "rows of -2"),
        (
            "%y = slice_update(x=%x, update=%m, begin=int32[3] [0, 0, 0], end=int32[3] [1, 1, 1])",
            "`update` of `slice_update`",
        ),
    ] {
        let error = function(body).map(|_| ()).expect_err(body);
        assert!(error.contains(expected), "{error}\nin {body}");
    }
}

/// Numbers in a program must not make a reader allocate by them.
#[test]
fn absurd_sizes_stay_numbers() {
    for body in [
        "%y = fill(shape=int32[5] splat(2147483647))",
        "%y = range_1d(end=int32 [2147483647], start=int32 [-2147483648], step=int32 [1])",
        "%y = tile(x=%m, reps=int32[4] splat(2147483647))",
        "%y = one_hot(indices=%i, one_hot_vector_size=int32 [2147483647])",
        "%y = pad(x=%m, pad=int32[8] splat(2147483647))",
    ] {
        types(body);
    }
}

#[test]
fn opsets_know_their_parameters() {
    let text = |opset: &str, call: &str| {
        format!(
            "program {opset}\nfunc main(%x: fp16[4], %i: int32[2]) {{\n  %y = {call}\n}} -> %y\n"
        )
    };
    let findings = |opset: &str, call: &str| {
        let program = parse(&text(opset, call)).unwrap_or_else(|e| panic!("{e}: {call}"));
        verify_program(&program).into_iter().map(|f| f.message).collect::<Vec<_>>()
    };
    // Defaults of parameters that came later say nothing.
    assert!(findings("ios15", "reduce_argmax(x=%x)").is_empty());
    assert!(findings("ios15", "gather(x=%x, indices=%i)").is_empty());
    assert!(findings("ios17", "cast(x=%x, dtype=\"int8\")").is_empty());
    let found = findings("ios16", "cast(x=%x, dtype=\"int8\")");
    assert_eq!(found, ["`cast` makes int8 from ios17 on, this is ios16"]);
    let boxes = |opset: &str, more: &str| {
        parse(&format!(
            "program {opset}
            func main(%b: fp16[1, 4, 4], %s: fp16[1, 4, 4]) {{
              %u, %v, %w{} = non_maximum_suppression(boxes=%b, scores=%s, iou_threshold=0.5, max_boxes=2{more})
            }} -> %u",
            if more.is_empty() { "" } else { ", %n" }
        ))
    };
    for (opset, threshold) in [("ios15", true), ("ios16", true), ("ios17", false), ("ios26", false)]
    {
        assert_eq!(boxes(opset, ", score_threshold=0.1").is_ok(), threshold, "{opset}");
        assert_eq!(boxes(opset, "").is_ok(), !threshold, "{opset}");
    }
    assert!(parse(&text("ios16", "gather(x=%x, indices=%i, validate_indices=true)")).is_err());
}
