//! Types in a text.

use std::fmt::Write;

use russet_ir::DType;

use super::lex::Parsed;
use super::parse::Parser;
use super::{DEPTH_MAX, Syntax};
use crate::mlpackage::proto::{self, DimensionKind, ValueKind};
use crate::mlpackage::value::{self, dtype_of, number_of};

/// Words that begin a type in angle brackets.
const COMPOUND: &[&str] = &["tensor", "tensor_buffer", "list", "dict", "tuple", "state"];

/// Attributes of the tensor type that stands for a `tensor_buffer`.
const STRIDES: &str = "strides";
const INTERLEAVE: &str = "interleave_factors";

/// Does a type begin with this word?
pub fn begins_type(word: &str) -> bool {
    COMPOUND.contains(&word) || word.parse::<DType>().is_ok()
}

impl Parser<'_> {
    pub(super) fn value_type(&mut self, depth: usize) -> Parsed<proto::ValueType> {
        let at = self.place();
        if depth > DEPTH_MAX {
            return Err(self.wrong(at, "types are nested too deeply"));
        }
        let word = self.name("a type")?;
        if let Ok(dtype) = word.parse::<DType>() {
            return Ok(tensor(dtype, Vec::new()));
        }
        if !COMPOUND.contains(&word) {
            return Err(self.wrong(at, format!("there is no type `{word}`")));
        }
        self.mark("<")?;
        let kind = match word {
            "tensor" => {
                let dtype = self.dtype()?;
                self.mark(",")?;
                let ty = tensor(dtype, self.dimensions()?);
                self.mark(">")?;
                return Ok(ty);
            }
            "tensor_buffer" => return self.tensor_buffer(),
            "list" => {
                let of = self.value_type(depth + 1)?;
                self.mark(",")?;
                let length = Some(self.dimension()?);
                let r#type = Some(Box::new(of));
                ValueKind::List(Box::new(proto::ListType { r#type, length, ..Default::default() }))
            }
            "dict" => {
                let key_type = Some(Box::new(self.value_type(depth + 1)?));
                self.mark(",")?;
                let value_type = Some(Box::new(self.value_type(depth + 1)?));
                ValueKind::Dictionary(Box::new(proto::DictionaryType {
                    key_type,
                    value_type,
                    ..Default::default()
                }))
            }
            "tuple" => {
                let mut types = vec![self.value_type(depth + 1)?];
                while self.takes(",")? {
                    types.push(self.value_type(depth + 1)?);
                }
                ValueKind::Tuple(proto::TupleType { types, ..Default::default() })
            }
            _ => {
                let wrapped_type = Some(Box::new(self.value_type(depth + 1)?));
                ValueKind::State(Box::new(proto::StateType { wrapped_type, ..Default::default() }))
            }
        };
        self.mark(">")?;
        Ok(proto::ValueType { kind: Some(kind), ..Default::default() })
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let at = self.place();
        let word = self.name("an element type")?;
        word.parse().map_err(|()| self.wrong(at, format!("there is no element type `{word}`")))
    }

    fn dimensions(&mut self) -> Parsed<Vec<proto::Dimension>> {
        self.mark("[")?;
        let mut dims = Vec::new();
        if self.takes("]")? {
            return Ok(dims);
        }
        loop {
            dims.push(self.dimension()?);
            if !self.takes(",")? {
                break;
            }
        }
        self.mark("]")?;
        Ok(dims)
    }

    fn dimension(&mut self) -> Parsed<proto::Dimension> {
        let kind = match self.takes("?")? {
            true => DimensionKind::Unknown(proto::UnknownDimension::default()),
            false => {
                let size = self.integer("an extent or `?`")?;
                DimensionKind::Constant(proto::ConstantDimension { size, ..Default::default() })
            }
        };
        Ok(proto::Dimension { kind: Some(kind), ..Default::default() })
    }

    /// What follows `tensor_buffer<`.
    fn tensor_buffer(&mut self) -> Parsed<proto::ValueType> {
        let dtype = self.dtype()?;
        let (mut dims, mut attributes) = (Vec::new(), proto::Map::default());
        while self.takes(",")? {
            let at = self.place();
            let key = self.name("`shape`, `strides` or `interleave_factors`")?;
            self.mark("=")?;
            match key {
                "shape" => dims = self.dimensions()?,
                STRIDES | INTERLEAVE => {
                    let numbers: Vec<i64> = self.integers()?;
                    attributes.insert(key.to_owned(), value::long_ints(&numbers));
                }
                _ => return Err(self.wrong(at, format!("a buffer has no `{key}`"))),
            }
        }
        self.mark(">")?;
        let mut ty = tensor(dtype, dims);
        if let Some(ValueKind::Tensor(t)) = &mut ty.kind {
            t.attributes = attributes;
        }
        Ok(ty)
    }

    fn integers(&mut self) -> Parsed<Vec<i64>> {
        self.mark("[")?;
        let mut all = Vec::new();
        while !self.takes("]")? {
            if !all.is_empty() {
                self.mark(",")?;
            }
            all.push(self.integer("an integer")?);
        }
        Ok(all)
    }
}

fn tensor(dtype: DType, dimensions: Vec<proto::Dimension>) -> proto::ValueType {
    let t = proto::TensorType {
        data_type: number_of(dtype),
        rank: dimensions.len() as i64,
        dimensions,
        ..Default::default()
    };
    proto::ValueType { kind: Some(ValueKind::Tensor(t)), ..Default::default() }
}

/// The text of a type; `Err` says in words what is wrong with it.
pub fn print_type(
    ty: Option<&proto::ValueType>,
    syntax: Syntax,
    depth: usize,
    out: &mut String,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("types are nested too deeply".into());
    }
    let Some(kind) = ty.and_then(|t| t.kind.as_ref()) else { return Err("it has no type".into()) };
    let inner = |t: &Option<Box<proto::ValueType>>, out: &mut String| {
        print_type(t.as_deref(), syntax, depth + 1, out)
    };
    match kind {
        ValueKind::Tensor(t) => {
            let dtype = dtype_of(t)?;
            if t.attributes.contains_key(STRIDES) || t.attributes.contains_key(INTERLEAVE) {
                let _ = write!(out, "tensor_buffer<{dtype}, shape=");
                print_dimensions(&t.dimensions, out);
                for key in [STRIDES, INTERLEAVE] {
                    if let Some(numbers) = t.attributes.get(key) {
                        let _ = write!(out, ", {key}={:?}", value::as_long_ints(numbers)?);
                    }
                }
                out.push('>');
            } else if t.dimensions.is_empty() && syntax.has_scalars() {
                out.push_str(dtype.name());
            } else {
                let _ = write!(out, "tensor<{dtype}, ");
                print_dimensions(&t.dimensions, out);
                out.push('>');
            }
        }
        ValueKind::List(l) => {
            out.push_str("list<");
            inner(&l.r#type, out)?;
            out.push_str(", ");
            print_dimension(l.length.as_ref(), out);
            out.push('>');
        }
        ValueKind::Dictionary(d) => {
            out.push_str("dict<");
            inner(&d.key_type, out)?;
            out.push_str(", ");
            inner(&d.value_type, out)?;
            out.push('>');
        }
        ValueKind::Tuple(t) => {
            out.push_str("tuple<");
            for (i, ty) in t.types.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                print_type(Some(ty), syntax, depth + 1, out)?;
            }
            out.push('>');
        }
        ValueKind::State(s) => {
            out.push_str("state<");
            inner(&s.wrapped_type, out)?;
            out.push('>');
        }
    }
    Ok(())
}

fn print_dimensions(dims: &[proto::Dimension], out: &mut String) {
    out.push('[');
    for (i, d) in dims.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        print_dimension(Some(d), out);
    }
    out.push(']');
}

fn print_dimension(dim: Option<&proto::Dimension>, out: &mut String) {
    match dim.and_then(|d| d.kind.as_ref()) {
        Some(DimensionKind::Constant(c)) => {
            let _ = write!(out, "{}", c.size);
        }
        _ => out.push('?'),
    }
}
