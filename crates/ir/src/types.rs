//! Types of values: a dtype and a shape whose dimensions are numbers or symbols.

use std::fmt;
use std::sync::Arc;

use crate::DType;

/// The name of a dimension that is not fixed, such as `S` for the sequence length.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub Arc<str>);

impl Symbol {
    /// A symbol; of a very long name, only what tells it from others. Names of derived symbols
    /// are made of their parts, and doubled forty times they would fill the memory. Where the
    /// first part is a number, `n` stands before it: a name begins like one.
    pub fn new(name: &str) -> Symbol {
        match name.len() <= Symbol::LENGTH_MAX {
            true if name.starts_with(|c: char| c.is_ascii_digit()) => {
                Symbol(format!("n{name}").into())
            }
            true => Symbol(name.into()),
            false => Symbol(format!("long.{}", crate::text::hash([name.as_bytes()])).into()),
        }
    }

    const LENGTH_MAX: usize = 256;
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One dimension of a shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    Fixed(u64),
    Symbol(Symbol),
}

impl Dim {
    /// The number, unless the dimension is a symbol.
    pub fn fixed(&self) -> Option<u64> {
        match self {
            Dim::Fixed(n) => Some(*n),
            Dim::Symbol(_) => None,
        }
    }
}

impl From<u64> for Dim {
    fn from(n: u64) -> Dim {
        Dim::Fixed(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => n.fmt(f),
            Dim::Symbol(s) => s.fmt(f),
        }
    }
}

/// The number of elements of a shape; `None` when it overflows.
///
/// A zero does not hide an overflow of the other extents: any product of some of them can be taken.
pub(crate) fn count(shape: impl IntoIterator<Item = u64>) -> Option<u64> {
    let step = |(n, whole): (u64, u64), d: u64| Some((n * d.min(1), whole.checked_mul(d.max(1))?));
    let (some, whole) = shape.into_iter().try_fold((1, 1), step)?;
    Some(some * whole)
}

/// A tensor's element type and shape; rank 0 is a scalar.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<Dim>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: impl IntoIterator<Item = impl Into<Dim>>) -> TensorType {
        TensorType { dtype, shape: shape.into_iter().map(Into::into).collect() }
    }

    /// A tensor of rank 0.
    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, shape: Vec::new() }
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The shape as numbers; `None` while a dimension is a symbol.
    pub fn fixed_shape(&self) -> Option<Vec<u64>> {
        self.shape.iter().map(Dim::fixed).collect()
    }

    /// Number of elements; `None` while a dimension is a symbol or when it overflows.
    pub fn n_elements(&self) -> Option<u64> {
        count(self.fixed_shape()?)
    }

    /// Bytes of all elements, packed.
    pub fn n_bytes(&self) -> Option<u64> {
        self.dtype.bytes(self.n_elements()?)
    }

    /// The same shape with other elements.
    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { dtype, shape: self.shape.clone() }
    }

    /// Could a value of this type be used where `other` is stated? Symbols agree with anything.
    pub fn agrees(&self, other: &TensorType) -> bool {
        self.dtype == other.dtype
            && self.rank() == other.rank()
            && self.shape.iter().zip(&other.shape).all(|(a, b)| match (a.fixed(), b.fixed()) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype)?;
        if self.shape.is_empty() {
            return Ok(());
        }
        let dims: Vec<String> = self.shape.iter().map(Dim::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    Tensor(TensorType),
    /// A list of tensors of one type; the length is unknown when it grows.
    List(Box<Type>, Option<u64>),
    /// A tensor that lives between calls.
    State(TensorType),
    /// A dictionary, as `classify` returns.
    Dict(Box<Type>, Box<Type>),
}

impl Type {
    /// The tensor type, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// Could a value of this type be used where `other` is stated?
    pub fn agrees(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Tensor(a), Type::Tensor(b)) | (Type::State(a), Type::State(b)) => a.agrees(b),
            (Type::List(a, n), Type::List(b, m)) => {
                a.agrees(b) && n.zip(*m).is_none_or(|(n, m)| n == m)
            }
            (a, b) => a == b,
        }
    }
}

impl From<TensorType> for Type {
    fn from(t: TensorType) -> Type {
        Type::Tensor(t)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => t.fmt(f),
            Type::List(t, Some(n)) => write!(f, "list<{t}, {n}>"),
            Type::List(t, None) => write!(f, "list<{t}>"),
            Type::State(t) => write!(f, "state<{t}>"),
            Type::Dict(k, v) => write!(f, "dict<{k}, {v}>"),
        }
    }
}
