//! Containers other than a plain package, and what a package keeps when it is read and written.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use russet_formats::container::{self, Content, Kind};
use russet_formats::mlpackage::{Description, proto};
use russet_formats::{Error, mil_text, mlmodelc, mlpackage};
use russet_ir::ops::Identity;
use russet_ir::{Graph, verify_program};

/// A program with notes of compilers, a weight in a file, and constants under their own names.
const TEXT: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"coremltools-version", "9.0"}})]
{
    func main<ios17>(tensor<fp32, [4]> x) [Note = string("kept")] {
            string how = const()[name = string("how"), val = string("fp16")];
            tensor<fp32, [4]> w = const()[name = string("w"), val = tensor<fp32, [4]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))];
            tensor<fp32, [4]> sum = add(x = x, y = w)[Backend = list<string, 2>(["ane", "cpu"]), name = string("sum")];
            tensor<fp16, [4]> y = cast(dtype = how, x = sum)[name = string("y")];
        } -> (y);
}"#;

fn array(name: &str, data_type: i32) -> proto::FeatureDescription {
    let array = proto::ArrayFeatureType { shape: vec![4], data_type, ..Default::default() };
    let kind = Some(proto::FeatureKind::MultiArray(array));
    proto::FeatureDescription {
        name: name.into(),
        short_description: "a text".into(),
        r#type: Some(proto::FeatureType { kind, ..Default::default() }),
        ..Default::default()
    }
}

fn model() -> proto::Model {
    let program = mil_text::parse(TEXT, Path::new("m")).unwrap().program;
    let description = proto::ModelDescription {
        input: vec![array("x", 65568)],
        output: vec![array("y", 65552)],
        ..Default::default()
    };
    proto::Model {
        specification_version: 9,
        description: Some(description),
        ml_program: Some(program),
        ..Default::default()
    }
}

/// A message with a field of tomorrow behind its own.
fn with_unknown(bytes: Vec<u8>) -> Vec<u8> {
    let mut bytes = bytes;
    encode_key(7777, WireType::LengthDelimited, &mut bytes);
    encode_varint(5, &mut bytes);
    bytes.extend(b"later");
    encode_key(7778, WireType::Varint, &mut bytes);
    encode_varint(42, &mut bytes);
    bytes
}

fn weights() -> Vec<u8> {
    let mut w = vec![0u8; 64];
    (w[0], w[4]) = (1, 2);
    w.extend(0xDEAD_BEEFu32.to_le_bytes());
    w.extend(2u32.to_le_bytes());
    w.extend(16u64.to_le_bytes());
    w.extend(128u64.to_le_bytes());
    w.resize(128, 0);
    w.extend([1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()));
    w
}

/// A folder with `m.mlmodel` and its weights.
fn folder(model: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mlmodel");
    fs::write(&path, model).unwrap();
    fs::create_dir(folder.path().join("weights")).unwrap();
    fs::write(folder.path().join("weights/weight.bin"), weights()).unwrap();
    (folder, path)
}

fn written(package: &Path) -> (Vec<u8>, Vec<u8>) {
    let data = package.join("Data/com.apple.CoreML");
    let read = |name| fs::read(data.join(name)).unwrap();
    (read("model.mlmodel"), read("weights/weight.bin"))
}

fn text_of(bytes: &[u8]) -> String {
    let model = proto::Model::decode(bytes).unwrap();
    mil_text::print(&model.ml_program.unwrap(), mil_text::Syntax::SCALARS).unwrap()
}

#[test]
fn an_unchanged_program_keeps_every_byte() {
    let bytes = with_unknown(model().encode_to_vec());
    let (folder, path) = folder(&bytes);
    let package = mlpackage::read(&path).unwrap();
    let out = folder.path().join("out.mlpackage");
    mlpackage::rewrite(&package.program, &Description::default(), &package.source, &out).unwrap();
    assert_eq!(written(&out), (bytes, weights()));
}

#[test]
fn an_output_that_is_an_input_stays_one() {
    let text = TEXT.replace("-> (y)", "-> (y, x)");
    let mut model = model();
    model.ml_program = Some(mil_text::parse(&text, Path::new("m")).unwrap().program);
    model.description.as_mut().unwrap().output.push(array("x", 65568));
    let (folder, path) = folder(&model.encode_to_vec());
    let package = mlpackage::read(&path).unwrap();
    let mut program = package.program.clone();
    let graph = &mut program.functions[0];
    let (y, x) = (graph.outputs()[0], graph.outputs()[1]);
    graph.rename(y, "before");
    let z = graph.push(Identity { x: y }, "y").unwrap()[0];
    graph.set_outputs(vec![z, x]);
    let out = folder.path().join("out.mlpackage");
    mlpackage::rewrite(&program, &Description::default(), &package.source, &out).unwrap();
    let again = mlpackage::read(&out).unwrap();
    let graph = &again.program.functions[0];
    assert_eq!(graph.outputs()[1], graph.inputs()[0]);
    assert_eq!(again.description.functions[0].outputs.len(), 2);
}

#[test]
fn a_text_of_several_functions_needs_no_main() {
    let function = TEXT[TEXT.find("    func").unwrap()..].trim_end_matches('}');
    let head = &TEXT[..TEXT.find("    func").unwrap()];
    let named = |name: &str| function.replace("func main", &format!("func {name}"));
    let folder = tempfile::tempdir().unwrap();
    let weights_folder = folder.path().join("weights");
    fs::create_dir(&weights_folder).unwrap();
    fs::write(weights_folder.join("weight.bin"), weights()).unwrap();
    let path = folder.path().join("x.mil");
    for (names, first) in [(["a", "b"], "a"), (["b", "main"], "main")] {
        fs::write(&path, format!("{head}{}{}}}", named(names[0]), named(names[1]))).unwrap();
        let opened = container::open(&path).unwrap();
        let functions = &opened.program().unwrap().program.functions;
        assert_eq!((functions.len(), functions[0].name.as_str()), (2, first));
    }
}

#[test]
fn a_changed_program_keeps_what_did_not_change() {
    let bytes = with_unknown(model().encode_to_vec());
    let (folder, path) = folder(&bytes);
    let package = mlpackage::read(&path).unwrap();
    let mut program = package.program.clone();
    let graph: &mut Graph = &mut program.functions[0];
    // A value that takes the name of a constant which the source has and the ir has not.
    let y = graph.outputs()[0];
    graph.rename(y, "inner");
    let how = graph.push(Identity { x: y }, "how").unwrap()[0];
    let z = graph.push(Identity { x: how }, "y").unwrap()[0];
    graph.set_outputs(vec![z]);
    assert_eq!(verify_program(&program), []);
    let out = folder.path().join("out.mlpackage");
    mlpackage::rewrite(&program, &Description::default(), &package.source, &out).unwrap();
    let (model, now) = written(&out);
    assert_eq!(now, weights());
    let text = text_of(&model);
    for kept in [
        r#"buildInfo = dict<string, string>({{"coremltools-version", "9.0"}})"#,
        r#"[Note = string("kept")]"#,
        r#"sum = add(x = x, y = w)[Backend = list<string, 2>(["ane", "cpu"]), name = string("sum")];"#,
        r#"inner = cast(dtype = inner_dtype, x = sum)[name = string("inner")];"#,
        "how = identity(x = inner)",
    ] {
        assert!(text.contains(kept), "{kept} is not in\n{text}");
    }
    let decoded = proto::Model::decode(model.as_slice()).unwrap();
    assert_eq!(decoded.unknown.bytes(7777).map(|b| &b[..]), Some(&b"later"[..]));
    assert_eq!(decoded.unknown.numbers(7778), [42]);
    assert_eq!(decoded.specification_version, 9);
    let again = mlpackage::read(&out).unwrap();
    assert_eq!(again.description.functions[0].inputs[0].text, "a text");
}

#[test]
fn a_program_with_an_op_in_front_keeps_the_others() {
    let (folder, path) = folder(&model().encode_to_vec());
    let package = mlpackage::read(&path).unwrap();
    let mut program = package.program.clone();
    let graph = &mut program.functions[0];
    let y = graph.outputs()[0];
    graph.rename(y, "cast_y");
    let z = graph.push(Identity { x: y }, "y").unwrap()[0];
    graph.set_outputs(vec![z]);
    let out = folder.path().join("out.mlpackage");
    mlpackage::rewrite(&program, &Description::default(), &package.source, &out).unwrap();
    let text = text_of(&written(&out).0);
    assert!(text.contains("tensor<fp32, [4]> w = const()"), "{text}");
    // Its `dtype` was named `how`; the op was renamed, so it is new and so is its constant.
    assert!(text.contains("cast(dtype = cast_y_dtype, x = sum)"), "{text}");
}

#[test]
fn a_compiled_model_reads_as_its_source() {
    let (folder, path) = folder(&model().encode_to_vec());
    let out = folder.path().join("out.mlmodelc");
    let made = mlmodelc::write(&path, &out).unwrap();
    assert_eq!((made.n_weights, made.weight_bytes), (1, weights().len() as u64));
    let (source, opened) = (container::open(&path).unwrap(), container::open(&out).unwrap());
    assert_eq!((source.kind, opened.kind), (Kind::ModelFile, Kind::Compiled));
    assert_eq!(opened.spec_version, 9);
    assert_eq!(opened.description, source.description);
    let print = |c: &container::Container| {
        let program = &c.program().unwrap().program;
        russet_ir::text::print(program, russet_ir::text::Weights::Inline)
    };
    assert_eq!(print(&opened), print(&source));
    assert!(opened.text().unwrap().unwrap().contains("\"russet-version\""));
    // Without the message the JSON says the same, but for what it has no words for.
    fs::remove_file(out.join("coremldata.bin")).unwrap();
    assert_eq!(container::open(&out).unwrap().description, source.description);
    fs::remove_file(out.join("metadata.json")).unwrap();
    assert_eq!(print(&container::open(&out).unwrap()), print(&source));
    fs::remove_dir_all(out.join("weights")).unwrap();
    // What is not there is named when it is needed.
    let without = container::open(&out).unwrap().program().unwrap().clone();
    assert_eq!(without.complete().unwrap_err().code(), "not-found");
}

#[test]
fn a_pipeline_opens_stage_by_stage_in_both_containers() {
    let mut second = model();
    if let Some(p) = &mut second.ml_program {
        *p = mil_text::parse(
            "program(1.3)\n{\n func main<ios17>(tensor<fp16, [4]> y) {\n tensor<fp16, [4]> z = relu(x = y);\n } -> (z);\n}",
            Path::new("m"),
        )
        .unwrap()
        .program;
    }
    second.description = Some(proto::ModelDescription {
        input: vec![array("y", 65552)],
        output: vec![array("z", 65552)],
        ..Default::default()
    });
    let pipeline = proto::Pipeline {
        models: vec![model(), second],
        names: vec!["first".into(), String::new()],
        ..Default::default()
    };
    let whole = proto::Model {
        specification_version: 9,
        description: Some(proto::ModelDescription {
            input: vec![array("x", 65568)],
            output: vec![array("z", 65552)],
            ..Default::default()
        }),
        pipeline: Some(pipeline),
        ..Default::default()
    };
    let (folder, path) = folder(&whole.encode_to_vec());
    let out = folder.path().join("out.mlmodelc");
    mlmodelc::write(&path, &out).unwrap();
    for path in [&path, &out] {
        let opened = container::open(path).unwrap();
        let names: Vec<&str> = opened.stages().iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["first", "model1"]);
        let stage = &opened.stage("1").unwrap().container;
        assert_eq!(stage.program().unwrap().program.functions[0].nodes().count(), 1);
        assert!(opened.program().is_none());
        assert_eq!(opened.description.functions[0].outputs[0].name, "z");
    }
    // A stage is a compiled model of its own.
    let stage = container::open(&out.join("model0")).unwrap();
    assert_eq!(stage.program().unwrap().n_weights, 1);
    fs::remove_dir_all(out.join("model0")).unwrap();
    assert_eq!(container::open(&out).unwrap_err().code(), "not-found");
}

#[test]
fn a_pipeline_within_a_pipeline_without_end_is_refused() {
    let mut model = model();
    for _ in 0..20 {
        let pipeline = proto::Pipeline { models: vec![model], ..Default::default() };
        model = proto::Model {
            specification_version: 9,
            pipeline: Some(pipeline),
            ..Default::default()
        };
    }
    let (_folder, path) = folder(&model.encode_to_vec());
    let error = container::open(&path).unwrap_err();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

/// A field of a message: its number and contents.
fn field(tag: u32, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(tag, WireType::LengthDelimited, &mut bytes);
    encode_varint(contents.len() as u64, &mut bytes);
    bytes.extend(contents);
    bytes
}

fn number(tag: u32, n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(tag, WireType::Varint, &mut bytes);
    encode_varint(n, &mut bytes);
    bytes
}

#[test]
fn a_neural_network_is_described() {
    let halves = field(2, &[0; 2 * 12]);
    let quantized = [field(30, &[0; 3]), field(40, &number(1, 4))].concat();
    let convolution =
        [number(1, 4), number(2, 3), field(20, &[1, 1]), field(90, &halves), field(91, &quantized)]
            .concat();
    let layer = |name: &str, kind: u32, params: &[u8]| {
        let named = [field(1, name.as_bytes()), field(2, b"in"), field(3, name.as_bytes())];
        field(1, &[named.concat(), field(kind, params)].concat())
    };
    let relu = layer("r", 130, &field(10, &[]));
    let branch = layer("b", 605, &field(1, &relu));
    let labels = field(100, &[field(1, b"cat"), field(1, b"dog")].concat());
    let network = [layer("c", 100, &convolution), relu, branch, labels].concat();
    let bytes = [number(1, 1), field(403, &network)].concat();
    let (_folder, path) = folder(&bytes);
    let opened = container::open(&path).unwrap();
    let Content::Network(n) = &opened.content else { panic!() };
    assert_eq!(
        (n.kind, n.labels.clone()),
        ("neural network classifier", vec!["cat".into(), "dog".into()])
    );
    assert_eq!(n.histogram(), [("activation", 2), ("branch", 1), ("convolution", 1)]);
    let c = &n.layers[0];
    assert_eq!((c.n_parameters, c.parameter_bytes), (12 + 6, 24 + 3));
    assert_eq!(c.facts[0], ("outputChannels", "4".to_owned()));
    assert_eq!(c.facts[2], ("kernelSize", "1 1".to_owned()));
    assert_eq!(n.layers[1].facts, [("function", "ReLU".to_owned())]);
    assert_eq!(n.layers[2].inner.len(), 1);
    // Any beginning of the file is described or refused.
    for n in 0..bytes.len() {
        fs::write(&path, &bytes[..n]).unwrap();
        let _ = container::open(&path);
    }
    assert_eq!(mlpackage::read(&path).unwrap_err().code(), "malformed");
}

#[test]
fn a_path_cannot_lead_out_of_a_compiled_model() {
    let (folder, _) = folder(&model().encode_to_vec());
    let out = folder.path().join("x.mlmodelc");
    fs::create_dir(&out).unwrap();
    for path in ["../weights/weight.bin", "/etc/passwd", "@model_path/../weights/weight.bin"] {
        let text = TEXT.replace("@model_path/weights/weight.bin", path);
        fs::write(out.join("model.mil"), text).unwrap();
        assert_eq!(container::open(&out).unwrap_err().code(), "unsafe-path", "{path}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("weights"), out.join("weights")).unwrap();
        fs::write(out.join("model.mil"), TEXT).unwrap();
        assert_eq!(container::open(&out).unwrap_err().code(), "unsafe-path");
    }
    // Neither can it when a compiled model is made.
    let text = TEXT.replace("@model_path/weights", "@model_path/../weights");
    let program = mil_text::parse(&text, Path::new("m")).unwrap().program;
    let bad = proto::Model { ml_program: Some(program), ..model() };
    let path = folder.path().join("bad.mlmodel");
    fs::write(&path, bad.encode_to_vec()).unwrap();
    let target = folder.path().join("bad.mlmodelc");
    assert_eq!(mlmodelc::write(&path, &target).unwrap_err().code(), "unsafe-path");
    assert!(!target.exists());
}

#[test]
fn a_text_that_makes_no_program_is_refused_where_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.mil");
    let relu = |body: &str| {
        format!(
            "program(1.3)\n{{\n func main<ios17>(tensor<fp32, [4]> x) {{\n{body}\n }} -> (y);\n}}"
        )
    };
    for (text, place, why) in [
        // A cycle: a value that reads what comes after it.
        (
            relu("tensor<fp32, [4]> y = relu(x = z); tensor<fp32, [4]> z = relu(x = y);"),
            "y",
            "reads `z`, which nothing before it defines",
        ),
        (relu("tensor<fp32, [4]> z = relu(x = x);"), "y", "nothing defines it"),
        (relu("tensor<fp32, [4]> y = const()[name = string(\"y\")];"), "y", "it has no `val`"),
        (
            relu(
                "tensor<fp32, [18446744073709551615, 9]> y = const()[val = tensor<fp32, [18446744073709551615, 9]>(BLOBFILE(path = string(\"x.mil\"), offset = uint64(64)))];",
            ),
            "x.mil",
            "the version of the weight file",
        ),
        (relu("tensor<fp32, [4]> y = relu(x = x);").replace("ios17", "ios99"), "", "ios99"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = container::open(&path).unwrap_err();
        assert!(error.place().contains(place), "{}", error.place());
        assert!(error.to_string().contains(why), "{error}");
    }
    // Equal names are told apart, as in a package.
    let twice = "tensor<fp32, [4]> z = relu(x = x); tensor<fp32, [4]> z = relu(x = z); tensor<fp32, [4]> y = relu(x = z);";
    fs::write(&path, relu(twice)).unwrap();
    let opened = container::open(&path).unwrap();
    assert_eq!(verify_program(&opened.program().unwrap().program), []);
}

#[test]
fn what_is_in_the_way_stays_and_a_compiled_model_is_replaced() {
    let (folder, path) = folder(&model().encode_to_vec());
    let out = folder.path().join("out.mlmodelc");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "precious").unwrap();
    assert_eq!(mlmodelc::write(&path, &out).unwrap_err().code(), "output-exists");
    fs::remove_file(out.join("mine")).unwrap();
    mlmodelc::write(&path, &out).unwrap();
    let before = fs::read(out.join("coremldata.bin")).unwrap();
    mlmodelc::write(&path, &out).unwrap();
    assert_eq!(fs::read(out.join("coremldata.bin")).unwrap(), before);
    // One that cannot be finished leaves the old one.
    fs::write(folder.path().join("weights/weight.bin"), &weights()[..130]).unwrap();
    assert_eq!(mlmodelc::write(&path, &out).unwrap_err().code(), "truncated");
    assert_eq!(fs::read(out.join("weights/weight.bin")).unwrap(), weights());
    assert_eq!(mlmodelc::write(&path, &folder.path().join("x")).unwrap_err().code(), "unwritable");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 3, "the model, its weights, what was made of it");
}

#[test]
fn others_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["sealed.mlmodelc", "new.aimodel", "hf", "plain"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::create_dir(at("sealed.mlmodelc/encryptionInfo")).unwrap();
    fs::write(at("hf/config.json"), "{}").unwrap();
    fs::create_dir(at("old.mlmodelc")).unwrap();
    fs::write(at("old.mlmodelc/model.espresso.net"), "{}").unwrap();
    fs::write(at("x.gguf"), "GGUF\x03\0").unwrap();
    for (name, wanted) in [
        ("sealed.mlmodelc", "an encrypted model"),
        ("new.aimodel", "Core AI"),
        ("hf", "Hugging Face"),
        ("old.mlmodelc", "a compiled neural network"),
        ("x.gguf", "GGUF"),
    ] {
        let error = container::open(&at(name)).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{name}: {error}");
        assert!(error.to_string().contains(wanted), "{name}: {error}");
        assert!(error.help().is_some());
    }
    assert_eq!(container::open(&at("plain")).unwrap_err().code(), "wrong-kind");
    assert_eq!(container::open(&at("gone")).unwrap_err().code(), "not-found");
}

/// Bytes of memory this process holds that are its own.
#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[cfg(target_os = "linux")]
#[test]
fn two_gigabytes_of_weights_are_mapped_not_read() {
    use std::io::{Seek, SeekFrom, Write};
    const N: u64 = 1 << 29;
    let text = TEXT.replace("[4]", &format!("[{N}]"));
    let program = mil_text::parse(&text, Path::new("m")).unwrap().program;
    let mut model = proto::Model { ml_program: Some(program), ..model() };
    let description = model.description.as_mut().unwrap();
    for f in description.input.iter_mut().chain(&mut description.output) {
        if let Some(proto::FeatureKind::MultiArray(a)) = &mut f.r#type.as_mut().unwrap().kind {
            a.shape = vec![N as i64];
        }
    }
    let (folder, path) = folder(&model.encode_to_vec());
    let mut file = fs::File::create(folder.path().join("weights/weight.bin")).unwrap();
    let mut head = weights()[..128].to_vec();
    head[72..80].copy_from_slice(&(4 * N).to_le_bytes());
    file.write_all(&head).unwrap();
    file.set_len(128 + 4 * N).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let (start, before) = (std::time::Instant::now(), resident_bytes());
    let opened = container::open(&path).unwrap();
    let (elapsed, grown) = (start.elapsed(), resident_bytes().saturating_sub(before));
    println!(
        "2 GiB open in {:.1} ms, {} KiB more memory",
        elapsed.as_secs_f64() * 1e3,
        grown / 1024
    );
    assert_eq!(opened.program().unwrap().weight_bytes, 128 + 4 * N);
    assert!(grown < 50 << 20, "{grown} bytes");
    assert!(elapsed.as_millis() < 100, "{elapsed:?}");
}
