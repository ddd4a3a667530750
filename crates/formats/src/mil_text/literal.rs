//! Values in a text: a type and, in parentheses, what it holds.

use std::fmt::Write;

use russet_ir::{DType, Tensor};

use super::lex::{self, Kind, Parsed, Token};
use super::parse::Parser;
use super::types::print_type;
use super::{DEPTH_MAX, Syntax, number};
use crate::mlpackage::proto::{self, Contents, DimensionKind, Immediate, ValueKind};
use crate::mlpackage::value;

/// Brackets of a tensor without elements that are printed at most.
const BRACKETS_MAX: u64 = 1 << 16;

impl Parser<'_> {
    /// `type(contents)`.
    pub(super) fn value(&mut self) -> Parsed<proto::Value> {
        let ty = self.value_type(0)?;
        self.mark("(")?;
        let value = self.contents(ty, 0)?;
        self.mark(")")?;
        Ok(value)
    }

    fn contents(&mut self, ty: proto::ValueType, depth: usize) -> Parsed<proto::Value> {
        let at = self.place();
        if depth > DEPTH_MAX {
            return Err(self.wrong(at, "values are nested too deeply"));
        }
        let contents = match &ty.kind {
            Some(ValueKind::Tensor(t)) => match self.peek()? {
                Token { kind: Kind::Name, text: "BLOBFILE", .. } => self.blob()?,
                _ => immediate(Immediate::Tensor(self.tensor(t)?)),
            },
            Some(ValueKind::List(l)) => {
                let of = l.r#type.as_deref().cloned().unwrap_or_default();
                self.mark("[")?;
                let mut values = Vec::new();
                while !self.takes("]")? {
                    if !values.is_empty() {
                        self.mark(",")?;
                    }
                    values.push(self.contents(of.clone(), depth + 1)?);
                }
                immediate(Immediate::List(list(values)))
            }
            Some(ValueKind::Dictionary(d)) => {
                let key_type = d.key_type.as_deref().cloned().unwrap_or_default();
                let value_type = d.value_type.as_deref().cloned().unwrap_or_default();
                self.mark("{")?;
                let mut values = Vec::new();
                while !self.takes("}")? {
                    if !values.is_empty() {
                        self.mark(",")?;
                    }
                    self.mark("{")?;
                    let key = Some(self.contents(key_type.clone(), depth + 1)?);
                    self.mark(",")?;
                    let value = Some(self.contents(value_type.clone(), depth + 1)?);
                    self.mark("}")?;
                    values.push(proto::KeyValuePair { key, value, ..Default::default() });
                }
                let dictionary = proto::DictionaryValue { values, ..Default::default() };
                immediate(Immediate::Dictionary(dictionary))
            }
            Some(ValueKind::Tuple(t)) => {
                self.mark("(")?;
                let mut values = Vec::new();
                for (i, ty) in t.types.iter().enumerate() {
                    if i > 0 {
                        self.mark(",")?;
                    }
                    values.push(self.contents(ty.clone(), depth + 1)?);
                }
                self.mark(")")?;
                immediate(Immediate::Tuple(list(values)))
            }
            _ => return Err(self.wrong(at, "there are no values of this type")),
        };
        Ok(proto::Value { r#type: Some(ty), contents: Some(contents), ..Default::default() })
    }

    /// `BLOBFILE(path = …, offset = …)`.
    fn blob(&mut self) -> Parsed<Contents> {
        self.take()?;
        self.mark("(")?;
        let (mut file_name, mut offset) = (None, None);
        for i in 0..2 {
            if i > 0 {
                self.mark(",")?;
            }
            let at = self.place();
            let key = self.name("`path` or `offset`")?;
            self.mark("=")?;
            let given = value::scalar(&self.value()?).map_err(|e| self.wrong(at, e))?;
            match key {
                "path" => file_name = given.as_strings().map(|s| s.concat()),
                "offset" => {
                    let number = given.to_i64().and_then(|v| v.first().copied());
                    offset = number.and_then(|n| u64::try_from(n).ok());
                }
                _ => return Err(self.wrong(at, format!("a place in a file has no `{key}`"))),
            }
        }
        let (Some(file_name), Some(offset)) = (file_name, offset) else {
            let why = "a place in a file needs a `path` that is a string and an `offset`";
            return Err(self.wrong(self.place(), why));
        };
        self.mark(")")?;
        let reference = proto::BlobFileValue { file_name, offset, ..Default::default() };
        Ok(Contents::BlobFile(reference))
    }

    fn tensor(&mut self, ty: &proto::TensorType) -> Parsed<proto::TensorValue> {
        let at = self.place();
        let dtype = value::dtype_of(ty).map_err(|e| self.wrong(at, e))?;
        if ty.dimensions.len() > DEPTH_MAX {
            return Err(self.wrong(at, "a constant of this rank is not read"));
        }
        let mut elements = Elements { dtype, n: 0, bytes: Vec::new(), strings: Vec::new() };
        self.elements(&ty.dimensions, &mut elements)?;
        let tensor = match dtype {
            DType::String => Tensor::strings(vec![elements.n], elements.strings),
            _ => Tensor::new(dtype, vec![elements.n], elements.bytes.into()),
        };
        let tensor = tensor.map_err(|e| self.wrong(at, e.to_string()))?;
        let elements = Some(value::encode_elements(&tensor));
        Ok(proto::TensorValue { elements, ..Default::default() })
    }

    /// As many brackets as there are dimensions, and in each as many entries as there should be.
    fn elements(&mut self, dims: &[proto::Dimension], out: &mut Elements) -> Parsed<()> {
        let Some((dim, inner)) = dims.split_first() else { return self.element(out) };
        let at = self.place();
        self.mark("[")?;
        let mut n = 0u64;
        while !self.takes("]")? {
            if n > 0 {
                self.mark(",")?;
            }
            self.elements(inner, out)?;
            n += 1;
        }
        match &dim.kind {
            Some(DimensionKind::Constant(c)) if c.size != n => {
                Err(self.wrong(at, format!("there are {n} entries, the type says {}", c.size)))
            }
            _ => Ok(()),
        }
    }

    fn element(&mut self, out: &mut Elements) -> Parsed<()> {
        let token = self.peek()?;
        let done = match (out.dtype, token.kind) {
            (DType::String, Kind::String) => {
                let text = lex::unescape(token.text).map_err(|i| {
                    self.wrong(token.at + 1 + i, "there is no such escape in a string")
                })?;
                out.strings.push(text);
                true
            }
            (DType::Bool, Kind::Name) => match token.text {
                "true" | "false" => out.push(&[u8::from(token.text == "true")]),
                _ => false,
            },
            (dtype, Kind::Number | Kind::Name) if dtype.is_float() => {
                number::float(token.text).is_some_and(|x| out.float(x))
            }
            (dtype, Kind::Number) if dtype.is_int() => {
                token.text.parse::<i128>().is_ok_and(|i| out.integer(i))
            }
            _ => false,
        };
        if !done {
            return Err(self.unexpected(&format!("a value of type {}", out.dtype)));
        }
        out.n += 1;
        self.take().map(|_| ())
    }
}

/// The elements of a tensor as they come, packed.
struct Elements {
    dtype: DType,
    n: u64,
    bytes: Vec<u8>,
    strings: Vec<String>,
}

impl Elements {
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// `false` when no number of this type can be written so.
    fn float(&mut self, x: f64) -> bool {
        match self.dtype {
            DType::F64 => self.push(&x.to_le_bytes()),
            DType::F32 => self.push(&(x as f32).to_le_bytes()),
            DType::F16 => self.push(&half::f16::from_f64(x).to_le_bytes()),
            DType::BF16 => self.push(&half::bf16::from_f64(x).to_le_bytes()),
            // Of 256 numbers the one that is meant.
            dtype => {
                let all: Vec<u8> = (0..=255).collect();
                let table = Tensor::new(dtype, vec![256], all.into()).expect("a byte for each");
                let is_it = |y: &f32| f64::from(*y) == x || y.is_nan() && x.is_nan();
                let found = table.to_f32().iter().position(is_it);
                found.is_some_and(|code| self.push(&[code as u8]))
            }
        }
    }

    /// `false` when the number is none of this type.
    fn integer(&mut self, i: i128) -> bool {
        use DType::*;
        let bits = self.dtype.bits();
        let signed = matches!(self.dtype, I4 | I8 | I16 | I32 | I64);
        let (low, high) = match signed {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        if !(low..=high).contains(&i) {
            return false;
        }
        if bits >= 8 {
            return self.push(&(i as u64).to_le_bytes()[..(bits / 8) as usize]);
        }
        // A stream of bits, the least significant first.
        let code = i as u64 & ((1 << bits) - 1);
        for bit in 0..bits {
            let at = self.n * bits + bit;
            if at.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((code >> bit & 1) as u8) << (at % 8);
            }
        }
        true
    }
}

fn immediate(kind: Immediate) -> Contents {
    Contents::Immediate(proto::ImmediateValue { kind: Some(kind), ..Default::default() })
}

fn list(values: Vec<proto::Value>) -> proto::ListValue {
    proto::ListValue { values, ..Default::default() }
}

/// `type(contents)`; `Err` says in words what is wrong.
pub fn print_value(v: &proto::Value, syntax: Syntax, out: &mut String) -> Result<(), String> {
    print_type(v.r#type.as_ref(), syntax, 0, out)?;
    out.push('(');
    print_contents(v, syntax, 0, out)?;
    out.push(')');
    Ok(())
}

fn print_contents(
    v: &proto::Value,
    syntax: Syntax,
    depth: usize,
    out: &mut String,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("values are nested too deeply".into());
    }
    let kind = match &v.contents {
        Some(Contents::BlobFile(b)) => {
            let (string, uint64) = match syntax.has_scalars() {
                true => ("string", "uint64"),
                false => ("tensor<string, []>", "tensor<uint64, []>"),
            };
            let _ = write!(out, "BLOBFILE(path = {string}(");
            print_string(&b.file_name, out);
            let _ = write!(out, "), offset = {uint64}({}))", b.offset);
            return Ok(());
        }
        Some(Contents::Immediate(i)) => i.kind.as_ref(),
        None => None,
    };
    match kind {
        Some(Immediate::Tensor(t)) => print_tensor(v.r#type.as_ref(), t, depth > 0, out),
        Some(Immediate::List(l)) => print_all(&l.values, "[", "]", syntax, depth, out),
        Some(Immediate::Tuple(l)) => print_all(&l.values, "(", ")", syntax, depth, out),
        Some(Immediate::Dictionary(d)) => {
            out.push('{');
            for (i, pair) in d.values.iter().enumerate() {
                out.push_str(if i > 0 { ", {" } else { "{" });
                let (Some(key), Some(value)) = (&pair.key, &pair.value) else {
                    return Err("an entry of a dictionary has no key or no value".into());
                };
                print_contents(key, syntax, depth + 1, out)?;
                out.push_str(", ");
                print_contents(value, syntax, depth + 1, out)?;
                out.push('}');
            }
            out.push('}');
            Ok(())
        }
        None => Err("it has no value".into()),
    }
}

fn print_all(
    values: &[proto::Value],
    open: &str,
    close: &str,
    syntax: Syntax,
    depth: usize,
    out: &mut String,
) -> Result<(), String> {
    out.push_str(open);
    for (i, value) in values.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        print_contents(value, syntax, depth + 1, out)?;
    }
    out.push_str(close);
    Ok(())
}

/// Prints one element.
type Leaf<'a> = Box<dyn FnMut(usize, &mut String) + 'a>;

/// Within a list or a dictionary floats are decimal.
fn print_tensor(
    ty: Option<&proto::ValueType>,
    value: &proto::TensorValue,
    within: bool,
    out: &mut String,
) -> Result<(), String> {
    let Some(ValueKind::Tensor(t)) = ty.and_then(|t| t.kind.as_ref()) else {
        return Err("its value is a tensor, its type is none".into());
    };
    let dtype = value::dtype_of(t)?;
    let tensor = value::decode_flat(dtype, value.elements.as_ref(), count(&t.dimensions))?;
    let n = tensor.n_elements();
    let shape = shape_of(&t.dimensions, n)?;
    let mut leaf: Leaf<'_> = if let Some(strings) = tensor.as_strings() {
        Box::new(|i, out| print_string(&strings[i], out))
    } else if dtype == DType::F64 {
        let bytes = tensor.to_bytes();
        let double = move |i: usize| {
            f64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"))
        };
        Box::new(move |i, out| print_float(double(i), within, out))
    } else if dtype.is_float() {
        let floats = tensor.to_f32();
        Box::new(move |i, out| print_float(f64::from(floats[i]), within, out))
    } else {
        let integers = tensor.to_i64().unwrap_or_default();
        Box::new(move |i, out| {
            let _ = match dtype {
                DType::Bool => write!(out, "{}", integers[i] != 0),
                DType::U64 => write!(out, "{}", integers[i] as u64),
                _ => write!(out, "{}", integers[i]),
            };
        })
    };
    print_nested(&shape, &mut 0, &mut leaf, out);
    Ok(())
}

fn print_float(x: f64, decimal: bool, out: &mut String) {
    match decimal {
        true => number::decimal(x, out),
        false => number::hex(x, out),
    }
}

/// The number of elements, where no extent is unknown.
fn count(dims: &[proto::Dimension]) -> Option<u64> {
    dims.iter().try_fold(1u64, |n, d| match &d.kind {
        Some(DimensionKind::Constant(c)) => n.checked_mul(c.size),
        _ => None,
    })
}

/// The shape `n` elements have. One unknown extent follows from the others.
fn shape_of(dims: &[proto::Dimension], n: u64) -> Result<Vec<u64>, String> {
    let known = |d: &proto::Dimension| match &d.kind {
        Some(DimensionKind::Constant(c)) => Some(c.size),
        _ => None,
    };
    let dims: Vec<Option<u64>> = dims.iter().map(known).collect();
    let product = dims.iter().flatten().try_fold(1u64, |p, &d| p.checked_mul(d));
    let unknown = dims.iter().filter(|d| d.is_none()).count();
    let wrong = || format!("{n} elements do not fill its shape");
    let extent = match (product, unknown) {
        (Some(p), 0) if p == n => 0,
        (Some(p), 1) if p > 0 && n.is_multiple_of(p) => n / p,
        _ => return Err(wrong()),
    };
    let shape: Vec<u64> = dims.into_iter().map(|d| d.unwrap_or(extent)).collect();
    let brackets = shape.iter().take_while(|&&d| d > 0).try_fold(1u64, |p, &d| p.checked_mul(d));
    match n == 0 && brackets.is_none_or(|b| b > BRACKETS_MAX) {
        true => Err("it has no elements in very many rows".into()),
        false => Ok(shape),
    }
}

fn print_nested(
    shape: &[u64],
    at: &mut usize,
    leaf: &mut dyn FnMut(usize, &mut String),
    out: &mut String,
) {
    let Some((&n, inner)) = shape.split_first() else {
        leaf(*at, out);
        *at += 1;
        return;
    };
    out.push('[');
    for i in 0..n {
        out.push_str(if i > 0 { ", " } else { "" });
        print_nested(inner, at, leaf, out);
    }
    out.push(']');
}

fn print_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out.push('"');
}
