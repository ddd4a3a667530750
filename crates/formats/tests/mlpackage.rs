//! Packages: what is written reads back the same; what is damaged is refused by name.

use std::fs;
use std::path::{Path, PathBuf};

use russet_formats::mlpackage::{
    Description, Feature, FunctionDescription, Kind, decode_model, read, write,
};
use russet_ir::ops::{Classify, ReadState, WriteState};
use russet_ir::text::{Weights, parse, print};
use russet_ir::{
    BlockId, DType, Graph, Opset, Program, Symbol, Tensor, TensorType, Type, verify_program,
};

/// Every op of the ir, as text without the line that states the opset.
const EVERY_OP: &str = r#"
func main(%ids: int32[1, S], %x: fp32[1, 4, 8], %n: int32[2]) where S in [16, 8] {
  %pred = const(val=bool [true])
  %one = const(val=fp32 [1.0])
  %zero = const(val=int32 [0])
  %same = identity(x=%x)
  %sum = add(x=%same, y=%one)
  %difference = sub(x=%sum, y=%one)
  %product = mul(x=%difference, y=%x)
  %quotient = real_div(x=%product, y=%one)
  %larger = maximum(x=%quotient, y=%x)
  %smaller = minimum(x=%larger, y=%x)
  %power = pow(x=%smaller, y=%one)
  %c1 = equal(x=%power, y=%x)
  %c2 = not_equal(x=%ids, y=%zero)
  %c3 = greater(x=%power, y=%x)
  %c4 = greater_equal(x=%power, y=%x)
  %c5 = less(x=%power, y=%x)
  %c6 = less_equal(x=%power, y=%x)
  %c7 = logical_and(x=%c5, y=%c6)
  %c8 = logical_not(x=%c7)
  %chosen = select(cond=%c8, a=%power, b=%x)
  %a1 = abs(x=%chosen)
  %a2 = clip(x=%a1, alpha=-0.5, beta=6.0)
  %a3 = erf(x=%a2)
  %a4 = exp(x=%a3)
  %a5 = gelu(x=%a4, mode="TANH_APPROXIMATION")
  %a6 = log(x=%a5, epsilon=1e-45)
  %a7 = relu(x=%a6)
  %a8 = rsqrt(x=%a7, epsilon=1e-12)
  %a9 = sigmoid(x=%a8)
  %a10 = silu(x=%a9)
  %a11 = sqrt(x=%a10)
  %a12 = square(x=%a11)
  %a13 = tanh(x=%a12)
  %mask = cast(x=%c2, dtype="fp32")
  %kernel = const(val=fp32[4, 4, 1] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0])
  %copy = const(val=fp32[16] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0])
  %convolved = conv(x=%a13, weight=%kernel, strides=[1], pad_type="custom", pad=[0, 0], dilations=[1], groups=1)
  %w = const(val=fp32[2, 8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0])
  %b = const(val=fp32[2] [1.0, 2.0])
  %projected = linear(x=%convolved, weight=%w, bias=%b)
  %gram = matmul(x=%projected, y=%projected, transpose_x=false, transpose_y=true)
  %gamma = const(val=fp32[4] [1.0, 1.0, 1.0, 1.0])
  %normed = layer_norm(x=%gram, axes=[-1], gamma=%gamma, epsilon=1e-5)
  %r1 = reduce_l2_norm(x=%normed, axes=[-1], keep_dims=true)
  %r2 = reduce_max(x=%normed, axes=[-1], keep_dims=true)
  %r3 = reduce_mean(x=%normed, axes=[-1], keep_dims=true)
  %r4 = reduce_min(x=%normed, axes=[-1], keep_dims=true)
  %r5 = reduce_sum(x=%normed, axes=[-1], keep_dims=true)
  %attended = softmax(x=%normed, axis=-1)
  %joined = concat(values=(%attended, %r1, %r2, %r3, %r4, %r5), axis=2, interleave=false)
  %wider = expand_dims(x=%joined, axes=[1])
  %narrow = squeeze(x=%wider, axes=[1])
  %rows = gather(x=%narrow, indices=%n, axis=1)
  %flat_shape = const(val=int32[1] [-1])
  %flat = reshape(x=%rows, shape=%flat_shape)
  %extents = shape(x=%ids)
  %begin = const(val=int32[1] [1])
  %end = const(val=int32[1] [2])
  %length = slice_by_index(x=%extents, begin=%begin, end=%end, begin_mask=[false], end_mask=[false])
  %table = const(val=fp32[32] hex"0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000")
  %origin = const(val=int32[1] [0])
  %head = slice_by_size(x=%table, begin=%origin, size=%length)
  %first, %second = split(x=%rows, num_splits=2, axis=1)
  %turned = transpose(x=%first, perm=[0, 2, 1])
  %either = cond(pred=%pred) {
    %yes = relu(x=%turned)
  } -> %yes {
    %no = tanh(x=%turned)
  } -> %no
  %odd = mystery(left=(%either), right=(%zero, %one)) : fp32[1, 3]
} -> (%either, %flat, %head, %second, %odd, %mask)
"#;

fn every_op(opset: Opset) -> Program {
    let program = parse(&format!("program {opset}\nmeta \"author\" = \"me\"\n{EVERY_OP}")).unwrap();
    assert_eq!(verify_program(&program), []);
    program
}

fn small() -> Program {
    let weights: Vec<String> = (0..16).map(|i| format!("{i}.0")).collect();
    let text = format!(
        "program ios16 func main(%x: fp32[1, 4]) {{
            %w = const(val=fp32[4, 4] [{}])
            %y = linear(x=%x, weight=%w)
        }} -> %y",
        weights.join(", ")
    );
    parse(&text).unwrap()
}

fn written(program: &Program, dir: &Path) -> PathBuf {
    let out = dir.join("x.mlpackage");
    write(program, &Description::default(), &out).unwrap();
    out
}

fn text(program: &Program) -> String {
    print(program, Weights::Inline)
}

#[test]
fn what_is_written_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    for &opset in Opset::ALL {
        let program = every_op(opset);
        let out = written(&program, dir.path());
        let package = read(&out).unwrap();
        assert_eq!(text(&package.program), text(&program));
        assert_eq!(package.findings, []);
        assert_eq!(package.spec_version, opset.spec_version());
        let main = &package.description.functions[0];
        assert_eq!((main.inputs.len(), main.outputs.len()), (3, 6));
    }
}

#[test]
fn equal_programs_give_equal_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    for folder in [&a, &b] {
        fs::create_dir(folder).unwrap();
        written(&every_op(Opset::Ios18), folder);
    }
    for file in [
        "Manifest.json",
        "Data/com.apple.CoreML/model.mlmodel",
        "Data/com.apple.CoreML/weights/weight.bin",
    ] {
        let [x, y] = [&a, &b].map(|f| fs::read(f.join("x.mlpackage").join(file)).unwrap());
        assert_eq!(x, y, "{file}");
    }
}

#[test]
fn equal_weights_are_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.mlpackage");
    let summary = write(&every_op(Opset::Ios18), &Description::default(), &out).unwrap();
    // `kernel` and `copy`; `w` has the same bytes too.
    assert_eq!((summary.n_weights, summary.n_shared), (2, 2));
    let package = read(&out).unwrap();
    assert_eq!((package.weight_bytes, package.n_weights), (summary.weight_bytes, 2));
}

#[test]
fn symbols_keep_their_names_and_strangers_get_some() {
    let dir = tempfile::tempdir().unwrap();
    let program = parse(
        "program ios18 func main(%a: fp32[1, L], %b: fp32[L, 4]) where L in [4, 2, 8] {
            %y = matmul(x=%a, y=%b)
        } -> %y",
    );
    let program = program.unwrap();
    let out = written(&program, dir.path());
    assert_eq!(text(&read(&out).unwrap().program), text(&program));
    // The note removed, two inputs whose lengths go together are still one symbol.
    let model = out.join("Data/com.apple.CoreML/model.mlmodel");
    let mut decoded = decode_model(fs::read(&model).unwrap().into(), &model).unwrap();
    decoded.description.as_mut().unwrap().metadata = None;
    fs::write(&model, prost::Message::encode_to_vec(&decoded)).unwrap();
    let again = read(&out).unwrap().program;
    assert_eq!(text(&again), text(&program).replace('L', "s0"));
    let bound = again.functions[0].bind(&[(Symbol::new("s0"), 8)].into()).unwrap();
    assert!(!bound.is_symbolic());
}

#[test]
fn ranges_and_functions_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let program = parse(
        "program ios18
        func step(%x: fp16[1, N]) where N in 1..=32 { %y = relu(x=%x) } -> %y
        func all(%x: fp16[1, M]) where M in 2.. { %y = tanh(x=%x) } -> %y",
    );
    let program = program.unwrap();
    let out = written(&program, dir.path());
    assert_eq!(text(&read(&out).unwrap().program), text(&program));
}

#[test]
fn ops_without_outputs_and_lists_of_classes_are_kept() {
    let f16 = TensorType::new(DType::F16, [1u64, 2]);
    let mut g = Graph::new("main");
    let x = g.add_input("x", f16.clone());
    let state = g.add_input("memory", Type::State(f16.clone()));
    g.push(WriteState { input: state, data: x }, "").unwrap();
    let y = g.push(ReadState { input: state }, "y").unwrap()[0];
    let names = Tensor::strings(vec![2], vec!["cat".into(), "dog".into()]).unwrap();
    let classes = g.push_const(names, "class_classes");
    let outputs = g.push_node(
        BlockId::BODY,
        Classify { probabilities: y, classes }.into(),
        &["class".into(), "scores".into()],
        vec![],
        Default::default(),
    );
    g.set_outputs(outputs.unwrap());
    let program = Program::new(Opset::Ios18, vec![g]);
    let feature = |name: &str, kind| Feature {
        name: name.into(),
        text: "what it is".into(),
        optional: false,
        kind,
    };
    let described = FunctionDescription {
        name: "main".into(),
        outputs: vec![
            feature("class", Kind::String),
            feature("scores", Kind::Dictionary { string_keys: true }),
        ],
        predicted_feature: "class".into(),
        predicted_probabilities: "scores".into(),
        ..Default::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.mlpackage");
    write(&program, &Description { functions: vec![described.clone()] }, &out).unwrap();
    let package = read(&out).unwrap();
    assert_eq!(text(&package.program), text(&program));
    assert_eq!(package.findings, []);
    let main = &package.description.functions[0];
    assert_eq!(main.outputs, described.outputs);
    assert_eq!((main.states.len(), main.predicted_feature.as_str()), (1, "class"));
}

fn refused(program: &str) -> (&'static str, String) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.mlpackage");
    let e = write(&parse(program).unwrap(), &Description::default(), &out).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something remains");
    (e.code(), e.to_string())
}

#[test]
fn what_a_package_cannot_hold_is_refused() {
    for (program, why) in [
        ("program ios15 func main(%x: fp16[2]) { %y = relu(x=%x) } -> %y", "fp16 can be handed"),
        ("program ios18 func main(%x: fp32[2]) { %y = less(x=%x, y=%x) } -> %y", "bool cannot"),
        ("program ios18 func main(%x: fp32[2]) { %y = relu(x=%x) } -> %x", "cannot be an output"),
        ("program ios18 func main(%x: fp32[2]) { %y = relu(x=%x) } -> (%y, %y)", "twice"),
        ("program ios18 func main(%x: fp32[N]) { %y = relu(x=%x) } -> %y", "nothing says"),
        ("program ios18 func main(%x: fp32) { %y = relu(x=%x) } -> %y", "without axes"),
        ("program ios16 func f(%x: fp32[2]) { %y = relu(x=%x) } -> %y", "not called `main`"),
        (
            "program ios17 func main(%x: fp32[N], %z: fp32[N]) where N in [1, 2] {
                %y = add(x=%x, y=%z)
            } -> %y",
            "ios17 allows one",
        ),
        (
            "program ios17 func main(%x: fp32[2]) { %y = relu(x=%x) } -> %y
            func f(%x: fp32[2]) { %y = relu(x=%x) } -> %y",
            "several functions",
        ),
    ] {
        let (code, message) = refused(program);
        assert_eq!(code, "unwritable", "{message}");
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn only_a_package_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.mlpackage");
    let go = || write(&small(), &Description::default(), &out).map_err(|e| e.code());
    fs::write(&out, "a file").unwrap();
    assert_eq!(go(), Err("output-exists"));
    assert_eq!(fs::read(&out).unwrap(), b"a file");
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(out.join("precious"), "").unwrap();
    assert_eq!(go(), Err("output-exists"));
    fs::remove_dir_all(&out).unwrap();
    go().unwrap();
    fs::write(out.join("stale"), "").unwrap();
    go().unwrap();
    assert!(!out.join("stale").exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let elsewhere = dir.path().join("nowhere/x.mlpackage");
    assert_eq!(write(&small(), &Description::default(), &elsewhere).unwrap_err().code(), "io");
    let no_name = dir.path().join("x");
    assert_eq!(
        write(&small(), &Description::default(), &no_name).unwrap_err().code(),
        "unwritable"
    );
}

/// A package of one weight, changed by `damage`; the error's code and place.
fn damaged(damage: impl FnOnce(&Path)) -> (&'static str, String) {
    let dir = tempfile::tempdir().unwrap();
    let out = written(&small(), dir.path());
    damage(&out);
    let e = read(&out).unwrap_err();
    assert!(!e.to_string().is_empty());
    (e.code(), e.place())
}

const MANIFEST: &str = "Manifest.json";
const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

fn change(package: &Path, file: &str, f: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let file = package.join(file);
    fs::write(&file, f(fs::read(&file).unwrap())).unwrap();
}

fn edit_text(package: &Path, file: &str, from: &str, to: &str) {
    change(package, file, |b| {
        let text = String::from_utf8(b).unwrap();
        assert!(text.contains(from), "{text}");
        text.replace(from, to).into_bytes()
    });
}

fn edit_model(package: &Path, f: impl FnOnce(&mut russet_formats::mlpackage::proto::Model)) {
    change(package, MODEL, |b| {
        let mut model = decode_model(b.into(), Path::new(MODEL)).unwrap();
        f(&mut model);
        prost::Message::encode_to_vec(&model)
    });
}

/// The reference to the weight `w`.
fn edit_reference(
    package: &Path,
    f: impl FnOnce(&mut russet_formats::mlpackage::proto::BlobFileValue),
) {
    use russet_formats::mlpackage::proto::Contents;
    edit_model(package, |m| {
        let function = m.ml_program.as_mut().unwrap().functions.get_mut("main").unwrap();
        let block = function.block_specializations.values_mut().next().unwrap();
        let op = block.operations.iter_mut().find(|o| o.outputs[0].name == "w").unwrap();
        match &mut op.attributes.get_mut("val").unwrap().contents {
            Some(Contents::BlobFile(reference)) => f(reference),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn damaged_packages_are_refused_by_name() {
    let (code, place) = damaged(|p| fs::remove_file(p.join(MANIFEST)).unwrap());
    assert!(code == "not-found" && place.contains(MANIFEST), "{place}");
    let (code, _) = damaged(|p| edit_text(p, MANIFEST, "\"1.0.0\"", "\"2.0.0\""));
    assert_eq!(code, "unsupported-version");
    let (code, _) = damaged(|p| {
        edit_text(p, MANIFEST, "rootModelIdentifier\": \"", "rootModelIdentifier\": \"x")
    });
    assert_eq!(code, "malformed");
    for path in ["../../outside", "/etc/hostname", "a/../../../b", ""] {
        let (code, place) =
            damaged(|p| edit_text(p, MANIFEST, "com.apple.CoreML/model.mlmodel", path));
        assert!(code == "unsafe-path" && place.contains(MANIFEST), "{path}: {code}");
    }
    let (code, _) = damaged(|p| edit_text(p, MANIFEST, "model.mlmodel\"\n", "gone\"\n"));
    assert_eq!(code, "not-found");

    let (code, place) = damaged(|p| fs::remove_file(p.join(WEIGHTS)).unwrap());
    assert!(code == "not-found" && place.contains("model.mlmodel"), "{place}");
    let (code, place) = damaged(|p| change(p, WEIGHTS, |b| b[..b.len() - 1].to_vec()));
    assert!(
        code == "truncated" && place.contains("weight.bin") && place.contains("`w`"),
        "{place}"
    );
    let (code, place) = damaged(|p| {
        change(p, WEIGHTS, |mut b| {
            b[64] = 0;
            b
        })
    });
    assert!(code == "malformed" && place.contains("`w`"), "{place}");
    let (code, place) = damaged(|p| edit_reference(p, |r| r.offset = 1 << 40));
    assert!(code == "malformed" && place.ends_with("weight.bin: w"), "{place}");
    let (code, _) = damaged(|p| edit_reference(p, |r| r.offset = 128));
    assert_eq!(code, "malformed");
    for name in ["@model_path/../../../../w.bin", "/etc/hostname", "@model_path//etc/hostname"] {
        let (code, _) = damaged(|p| edit_reference(p, |r| r.file_name = name.into()));
        assert_eq!(code, "unsafe-path", "{name}");
    }
    #[cfg(unix)]
    {
        let (code, _) = damaged(|p| {
            fs::remove_file(p.join(WEIGHTS)).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", p.join(WEIGHTS)).unwrap();
        });
        assert_eq!(code, "unsafe-path");
    }
}

#[test]
fn other_models_are_named() {
    let (code, _) = damaged(|p| edit_model(p, |m| m.specification_version = 99));
    assert_eq!(code, "unsupported-version");
    let (code, _) = damaged(|p| {
        edit_model(p, |m| {
            let functions = &mut m.ml_program.as_mut().unwrap().functions;
            functions.get_mut("main").unwrap().opset = "CoreML99".into();
        })
    });
    assert_eq!(code, "unsupported-version");
    // Field 500, of no bytes: a neural network.
    let e = decode_model(vec![0xa2, 0x1f, 0].into(), Path::new("m.mlmodel")).unwrap_err();
    assert!(e.code() == "not-an-ml-program" && e.to_string().contains("neural network"), "{e}");
    assert_eq!(decode_model(vec![].into(), Path::new("m")).unwrap_err().code(), "malformed");
}

#[test]
fn hostile_messages_end_in_an_error() {
    // Blocks in operations in blocks: fields within each other, innermost first.
    let within = |tag: &[u8], inner: &[u8]| {
        let mut outer = tag.to_vec();
        prost::encoding::encode_varint(inner.len() as u64, &mut outer);
        outer.extend(inner);
        outer
    };
    let mut block = Vec::new();
    for _ in 0..1000 {
        block = within(&[0x1a], &within(&[0x22], &block));
    }
    let function = within(&[0x12], &within(&[0x1a], &within(&[0x12], &block)));
    let model = within(&[0xb2, 0x1f], &within(&[0x12], &function));
    assert!(decode_model(model.into(), Path::new("m")).is_err());
    // A length of 2^60.
    let huge = vec![0xb2, 0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert!(decode_model(huge.into(), Path::new("m")).is_err());
    // Every truncation and some garbling of a real model: an error or a program, never a panic.
    let dir = tempfile::tempdir().unwrap();
    let out = written(&small(), dir.path());
    let whole = fs::read(out.join(MODEL)).unwrap();
    for i in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[i] ^= 0x15;
        fs::write(out.join(MODEL), &bytes).unwrap();
        let _ = read(&out);
        fs::write(out.join(MODEL), &whole[..i]).unwrap();
        let _ = read(&out);
    }
}
