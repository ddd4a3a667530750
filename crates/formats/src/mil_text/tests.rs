//! Texts that are read and printed, and texts that are refused.

use super::*;

/// Every form there is, as it is printed.
const ALL: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "3600.25.1"}, {"quote", "a \"b\" \\ c\n"}})]
{
    func main<ios18>(tensor<fp16, [?, 3]> x, state<tensor<fp16, [2]>> s, tensor_buffer<fp16, shape=[2], strides=[1], interleave_factors=[1]> b) [FlexibleShapeInformation = tuple<tuple<string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>((("DefaultShapes", {{"x", [4, 3]}}), ("RangeDims", {{"x", [[0, 4], [3, 3]]}})))] {
            int32 n = const()[name = string("n"), val = int32(-3)];
            tensor<int4, [3]> q = const()[val = tensor<int4, [3]>([-8, 7, 1])];
            tensor<fp16, [2, 2]> h = const()[val = tensor<fp16, [2, 2]>([[0x1p-24, 0x1.5p-17], [-0x1p+0, inf]])];
            tensor<fp32, [0]> none = const()[val = tensor<fp32, [0]>([])];
            tensor<fp16, [4]> w = const()[val = tensor<fp16, [4]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
            tensor<fp16, [2]> t = tensor_buffer_to_tensor<ios17>(input = b)[EstimatedRuntime = dict<string, fp64>({{"ane", 6.3110803182750176e-06}, {"cpu", 0}}), cost = fp64(0x1p-3)];
            list<string, 2> names = make(values = (n, q, bool(true)), x = x);
            tensor<fp16, [2]> u, tensor<fp16, [2]> v = split(x = t);
            write_state(data = u, input = s)[name = string("write")];
            tensor<bool, []> loop = while_loop(loop_vars = x)
                (tensor<fp16, [?, 3]> i) {
                    bool yes = const()[val = bool(true)];
                } -> (yes)
                () {
                } -> (x);
        } -> (u, v);
}"#;

fn parsed(text: &str) -> Result<MilText, String> {
    parse(text, Path::new("model.mil")).map_err(|e| format!("{}: {e}", e.place()))
}

#[test]
fn every_form_prints_as_it_was_read() {
    // A type `tensor<bool, []>` is what the first syntax has for `bool`.
    let all = ALL.replace("tensor<bool, []> loop", "bool loop");
    let text = parsed(&all).unwrap();
    assert_eq!(print(&text.program, text.syntax).unwrap(), all);
    let first = print(&text.program, Syntax::FIRST).unwrap();
    assert!(first.contains("tensor<bool, []> loop = while_loop("), "{first}");
    assert!(first.contains(r#"offset = tensor<uint64, []>(64)"#));
    let again = parsed(&first).unwrap();
    assert_eq!((again.program, again.syntax), (text.program, Syntax::FIRST));
}

#[test]
fn an_error_has_a_place_and_says_what_is_expected() {
    let program =
        |body: &str| format!("program(1.0)\n{{\n func f<ios17>() {{\n{body}\n }} -> ();\n}}");
    for (text, wanted) in [
        ("", "model.mil: 1:1: the end of the text is found, `program` is expected"),
        ("program(2.0)", "1:9: the version of the text is not 1 point something"),
        ("program(1.0) {\n  fn", "2:3: `fn` is found, `func` is expected"),
        (
            &program("int32 x = const()[val = int32(2.5)];"),
            "4:31: `2.5` is found, a value of type int32",
        ),
        (&program("int8 x = const()[val = int8(200)];"), "a value of type int8 is expected"),
        (
            &program("tensor<int32, [2]> x = const()[val = tensor<int32, [2]>([1])];"),
            "4:57: there are 1 entries, the type says 2",
        ),
        (&program("x = relu(y = z);"), "`=` is found, `(` is expected"),
        (&program("foo<bar> x = relu();"), "`x` is found, `(` is expected"),
        (&program("int32 x = relu(y = z, y = z);"), "`y` is given twice"),
        (&program("int32 x = relu(y = 3);"), "`3` is found, a name or a value is expected"),
        (&program("string x = const()[val = string(\"a\\q\")];"), "4:35: there is no such escape"),
        (
            &program("string x = const()[val = string(\"a"),
            "4:33: the string that begins here has no end",
        ),
        (&program("int32 x = relu()"), "`}` is found, `;` or a block is expected"),
    ] {
        let error = parsed(text).unwrap_err();
        assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
    }
}

#[test]
fn no_nesting_is_too_deep_to_be_refused() {
    let n = 100_000;
    let types = format!("program(1.0)[a = {}", "list<".repeat(n));
    let brackets =
        format!("program(1.0)[a = tensor<int32, [{}1]>({}", "1, ".repeat(n), "[".repeat(n));
    let blocks = format!("program(1.0){{func f<ios17>() {{{}", "int32 x = c() () {".repeat(n));
    for text in [types, brackets, blocks] {
        assert!(parsed(&text).is_err());
    }
}

#[test]
fn any_beginning_of_a_text_is_refused() {
    for n in (0..ALL.len()).filter(|&n| ALL.is_char_boundary(n)) {
        assert!(parsed(&ALL[..n]).is_err(), "{n}");
    }
}
