//! ONNX models, made here field by field, as programs.

use std::fs;
use std::path::Path;

use prost::Message;
use russet_formats::onnx::proto::*;
use russet_formats::onnx::{self, Options};
use russet_formats::{Error, onnx::Source};
use russet_ir::{DType, Dim, Finding, Symbol, text, verify_program};

fn dims(extents: &[&str]) -> Option<TensorShapeProto> {
    let dim = |e: &&str| {
        let value = match e.parse() {
            Ok(n) => DimensionValue::Value(n),
            Err(_) => DimensionValue::Param(e.to_string()),
        };
        DimensionProto { value: Some(value), ..Default::default() }
    };
    Some(TensorShapeProto { dim: extents.iter().map(dim).collect(), ..Default::default() })
}

fn info(name: &str, elem_type: i32, extents: &[&str]) -> ValueInfoProto {
    let tensor = TensorTypeProto { elem_type, shape: dims(extents), ..Default::default() };
    let r#type = Some(TypeProto { tensor_type: Some(tensor), ..Default::default() });
    ValueInfoProto { name: name.into(), r#type, ..Default::default() }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let strings = |v: &[&str]| v.iter().map(|s| s.to_string()).collect();
    let (input, output) = (strings(inputs), strings(outputs));
    let name = format!("/m/{op}");
    NodeProto { input, output, name, op_type: op.into(), ..Default::default() }
}

fn int64(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: vec![values.len() as i64],
        data_type: 7,
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

fn model(graph: GraphProto) -> ModelProto {
    let opset_import = vec![OperatorSetIdProto { version: 17, ..Default::default() }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() }
}

fn parse(model: &ModelProto, options: &Options) -> Result<Source, Error> {
    let source = onnx::parse(model.encode_to_vec().into(), Path::new("m.onnx"), options)?;
    assert_eq!(verify_program(&source.program), []);
    Ok(source)
}

fn findings(model: &ModelProto) -> Vec<Finding> {
    match parse(model, &Options::default()) {
        Err(Error::Nodes { findings, .. }) => findings,
        other => panic!("{other:?}"),
    }
}

/// `[batch, 2, 3]` flattened as exporters write it: by its own shape.
fn flattened() -> ModelProto {
    model(GraphProto {
        node: vec![
            node("Shape", &["x"], &["shape"]),
            node("Gather", &["shape", "first"], &["batch"]),
            node("Concat", &["batch", "rest"], &["target"]),
            node("Reshape", &["x", "target"], &["out.y"]),
        ]
        .into_iter()
        .map(|mut n| {
            let axis =
                AttributeProto { name: "axis".into(), i: 0, r#type: 2, ..Default::default() };
            n.attribute = vec![axis];
            n
        })
        .collect(),
        initializer: vec![int64("first", &[0]), int64("rest", &[-1])],
        input: vec![info("x", 1, &["batch", "2", "3"])],
        output: vec![info("out.y", 1, &[])],
        ..Default::default()
    })
}

#[test]
fn shapes_are_followed_through_symbols() {
    let source = parse(&flattened(), &Options::default()).unwrap();
    let graph = &source.program.functions[0];
    let y = graph.outputs()[0];
    assert_eq!(graph.value(y).name, "out_y");
    assert_eq!(graph.shape(y), [Dim::Symbol(Symbol::new("batch")), Dim::Fixed(6)]);
    assert_eq!(graph.symbols.ranges[&Symbol::new("batch")], (1, None));
    assert_eq!(graph.def(y).unwrap().origin.to_string(), "/m/Reshape");
}

#[test]
fn bound_extents_leave_no_shape_to_calculate() {
    let shapes = vec![("x".to_owned(), vec![vec![4, 2, 3]])];
    let source = parse(&flattened(), &Options { shapes, ..Options::default() }).unwrap();
    let printed = text::print(&source.program, text::Weights::Named);
    assert!(!printed.contains("= shape(") && !printed.contains("concat("), "{printed}");

    let shapes = vec![("x".to_owned(), vec![vec![1, 2, 3], vec![5, 2, 3]])];
    let source = parse(&flattened(), &Options { shapes, ..Options::default() }).unwrap();
    let rows: Vec<u64> = source.program.functions[0]
        .symbols
        .enumerated
        .iter()
        .map(|row| row[&Symbol::new("batch")])
        .collect();
    assert_eq!(rows, [1, 5]);

    for (name, shape) in [("z", vec![1, 2, 3]), ("x", vec![1, 2]), ("x", vec![1, 9, 3])] {
        let shapes = vec![(name.to_owned(), vec![shape])];
        let error = parse(&flattened(), &Options { shapes, ..Options::default() }).unwrap_err();
        assert_eq!(error.code(), "bad-choice", "{error}");
    }
}

#[test]
fn everything_that_has_no_place_is_reported_at_once() {
    let graph = GraphProto {
        node: vec![
            node("Unique", &["x"], &["a"]),
            // What reads a value that is not there is not another problem.
            node("Relu", &["a"], &["b"]),
            node("Mystery", &["x"], &["c"]),
            node("Add", &["x", "nothing"], &["d"]),
        ],
        input: vec![info("x", 1, &["2"])],
        output: vec![info("b", 1, &[]), info("c", 1, &[]), info("d", 1, &[])],
        ..Default::default()
    };
    let found = findings(&model(graph));
    let places: Vec<&str> = found.iter().map(|f| f.place.as_str()).collect();
    assert_eq!(places, ["Unique `/m/Unique`", "Mystery `/m/Mystery`", "Add `/m/Add`"]);
    assert!(found[2].message.contains("`nothing`"));
}

#[test]
fn integers_saturate_and_keep_their_names() {
    let graph = GraphProto {
        node: vec![node("Add", &["x", "far"], &["y"])],
        initializer: vec![int64("far", &[i64::MAX, i64::MIN])],
        input: vec![info("x", 7, &["2"])],
        output: vec![info("y", 7, &["2"])],
        ..Default::default()
    };
    let source = parse(&model(graph), &Options::default()).unwrap();
    let graph = &source.program.functions[0];
    let far = graph.values().find(|(_, d)| d.name == "far").unwrap().0;
    assert_eq!(
        graph.constant(far).unwrap().to_i64().unwrap(),
        [i64::from(i32::MAX), i64::from(i32::MIN)]
    );
    assert_eq!(graph.ty(graph.inputs()[0]).tensor().unwrap().dtype, DType::I32);
}

#[test]
fn weights_beside_the_model_stay_in_its_folder() {
    let external = |location: &str| {
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
            ..Default::default()
        };
        let weight = TensorProto {
            name: "w".into(),
            dims: vec![2],
            data_type: 1,
            data_location: 1,
            external_data: vec![
                entry("location", location),
                entry("offset", "4"),
                entry("length", "8"),
            ],
            ..Default::default()
        };
        model(GraphProto {
            node: vec![node("Add", &["x", "w"], &["y"])],
            initializer: vec![weight],
            input: vec![info("x", 1, &["2"])],
            output: vec![info("y", 1, &["2"])],
            ..Default::default()
        })
    };
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("models");
    fs::create_dir(&inside).unwrap();
    let numbers: Vec<u8> = [9f32, 1.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(inside.join("w.bin"), &numbers).unwrap();
    fs::write(dir.path().join("w.bin"), &numbers).unwrap();
    let load = |location: &str| {
        let file = inside.join("m.onnx");
        fs::write(&file, external(location).encode_to_vec()).unwrap();
        onnx::load(&file, &Options::default())
    };
    let source = load("w.bin").unwrap();
    let graph = &source.program.functions[0];
    let w = graph.values().find(|(_, d)| d.name == "w").unwrap().0;
    assert_eq!(graph.constant(w).unwrap().to_f32(), [1.0, 2.0]);

    let absolute = dir.path().join("w.bin");
    let mut outside =
        vec!["../w.bin".to_owned(), absolute.to_str().unwrap().to_owned(), String::new()];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&absolute, inside.join("link.bin")).unwrap();
        outside.push("link.bin".to_owned());
    }
    for location in outside {
        let error = load(&location).unwrap_err();
        let Error::Nodes { findings, .. } = &error else { panic!("{error}") };
        assert!(findings[0].message.contains("outside"), "{location}: {findings:?}");
    }
}

#[test]
fn functions_that_call_themselves_end() {
    let call = NodeProto { domain: "own".into(), ..node("F", &["a"], &["b"]) };
    let function = FunctionProto {
        name: "F".into(),
        domain: "own".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![call.clone()],
        ..Default::default()
    };
    let graph = GraphProto {
        node: vec![NodeProto { input: vec!["x".into()], output: vec!["y".into()], ..call }],
        input: vec![info("x", 1, &["2"])],
        output: vec![info("y", 1, &["2"])],
        ..Default::default()
    };
    let model = ModelProto { functions: vec![function], ..model(graph) };
    assert!(findings(&model)[0].message.contains("deep"));
}

#[test]
fn damaged_files_are_errors() {
    let whole = flattened().encode_to_vec();
    assert!(onnx::is_onnx(&whole));
    let path = Path::new("m.onnx");
    for end in 0..whole.len() {
        // Cut anywhere: an error, or a model that happens to end there.
        let _ = onnx::parse(whole[..end].to_vec().into(), path, &Options::default());
    }
    let empty = ModelProto { ir_version: 8, ..Default::default() };
    assert_eq!(parse(&empty, &Options::default()).unwrap_err().code(), "malformed");
}

/// Seeds of the fuzzer with bytes changed, and models of changed numbers: errors, no panics.
#[test]
fn changed_models_are_errors_or_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/onnx");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 8);
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let strange = [0u8, 1, 2, 3, 7, 8, 127, 128, 255];
    let mut imported = 0;
    for file in files {
        let seed = fs::read(&file).unwrap();
        for round in 0..400 {
            let mut bytes = seed.clone();
            for _ in 0..(round % 4) {
                let at = next() % bytes.len();
                bytes[at] = match next() % 3 {
                    0 => strange[next() % strange.len()],
                    1 => bytes[at] ^ (1 << (next() % 8)),
                    _ => next() as u8,
                };
            }
            let source = onnx::parse(bytes.into(), Path::new("m.onnx"), &Options::default());
            if let Ok(source) = source {
                imported += 1;
                assert_eq!(verify_program(&source.program), [], "{}", file.display());
            }
        }
    }
    assert!(imported > 1000, "{imported}");
}
