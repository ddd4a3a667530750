//! One entry for each input, output and state.

use serde_json::{Map, Value, json};

use super::precision;
use crate::mlpackage::proto;
use crate::mlpackage::{Array, Color, Feature, Image, ImageSizes, Kind, Shapes, Span};

/// The entries of these features, in their order. `Err` says in words what is wrong with one.
pub fn all(features: &[proto::FeatureDescription]) -> Result<Vec<Value>, String> {
    features.iter().map(|f| Feature::decode(f).map(|f| entry(&f))).collect()
}

fn entry(f: &Feature) -> Value {
    let mut m = Map::new();
    let mut put = |key: &str, value: String| drop(m.insert(key.into(), json!(value)));
    put("name", f.name.clone());
    put("shortDescription", f.text.clone());
    put("isOptional", flag(f.optional));
    match &f.kind {
        Kind::Array(a) => {
            array(a, "MultiArray", &mut put);
            flexibility(a, &mut put);
        }
        Kind::State(a) => array(a, "State", &mut put),
        Kind::Image(i) => image(i, &mut put),
        Kind::Int64 => simple("Int64", &mut put),
        Kind::Double => simple("Double", &mut put),
        Kind::String => simple("String", &mut put),
        Kind::Dictionary { string_keys } => {
            let key = if *string_keys { "String" } else { "Int64" };
            put("type", "Dictionary".into());
            put("keyType", key.into());
            put("formattedType", format!("Dictionary ({key} → Double)"));
        }
        Kind::Sequence => simple("Sequence", &mut put),
    }
    Value::Object(m)
}

fn flag(yes: bool) -> String {
    if yes { "1".into() } else { "0".into() }
}

fn simple(ty: &str, put: &mut dyn FnMut(&str, String)) {
    put("type", ty.into());
    put("formattedType", ty.into());
}

fn array(a: &Array, ty: &str, put: &mut dyn FnMut(&str, String)) {
    let dtype = precision::name(a.dtype);
    let shape: Vec<String> = a.shape.iter().map(u64::to_string).collect();
    let extents = if shape.is_empty() { String::new() } else { format!(" {}", shape.join(" × ")) };
    put("type", ty.into());
    put("formattedType", format!("{ty} ({dtype}{extents})"));
    put("shape", format!("[{}]", shape.join(", ")));
    put("dataType", dtype);
}

fn flexibility(a: &Array, put: &mut dyn FnMut(&str, String)) {
    put("hasShapeFlexibility", flag(a.flexible != Shapes::Fixed));
    match &a.flexible {
        Shapes::Fixed => {}
        Shapes::Enumerated(shapes) => {
            let shown = |shape: &Vec<u64>| {
                let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
                extents.join(" × ")
            };
            let all: Vec<String> = shapes.iter().map(shown).collect();
            put("shapeFlexibility", all.join(" | "));
            put("enumeratedShapes", format!("{shapes:?}"));
        }
        Shapes::Ranges(spans) => {
            let all: Vec<String> = spans.iter().map(span).collect();
            put("shapeFlexibility", all.join(" × "));
            put(
                "shapeRange",
                format!("[{}]", spans.iter().map(pair).collect::<Vec<_>>().join(", ")),
            );
        }
    }
}

fn span(&(low, high): &Span) -> String {
    match high {
        Some(high) if high == low => low.to_string(),
        Some(high) => format!("{low}...{high}"),
        // Not seen in a file of Apple's.
        None => format!("{low}..."),
    }
}

fn pair(&(low, high): &Span) -> String {
    match high {
        Some(high) => format!("[{low}, {high}]"),
        None => format!("[{low}, -1]"),
    }
}

fn image(i: &Image, put: &mut dyn FnMut(&str, String)) {
    let (word, space, is_color) = match i.color {
        Color::Grayscale => ("Grayscale", "", false),
        Color::GrayscaleF16 => ("Grayscale16Half", "", false),
        Color::Rgb => ("Color", "RGB", true),
        Color::Bgr => ("Color", "BGR", true),
    };
    put("type", "Image".into());
    put("formattedType", format!("Image ({word} {} × {})", i.width, i.height));
    put("width", i.width.to_string());
    put("height", i.height.to_string());
    put("colorspace", space.into());
    put("isColor", flag(is_color));
    put("hasSizeFlexibility", flag(i.sizes != ImageSizes::Fixed));
    match &i.sizes {
        ImageSizes::Fixed => {}
        ImageSizes::Enumerated(sizes) => {
            let shown: Vec<String> = sizes.iter().map(|(w, h)| format!("{w} × {h}")).collect();
            put("sizeFlexibility", shown.join(" | "));
            let pairs: Vec<String> = sizes.iter().map(|(w, h)| format!("[{w}, {h}]")).collect();
            put("enumeratedSizes", format!("[{}]", pairs.join(", ")));
        }
        ImageSizes::Ranges { width, height } => {
            put("sizeFlexibility", format!("{} × {}", span(width), span(height)));
            put("sizeRange", format!("[{}, {}]", pair(width), pair(height)));
        }
    }
}
