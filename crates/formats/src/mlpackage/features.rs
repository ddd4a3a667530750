//! What a package says of its inputs and outputs to those who call it.
//!
//! Element types and shapes follow from the program, and are derived from it when a package is
//! written. A [`Description`] holds the rest: texts, images, optional inputs.

use russet_ir::{DType, Dim, Graph, Opset, Symbol, Type};

use super::proto;
use proto::{FeatureKind, Flexibility};

/// The features of every function, in the order of the package; the default function first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    pub functions: Vec<FunctionDescription>,
}

/// The features of one function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionDescription {
    pub name: String,
    pub inputs: Vec<Feature>,
    pub outputs: Vec<Feature>,
    pub states: Vec<Feature>,
    /// Of a classifier: the output that is the class, empty otherwise.
    pub predicted_feature: String,
    /// Of a classifier: the output that holds the probabilities, empty otherwise.
    pub predicted_probabilities: String,
}

/// One input, output or state.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    pub name: String,
    /// Text for people.
    pub text: String,
    /// May a caller leave it out?
    pub optional: bool,
    pub kind: Kind,
}

/// What a caller hands over or gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Array(Array),
    State(Array),
    Image(Image),
    Int64,
    Double,
    String,
    /// Values by class; are the keys strings (or numbers)?
    Dictionary {
        string_keys: bool,
    },
    Sequence,
}

/// A multi-dimensional array.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub dtype: DType,
    /// The default shape of a flexible input; empty for a flexible output.
    pub shape: Vec<u64>,
    pub flexible: Shapes,
    /// What an optional input is filled with when it is left out.
    pub default: Option<f64>,
}

/// The shapes a caller may choose from.
#[derive(Debug, Clone, PartialEq)]
pub enum Shapes {
    Fixed,
    Enumerated(Vec<Vec<u64>>),
    /// Per dimension, inclusive; no upper end means unbounded.
    Ranges(Vec<Span>),
}

/// Lowest and highest extent, inclusive; no highest means unbounded.
pub type Span = (u64, Option<u64>);

/// An image of one width and height, or of several.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub width: u64,
    pub height: u64,
    pub color: Color,
    pub sizes: ImageSizes,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ImageSizes {
    Fixed,
    /// Width, height.
    Enumerated(Vec<(u64, u64)>),
    Ranges {
        width: Span,
        height: Span,
    },
}

/// How the pixels of an image are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    Grayscale,
    Rgb,
    Bgr,
    GrayscaleF16,
}

pub const COLORS: &[(i32, Color)] =
    &[(10, Color::Grayscale), (20, Color::Rgb), (30, Color::Bgr), (40, Color::GrayscaleF16)];

/// Element types of arrays at the border of a package, and the opset that brought them.
pub const ARRAY_TYPES: &[(i32, DType, Opset)] = &[
    (65568, DType::F32, Opset::Ios15),
    (65600, DType::F64, Opset::Ios15),
    (131104, DType::I32, Opset::Ios15),
    (65552, DType::F16, Opset::Ios16),
    (131080, DType::I8, Opset::Ios26),
];

/// The array an input, output or state of type `ty` is to a caller; `Err` says what cannot be.
pub fn array_of(graph: &Graph, ty: &Type, opset: Opset, is_input: bool) -> Result<Array, String> {
    let (Type::Tensor(t) | Type::State(t)) = ty else {
        return Err(format!("{ty} cannot be handed to or from a caller"));
    };
    let since = ARRAY_TYPES.iter().find(|a| a.1 == t.dtype).map(|a| a.2);
    match since {
        None => return Err(format!("{} cannot be handed to or from a caller", t.dtype)),
        Some(since) if since > opset => {
            return Err(format!(
                "{} can be handed to or from a caller from {since} on, this is {opset}",
                t.dtype
            ));
        }
        Some(_) => {}
    }
    let array = |shape, flexible| Array { dtype: t.dtype, shape, flexible, default: None };
    let Some(fixed) = t.fixed_shape() else {
        return match is_input {
            false => Ok(array(Vec::new(), Shapes::Fixed)),
            true => flexible(graph, &t.shape).map(|(shape, shapes)| array(shape, shapes)),
        };
    };
    // A scalar has no dimension in a program, and one (or none, as an output) to a caller.
    let shape = if fixed.is_empty() && is_input { vec![1] } else { fixed };
    Ok(array(shape, Shapes::Fixed))
}

/// The default shape and all others.
fn flexible(graph: &Graph, dims: &[Dim]) -> Result<(Vec<u64>, Shapes), String> {
    let symbols: Vec<&Symbol> = dims
        .iter()
        .filter_map(|d| match d {
            Dim::Symbol(s) => Some(s),
            Dim::Fixed(_) => None,
        })
        .collect();
    let rows = &graph.symbols.enumerated;
    if !rows.is_empty() && rows.iter().all(|b| symbols.iter().all(|s| b.contains_key(s))) {
        let shape = |b: &russet_ir::Binding| -> Vec<u64> {
            dims.iter()
                .map(|d| match d {
                    Dim::Fixed(n) => *n,
                    Dim::Symbol(s) => b[s],
                })
                .collect()
        };
        let shapes: Vec<Vec<u64>> = rows.iter().map(shape).collect();
        return Ok((shapes[0].clone(), Shapes::Enumerated(shapes)));
    }
    let span = |d: &Dim| match d {
        Dim::Fixed(n) => Ok((*n, Some(*n))),
        Dim::Symbol(s) => graph
            .symbols
            .ranges
            .get(s)
            .copied()
            .ok_or_else(|| format!("nothing says which numbers `{s}` may stand for")),
    };
    let spans = dims.iter().map(span).collect::<Result<Vec<Span>, String>>()?;
    Ok((spans.iter().map(|s| s.0.max(1)).collect(), Shapes::Ranges(spans)))
}

impl Feature {
    pub(super) fn encode(&self) -> proto::FeatureDescription {
        let kind = match &self.kind {
            Kind::Array(a) => FeatureKind::MultiArray(encode_array(a)),
            Kind::State(a) => FeatureKind::State(proto::StateFeatureType {
                array_type: Some(encode_array(a)),
                ..Default::default()
            }),
            Kind::Image(i) => FeatureKind::Image(encode_image(i)),
            Kind::Int64 => FeatureKind::Int64(proto::Empty { ..Default::default() }),
            Kind::Double => FeatureKind::Double(proto::Empty { ..Default::default() }),
            Kind::String => FeatureKind::String(proto::Empty { ..Default::default() }),
            Kind::Dictionary { string_keys } => {
                let key = |yes: bool| yes.then_some(proto::Empty { ..Default::default() });
                FeatureKind::Dictionary(proto::DictionaryFeatureType {
                    int64_key: key(!string_keys),
                    string_key: key(*string_keys),
                    ..Default::default()
                })
            }
            Kind::Sequence => FeatureKind::Sequence(proto::SequenceFeatureType::default()),
        };
        proto::FeatureDescription {
            name: self.name.clone(),
            short_description: self.text.clone(),
            r#type: Some(proto::FeatureType {
                kind: Some(kind),
                is_optional: self.optional,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// `Err` says in words what is wrong.
    pub(crate) fn decode(f: &proto::FeatureDescription) -> Result<Feature, String> {
        let Some(ty) = &f.r#type else { return Err(format!("feature {:?} has no type", f.name)) };
        let kind = match &ty.kind {
            Some(FeatureKind::MultiArray(a)) => Kind::Array(decode_array(a)?),
            Some(FeatureKind::State(s)) => match &s.array_type {
                Some(a) => Kind::State(decode_array(a)?),
                None => return Err(format!("state {:?} has no type", f.name)),
            },
            Some(FeatureKind::Image(i)) => Kind::Image(decode_image(i)?),
            Some(FeatureKind::Int64(_)) => Kind::Int64,
            Some(FeatureKind::Double(_)) => Kind::Double,
            Some(FeatureKind::String(_)) => Kind::String,
            Some(FeatureKind::Dictionary(d)) => {
                Kind::Dictionary { string_keys: d.string_key.is_some() }
            }
            Some(FeatureKind::Sequence(_)) => Kind::Sequence,
            None => return Err(format!("feature {:?} has no type", f.name)),
        };
        let (name, text) = (f.name.clone(), f.short_description.clone());
        Ok(Feature { name, text, optional: ty.is_optional, kind })
    }
}

fn encode_array(a: &Array) -> proto::ArrayFeatureType {
    let signed = |shape: &[u64]| shape.iter().map(|&n| n as i64).collect::<Vec<i64>>();
    let flexibility = match &a.flexible {
        Shapes::Fixed => None,
        Shapes::Enumerated(shapes) => {
            let shapes = shapes
                .iter()
                .map(|s| proto::ArrayShape { shape: signed(s), ..Default::default() })
                .collect();
            Some(Flexibility::Enumerated(proto::EnumeratedShapes { shapes, ..Default::default() }))
        }
        Shapes::Ranges(spans) => {
            let size_ranges = spans.iter().map(encode_span).collect();
            Some(Flexibility::Range(proto::ShapeRange { size_ranges, ..Default::default() }))
        }
    };
    let code = ARRAY_TYPES.iter().find(|t| t.1 == a.dtype).map_or(0, |t| t.0);
    let default_value = a.default.map(|x| match a.dtype {
        DType::F64 => proto::DefaultValue::Double(x),
        d if d.is_float() => proto::DefaultValue::Float(x as f32),
        _ => proto::DefaultValue::Int(x as i32),
    });
    proto::ArrayFeatureType {
        shape: signed(&a.shape),
        data_type: code,
        flexibility,
        default_value,
        ..Default::default()
    }
}

fn decode_array(a: &proto::ArrayFeatureType) -> Result<Array, String> {
    let Some(&(_, dtype, _)) = ARRAY_TYPES.iter().find(|t| t.0 == a.data_type) else {
        return Err(format!("there is no array element type {}", a.data_type));
    };
    let unsigned = |shape: &[i64]| -> Result<Vec<u64>, String> {
        let dim = |&n: &i64| u64::try_from(n).map_err(|_| format!("{n} is no extent"));
        shape.iter().map(dim).collect()
    };
    let flexible = match &a.flexibility {
        None => Shapes::Fixed,
        Some(Flexibility::Enumerated(e)) => {
            let shapes = e.shapes.iter().map(|s| unsigned(&s.shape)).collect::<Result<_, _>>()?;
            Shapes::Enumerated(shapes)
        }
        Some(Flexibility::Range(r)) => {
            Shapes::Ranges(r.size_ranges.iter().map(decode_span).collect::<Result<_, _>>()?)
        }
    };
    let default = a.default_value.as_ref().map(|v| match v {
        proto::DefaultValue::Int(i) => f64::from(*i),
        proto::DefaultValue::Float(x) => f64::from(*x),
        proto::DefaultValue::Double(x) => *x,
    });
    Ok(Array { dtype, shape: unsigned(&a.shape)?, flexible, default })
}

fn encode_span(&(lower, upper): &Span) -> proto::SizeRange {
    proto::SizeRange { lower, upper: upper.map_or(-1, |n| n as i64), ..Default::default() }
}

fn decode_span(r: &proto::SizeRange) -> Result<Span, String> {
    let upper = u64::try_from(r.upper).ok();
    if upper.is_some_and(|u| u < r.lower) {
        return Err(format!("the range {}..={} is empty", r.lower, r.upper));
    }
    Ok((r.lower, upper))
}

fn encode_image(i: &Image) -> proto::ImageFeatureType {
    let color = COLORS.iter().find(|c| c.1 == i.color).expect("every color has a number").0;
    let (mut enumerated_sizes, mut image_size_range) = (None, None);
    match &i.sizes {
        ImageSizes::Fixed => {}
        ImageSizes::Enumerated(sizes) => {
            let size = |&(width, height): &(u64, u64)| proto::ImageSize {
                width,
                height,
                ..Default::default()
            };
            let sizes = sizes.iter().map(size).collect();
            enumerated_sizes = Some(proto::EnumeratedImageSizes { sizes, ..Default::default() });
        }
        ImageSizes::Ranges { width, height } => {
            let (width, height) = (Some(encode_span(width)), Some(encode_span(height)));
            image_size_range = Some(proto::ImageSizeRange { width, height, ..Default::default() });
        }
    }
    proto::ImageFeatureType {
        width: i.width as i64,
        height: i.height as i64,
        color_space: color,
        enumerated_sizes,
        image_size_range,
        ..Default::default()
    }
}

fn decode_image(i: &proto::ImageFeatureType) -> Result<Image, String> {
    let Some(&(_, color)) = COLORS.iter().find(|c| c.0 == i.color_space) else {
        return Err(format!("there is no color space {}", i.color_space));
    };
    let size = |n: i64| u64::try_from(n).map_err(|_| format!("{n} is no extent"));
    let sizes = match (&i.enumerated_sizes, &i.image_size_range) {
        (Some(e), _) => {
            ImageSizes::Enumerated(e.sizes.iter().map(|s| (s.width, s.height)).collect())
        }
        (None, Some(r)) => {
            let span = |r: &Option<proto::SizeRange>| decode_span(&r.clone().unwrap_or_default());
            ImageSizes::Ranges { width: span(&r.width)?, height: span(&r.height)? }
        }
        (None, None) => ImageSizes::Fixed,
    };
    Ok(Image { width: size(i.width)?, height: size(i.height)?, color, sizes })
}
