//! A description from `metadata.json`, for compiled models whose `coremldata.bin` is not there.

use std::path::Path;

use serde_json::Value;

use crate::Error;
use crate::mlpackage::Color;
use crate::mlpackage::features::{ARRAY_TYPES, COLORS};
use crate::mlpackage::proto::{self, FeatureKind, Flexibility};

/// What the file says, as far as it can be told from texts for people.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    pub spec_version: Option<i32>,
    pub description: proto::ModelDescription,
    /// Name of the kind of model, as `MLModelType_mlProgram`.
    pub kind: Option<String>,
}

/// Reads the text of a `metadata.json`; `path` is for errors.
///
/// # Errors
/// A text that is no JSON, or not that of one model; features that are said to be what they
/// cannot be.
pub fn parse(text: &str, path: &Path) -> Result<Metadata, Error> {
    let json: Value = serde_json::from_str(text).map_err(|e| {
        Error::malformed(path, Some(&format!("{}:{}", e.line(), e.column())), e.to_string())
    })?;
    let Some(model) = json.get(0).filter(|m| m.is_object()) else {
        return Err(Error::malformed(path, None, "it is no list of one model"));
    };
    let text = |key: &str| model.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let all = |of: &Value, key: &str| -> Result<Vec<proto::FeatureDescription>, Error> {
        let listed = of.get(key).and_then(Value::as_array).into_iter().flatten();
        let read = |entry: &Value| {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            feature(entry)
                .map_err(|why| Error::malformed(path, Some(&format!("{key}: {name}")), why))
        };
        listed.map(read).collect()
    };
    let user = model.get("userDefinedMetadata").and_then(Value::as_object).into_iter().flatten();
    let user = user.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
    let metadata = proto::Metadata {
        short_description: text("shortDescription"),
        version_string: text("version"),
        author: text("author"),
        license: text("license"),
        user_defined: user.collect(),
        ..Default::default()
    };
    let mut description = proto::ModelDescription {
        metadata: Some(metadata),
        default_function_name: text("defaultFunctionName"),
        ..Default::default()
    };
    let functions = model.get("functions").and_then(Value::as_array);
    for f in functions.into_iter().flatten() {
        description.functions.push(proto::FunctionDescription {
            name: f.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            input: all(f, "inputSchema")?,
            output: all(f, "outputSchema")?,
            state: all(f, "stateSchema")?,
            ..Default::default()
        });
    }
    if description.functions.is_empty() {
        description.input = all(model, "inputSchema")?;
        description.output = all(model, "outputSchema")?;
        description.state = all(model, "stateSchema")?;
    }
    let spec_version = model.get("specificationVersion").and_then(Value::as_i64);
    let kind = model.get("modelType").and_then(|t| t.get("name")).and_then(Value::as_str);
    Ok(Metadata {
        spec_version: spec_version.and_then(|v| i32::try_from(v).ok()),
        description,
        kind: kind.map(str::to_owned),
    })
}

fn feature(entry: &Value) -> Result<proto::FeatureDescription, String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = match text("type") {
        "MultiArray" => FeatureKind::MultiArray(array(entry)?),
        "State" => FeatureKind::State(proto::StateFeatureType {
            array_type: Some(array(entry)?),
            ..Default::default()
        }),
        "Image" => FeatureKind::Image(image(entry)?),
        "Int64" => FeatureKind::Int64(Default::default()),
        "Double" => FeatureKind::Double(Default::default()),
        "String" => FeatureKind::String(Default::default()),
        "Dictionary" => {
            let is_string = text("keyType") == "String";
            let key = |yes: bool| yes.then(proto::Empty::default);
            FeatureKind::Dictionary(proto::DictionaryFeatureType {
                int64_key: key(!is_string),
                string_key: key(is_string),
                ..Default::default()
            })
        }
        other => return Err(format!("there is no type {other:?}")),
    };
    Ok(proto::FeatureDescription {
        name: text("name").to_owned(),
        short_description: text("shortDescription").to_owned(),
        r#type: Some(proto::FeatureType {
            kind: Some(kind),
            is_optional: text("isOptional") == "1",
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// A list of numbers within a string: `[1, 2]`, `[[1, 2], [3, 4]]`.
fn numbers<T: serde::de::DeserializeOwned>(entry: &Value, key: &str) -> Result<Option<T>, String> {
    let Some(text) = entry.get(key).and_then(Value::as_str) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|_| format!("its `{key}` is {text:?}"))
}

fn array(entry: &Value) -> Result<proto::ArrayFeatureType, String> {
    let dtype = entry.get("dataType").and_then(Value::as_str).unwrap_or_default();
    let known = ARRAY_TYPES.iter().find(|t| super::precision::name(t.1) == dtype);
    let Some(&(data_type, ..)) = known else {
        return Err(format!("there is no array element type {dtype:?}"));
    };
    let shape: Vec<i64> = numbers(entry, "shape")?.unwrap_or_default();
    let ranges: Option<Vec<(u64, i64)>> = numbers(entry, "shapeRange")?;
    let enumerated: Option<Vec<Vec<i64>>> = numbers(entry, "enumeratedShapes")?;
    let flexibility = match (enumerated, ranges) {
        (Some(shapes), _) => {
            let shape = |shape| proto::ArrayShape { shape, ..Default::default() };
            let shapes = shapes.into_iter().map(shape).collect();
            Some(Flexibility::Enumerated(proto::EnumeratedShapes { shapes, ..Default::default() }))
        }
        (None, Some(ranges)) => {
            let range = |(lower, upper)| proto::SizeRange { lower, upper, ..Default::default() };
            let size_ranges = ranges.into_iter().map(range).collect();
            Some(Flexibility::Range(proto::ShapeRange { size_ranges, ..Default::default() }))
        }
        (None, None) => None,
    };
    Ok(proto::ArrayFeatureType { shape, data_type, flexibility, ..Default::default() })
}

fn image(entry: &Value) -> Result<proto::ImageFeatureType, String> {
    let number = |key: &str| {
        let text = entry.get(key).and_then(Value::as_str).unwrap_or_default();
        text.parse::<i64>().map_err(|_| format!("its {key} is {text:?}"))
    };
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let color = match (text("colorspace"), text("formattedType")) {
        ("BGR", _) => Color::Bgr,
        ("RGB", _) => Color::Rgb,
        (_, formatted) if formatted.contains("Grayscale16") => Color::GrayscaleF16,
        (_, formatted) if formatted.contains("Grayscale") => Color::Grayscale,
        _ => Color::Rgb,
    };
    let color_space = COLORS.iter().find(|c| c.1 == color).map_or(0, |c| c.0);
    let ranges: Option<[(u64, i64); 2]> = numbers(entry, "sizeRange")?;
    let image_size_range = ranges.map(|[width, height]| {
        let range = |(lower, upper)| proto::SizeRange { lower, upper, ..Default::default() };
        proto::ImageSizeRange {
            width: Some(range(width)),
            height: Some(range(height)),
            ..Default::default()
        }
    });
    let (width, height) = (number("width")?, number("height")?);
    Ok(proto::ImageFeatureType {
        width,
        height,
        color_space,
        image_size_range,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlpackage::Feature;

    #[test]
    fn what_we_write_reads_back() {
        let array = proto::ArrayFeatureType {
            shape: vec![1, 8],
            data_type: 65568,
            flexibility: Some(Flexibility::Range(proto::ShapeRange {
                size_ranges: vec![
                    proto::SizeRange { lower: 1, upper: 1, ..Default::default() },
                    proto::SizeRange { lower: 2, upper: -1, ..Default::default() },
                ],
                ..Default::default()
            })),
            ..Default::default()
        };
        let image =
            proto::ImageFeatureType { width: 4, height: 5, color_space: 30, ..Default::default() };
        let feature = |name: &str, kind| proto::FeatureDescription {
            name: name.into(),
            short_description: "a \"text\"".into(),
            r#type: Some(proto::FeatureType { kind: Some(kind), ..Default::default() }),
            ..Default::default()
        };
        let user_defined = proto::Map::from_iter([("key".to_owned(), "value".to_owned())]);
        let description = proto::ModelDescription {
            input: vec![
                feature("x", FeatureKind::MultiArray(array)),
                feature("i", FeatureKind::Image(image)),
            ],
            output: vec![feature("n", FeatureKind::Int64(Default::default()))],
            metadata: Some(proto::Metadata {
                author: "A".into(),
                user_defined,
                ..Default::default()
            }),
            ..Default::default()
        };
        let model = proto::Model {
            specification_version: 8,
            description: Some(description.clone()),
            ml_program: Some(Default::default()),
            ..Default::default()
        };
        let text = super::super::render(&model, "a model-1").unwrap();
        assert!(text.contains("\"generatedClassName\": \"a_model_1\""), "{text}");
        let read = parse(&text, Path::new("metadata.json")).unwrap();
        assert_eq!((read.spec_version, read.description), (Some(8), description));
        let feature = Feature::decode(&read_first(&text));
        assert!(feature.is_ok());
    }

    fn read_first(text: &str) -> proto::FeatureDescription {
        let read = parse(text, Path::new("metadata.json")).unwrap();
        read.description.input[0].clone()
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, wanted) in [
            ("", "1:0"),
            ("{}", "no list of one model"),
            ("[3]", "no list of one model"),
            (r#"[{"inputSchema": [{"name": "x", "type": "Cube"}]}]"#, "no type \"Cube\""),
            (
                r#"[{"inputSchema": [{"name": "x", "type": "MultiArray", "dataType": "Int7"}]}]"#,
                "inputSchema: x: there is no array element type",
            ),
            (
                r#"[{"inputSchema": [{"name": "x", "type": "MultiArray", "dataType": "Int32", "shape": "[-"}]}]"#,
                "its `shape` is",
            ),
        ] {
            let error = parse(text, Path::new("metadata.json")).unwrap_err();
            let shown = format!("{}: {error}", error.place());
            assert!(shown.contains(wanted), "{shown:?} does not say {wanted:?}");
        }
    }
}
