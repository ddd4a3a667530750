//! Types and constants between the ir and MIL's messages.

use bytes::Bytes;
use russet_ir::{DType, Dim, Symbol, Tensor, TensorType, Type};

use super::proto;
use proto::{DimensionKind, Elements, Immediate, ValueKind};

/// MIL's numbers of element types.
const DATA_TYPES: &[(i32, DType)] = &[
    (1, DType::Bool),
    (2, DType::String),
    (10, DType::F16),
    (11, DType::F32),
    (12, DType::F64),
    (13, DType::BF16),
    (21, DType::I8),
    (22, DType::I16),
    (23, DType::I32),
    (24, DType::I64),
    (25, DType::I4),
    (31, DType::U8),
    (32, DType::U16),
    (33, DType::U32),
    (34, DType::U64),
    (35, DType::U4),
    (36, DType::U2),
    (37, DType::U1),
    (38, DType::U6),
    (39, DType::U3),
    (40, DType::F8E4M3),
    (41, DType::F8E5M2),
];

/// MIL's number of an element type.
pub fn number_of(dtype: DType) -> i32 {
    DATA_TYPES.iter().find(|d| d.1 == dtype).expect("every dtype has a number").0
}

/// The element type of a tensor type; `Err` says in words what is wrong.
pub fn dtype_of(t: &proto::TensorType) -> Result<DType, String> {
    let known = DATA_TYPES.iter().find(|d| d.0 == t.data_type);
    known.map(|d| d.1).ok_or_else(|| format!("there is no element type {}", t.data_type))
}

/// Nesting of types beyond which they are refused.
const DEPTH_MAX: usize = 8;

pub fn encode_type(ty: &Type) -> proto::ValueType {
    let kind = match ty {
        Type::Tensor(t) => ValueKind::Tensor(encode_tensor_type(t)),
        Type::State(t) => {
            let wrapped = encode_type(&Type::Tensor(t.clone()));
            ValueKind::State(Box::new(proto::StateType {
                wrapped_type: Some(Box::new(wrapped)),
                ..Default::default()
            }))
        }
        Type::List(t, n) => ValueKind::List(Box::new(proto::ListType {
            r#type: Some(Box::new(encode_type(t))),
            length: Some(encode_dim(*n)),
            ..Default::default()
        })),
        Type::Dict(k, v) => ValueKind::Dictionary(Box::new(proto::DictionaryType {
            key_type: Some(Box::new(encode_type(k))),
            value_type: Some(Box::new(encode_type(v))),
            ..Default::default()
        })),
    };
    proto::ValueType { kind: Some(kind), ..Default::default() }
}

fn encode_tensor_type(t: &TensorType) -> proto::TensorType {
    proto::TensorType {
        data_type: number_of(t.dtype),
        rank: t.rank() as i64,
        dimensions: t.shape.iter().map(|d| encode_dim(d.fixed())).collect(),
        attributes: Default::default(),
        ..Default::default()
    }
}

fn encode_dim(n: Option<u64>) -> proto::Dimension {
    let kind = match n {
        Some(size) => {
            DimensionKind::Constant(proto::ConstantDimension { size, ..Default::default() })
        }
        None => DimensionKind::Unknown(proto::UnknownDimension {
            variadic: false,
            ..Default::default()
        }),
    };
    proto::Dimension { kind: Some(kind), ..Default::default() }
}

/// The type a message states; unknown dimensions become symbols named `{name}.{axis}`.
/// `Err` says in words what is wrong.
pub fn decode_type(ty: Option<&proto::ValueType>, name: &str) -> Result<Type, String> {
    decode_type_at(ty, name, 0)
}

fn decode_type_at(ty: Option<&proto::ValueType>, name: &str, depth: usize) -> Result<Type, String> {
    if depth > DEPTH_MAX {
        return Err("its type is nested too deeply".into());
    }
    let inner = |t: &Option<Box<proto::ValueType>>| decode_type_at(t.as_deref(), name, depth + 1);
    let Some(kind) = ty.and_then(|t| t.kind.as_ref()) else {
        return Err("it has no type".into());
    };
    Ok(match kind {
        ValueKind::Tensor(t) => Type::Tensor(decode_tensor_type(t, name)?),
        ValueKind::List(l) => {
            let length = l.length.as_ref().and_then(|d| d.kind.as_ref());
            let length = match length {
                Some(DimensionKind::Constant(c)) => Some(c.size),
                _ => None,
            };
            Type::List(Box::new(inner(&l.r#type)?), length)
        }
        ValueKind::Dictionary(d) => {
            Type::Dict(Box::new(inner(&d.key_type)?), Box::new(inner(&d.value_type)?))
        }
        ValueKind::State(s) => match inner(&s.wrapped_type)? {
            Type::Tensor(t) => Type::State(t),
            other => return Err(format!("a state of {other} does not exist")),
        },
        ValueKind::Tuple(_) => return Err("its type is a tuple, which no op has".into()),
    })
}

fn decode_tensor_type(t: &proto::TensorType, name: &str) -> Result<TensorType, String> {
    let dtype = dtype_of(t)?;
    if t.rank != t.dimensions.len() as i64 {
        return Err(format!("its rank is {}, it has {} dimensions", t.rank, t.dimensions.len()));
    }
    let dim = |(i, d): (usize, &proto::Dimension)| match &d.kind {
        Some(DimensionKind::Constant(c)) => Ok(Dim::Fixed(c.size)),
        Some(DimensionKind::Unknown(u)) if !u.variadic => {
            Ok(Dim::Symbol(Symbol::new(&format!("{name}.{i}"))))
        }
        Some(DimensionKind::Unknown(_)) => Err("its rank is not fixed".to_owned()),
        None => Err(format!("dimension {i} is neither known nor unknown")),
    };
    let shape = t.dimensions.iter().enumerate().map(dim).collect::<Result<_, _>>()?;
    Ok(TensorType { dtype, shape })
}

/// A constant written into the model file itself.
pub fn encode_immediate(tensor: &Tensor) -> proto::Value {
    let elements = encode_elements(tensor);
    let tensor_value = proto::TensorValue { elements: Some(elements), ..Default::default() };
    immediate(encode_type(&tensor.ty().into()), Immediate::Tensor(tensor_value))
}

/// A one-dimensional constant as a list, which `classify` wants.
pub fn encode_list(tensor: &Tensor) -> proto::Value {
    let n = tensor.n_elements();
    let scalar = TensorType::scalar(tensor.dtype);
    let row = |i| encode_immediate(&tensor.rows(i, 1).reshaped(vec![]));
    let values = (0..n).map(row).collect();
    let ty = encode_type(&Type::List(Box::new(scalar.into()), Some(n)));
    immediate(ty, Immediate::List(proto::ListValue { values, ..Default::default() }))
}

/// A one-dimensional constant of 64-bit integers.
pub fn long_ints(values: &[i64]) -> proto::Value {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensor = Tensor::new(DType::I64, vec![values.len() as u64], bytes.into());
    encode_immediate(&tensor.expect("eight bytes for each"))
}

/// The numbers [`long_ints`] made a constant of.
pub fn as_long_ints(value: &proto::Value) -> Result<&[i64], String> {
    if let Some(proto::Contents::Immediate(i)) = &value.contents
        && let Some(Immediate::Tensor(t)) = &i.kind
        && let Some(Elements::LongInts(v)) = &t.elements
    {
        return Ok(&v.values);
    }
    Err("it is no list of 64-bit integers".into())
}

/// A constant in the weight file.
pub fn encode_blob(tensor: &Tensor, file_name: &str, offset: u64) -> proto::Value {
    let reference =
        proto::BlobFileValue { file_name: file_name.to_owned(), offset, ..Default::default() };
    proto::Value {
        doc_string: String::new(),
        r#type: Some(encode_type(&tensor.ty().into())),
        contents: Some(proto::Contents::BlobFile(reference)),
        ..Default::default()
    }
}

fn immediate(ty: proto::ValueType, kind: Immediate) -> proto::Value {
    let value = proto::ImmediateValue { kind: Some(kind), ..Default::default() };
    let contents = Some(proto::Contents::Immediate(value));
    proto::Value { doc_string: String::new(), r#type: Some(ty), contents, ..Default::default() }
}

/// Which field holds which type is Core ML's choice: see `coremltools`' `helper.py`.
pub fn encode_elements(tensor: &Tensor) -> Elements {
    if let Some(strings) = tensor.as_strings() {
        return Elements::Strings(proto::Strings {
            values: strings.to_vec(),
            ..Default::default()
        });
    }
    let bytes = tensor.to_bytes();
    match tensor.dtype {
        DType::F32 => Elements::Floats(proto::Floats {
            values: words(&bytes, f32::from_le_bytes),
            ..Default::default()
        }),
        DType::F64 => Elements::Doubles(proto::Doubles {
            values: words(&bytes, f64::from_le_bytes),
            ..Default::default()
        }),
        DType::Bool => {
            let values = bytes.iter().map(|&b| b != 0).collect();
            Elements::Bools(proto::Bools { values, ..Default::default() })
        }
        DType::I32 => Elements::Ints(proto::Ints {
            values: words(&bytes, i32::from_le_bytes),
            ..Default::default()
        }),
        DType::I16 => {
            let values = words(&bytes, |b| i16::from_le_bytes(b).into());
            Elements::Ints(proto::Ints { values, ..Default::default() })
        }
        DType::U16 => {
            let values = words(&bytes, |b| u16::from_le_bytes(b).into());
            Elements::Ints(proto::Ints { values, ..Default::default() })
        }
        DType::I64 | DType::U64 => {
            let values = words(&bytes, i64::from_le_bytes);
            Elements::LongInts(proto::LongInts { values, ..Default::default() })
        }
        _ => Elements::Bytes(proto::PackedBytes { values: bytes, ..Default::default() }),
    }
}

fn words<const N: usize, T>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&c| from(c)).collect()
}

/// The constant an immediate value is. A list of scalars becomes a tensor of one dimension.
/// `Err` says in words what is wrong.
pub fn decode_immediate(ty: &Type, value: &proto::ImmediateValue) -> Result<Tensor, String> {
    match (ty, &value.kind) {
        (Type::Tensor(t), Some(Immediate::Tensor(v))) => decode_tensor(t, v.elements.as_ref()),
        (Type::List(of, _), Some(Immediate::List(list))) => {
            let Type::Tensor(element) = &**of else {
                return Err(format!("a constant list of {of} is not understood"));
            };
            if element.rank() != 0 {
                return Err(format!("a constant list of {of} is not understood"));
            }
            join(element.dtype, &list.values)
        }
        (ty, Some(_)) => Err(format!("its value is not of its type {ty}")),
        (_, None) => Err("its value is empty".into()),
    }
}

fn join(dtype: DType, values: &[proto::Value]) -> Result<Tensor, String> {
    let (mut bytes, mut strings) = (Vec::new(), Vec::new());
    for value in values {
        let Some(proto::Contents::Immediate(value)) = &value.contents else {
            return Err("an element of the list is not in the model file".into());
        };
        let scalar = decode_immediate(&TensorType::scalar(dtype).into(), value)?;
        match scalar.as_strings() {
            Some(s) => strings.extend_from_slice(s),
            None => bytes.extend_from_slice(&scalar.to_bytes()),
        }
    }
    let shape = vec![values.len() as u64];
    let joined = match dtype {
        DType::String => Tensor::strings(shape, strings),
        _ if dtype.bits() < 8 => return Err(format!("a list of {dtype} is not understood")),
        _ => Tensor::new(dtype, shape, bytes.into()),
    };
    joined.map_err(|e| e.to_string())
}

fn decode_tensor(ty: &TensorType, elements: Option<&Elements>) -> Result<Tensor, String> {
    let Some(shape) = ty.fixed_shape() else {
        return Err(format!("a constant of type {ty} has no fixed shape"));
    };
    match decode_elements(ty.dtype, elements)? {
        Decoded::Strings(strings) => Tensor::strings(shape, strings),
        Decoded::Bytes(bytes) => Tensor::new(ty.dtype, shape, bytes),
    }
    .map_err(|e| e.to_string())
}

/// The elements as a tensor of one dimension: `n` of them if that is known, else all there are.
pub fn decode_flat(
    dtype: DType,
    elements: Option<&Elements>,
    n: Option<u64>,
) -> Result<Tensor, String> {
    match decode_elements(dtype, elements)? {
        Decoded::Strings(strings) => Tensor::strings(vec![strings.len() as u64], strings),
        Decoded::Bytes(bytes) => {
            let n = n.unwrap_or(8 * bytes.len() as u64 / dtype.bits().max(1));
            Tensor::new(dtype, vec![n], bytes)
        }
    }
    .map_err(|e| e.to_string())
}

/// A constant without dimensions; `Err` says in words what is wrong.
pub fn scalar(value: &proto::Value) -> Result<Tensor, String> {
    match &value.contents {
        Some(proto::Contents::Immediate(i)) => {
            decode_immediate(&decode_type(value.r#type.as_ref(), "it")?, i)
        }
        _ => Err("it is not in the model file".into()),
    }
}

enum Decoded {
    Strings(Vec<String>),
    Bytes(Bytes),
}

fn decode_elements(dtype: DType, elements: Option<&Elements>) -> Result<Decoded, String> {
    let Some(elements) = elements else { return Err("its value is empty".into()) };
    fn all<T: Copy, const N: usize>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Bytes {
        values.iter().flat_map(|&v| to(v)).collect::<Vec<u8>>().into()
    }
    Ok(Decoded::Bytes(match (dtype, elements) {
        (DType::String, Elements::Strings(s)) => return Ok(Decoded::Strings(s.values.clone())),
        (DType::F32, Elements::Floats(v)) => all(&v.values, f32::to_le_bytes),
        (DType::F64, Elements::Doubles(v)) => all(&v.values, f64::to_le_bytes),
        (DType::Bool, Elements::Bools(v)) => all(&v.values, |b| [u8::from(b)]),
        (DType::I32, Elements::Ints(v)) => all(&v.values, i32::to_le_bytes),
        (DType::I16 | DType::U16, Elements::Ints(v)) => {
            all(&v.values, |i| (i as u16).to_le_bytes())
        }
        (DType::I8 | DType::U8, Elements::Ints(v)) => all(&v.values, |i| [i as u8]),
        (DType::I64 | DType::U64, Elements::LongInts(v)) => all(&v.values, i64::to_le_bytes),
        (DType::String, _) => return Err("its value is stored as no string is".into()),
        (_, Elements::Bytes(v)) => v.values.clone(),
        (dtype, _) => return Err(format!("its value is stored as no {dtype} is")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_constant_reads_back() {
        for &dtype in DType::ALL.iter().filter(|d| **d != DType::String) {
            for n in [0u64, 1, 3] {
                let len = dtype.bytes(n).unwrap() as u8;
                let bytes: Vec<u8> =
                    (0..len).map(|i| if dtype == DType::Bool { 1 } else { i }).collect();
                let t = Tensor::new(dtype, vec![n], bytes.into()).unwrap();
                let value = encode_immediate(&t);
                let Some(proto::Contents::Immediate(v)) = &value.contents else { panic!() };
                let ty = decode_type(value.r#type.as_ref(), "c").unwrap();
                assert_eq!(decode_immediate(&ty, v).unwrap(), t);
            }
        }
        let t = Tensor::strings(vec![2], vec!["a".into(), "b".into()]).unwrap();
        let value = encode_list(&t);
        let Some(proto::Contents::Immediate(v)) = &value.contents else { panic!() };
        let ty = decode_type(value.r#type.as_ref(), "c").unwrap();
        assert_eq!(decode_immediate(&ty, v).unwrap(), t);
    }

    #[test]
    fn types_read_back() {
        let tensor = TensorType::new(DType::F16, [2u64, 3]);
        let string = Type::from(TensorType::scalar(DType::String));
        for ty in [
            Type::Tensor(tensor.clone()),
            Type::State(tensor.clone()),
            Type::List(Box::new(tensor.into()), None),
            Type::Dict(Box::new(string.clone()), Box::new(string)),
        ] {
            assert_eq!(decode_type(Some(&encode_type(&ty)), "x"), Ok(ty));
        }
    }
}
