//! What type rules are written with: operand types, known contents, outputs, errors.

use crate::dims::KNOWN_MAX;
use crate::graph::ValueData;
use crate::{DType, Dim, Tensor, TensorType, Type, Value};

/// The types and known contents of the values an op may read.
///
/// Values of a graph come first; those an edit is adding follow.
#[derive(Clone, Copy)]
pub struct Types<'a> {
    pub(crate) base: &'a [ValueData],
    pub(crate) extra: &'a [ValueData],
    /// Output types of the op's own blocks, in order.
    pub(crate) blocks: &'a [Vec<Type>],
}

/// What is known about a value before anything runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    Tensor(Tensor),
    /// The elements of an integer tensor, some of them symbols (shape arithmetic).
    Dims(Vec<Dim>),
}

/// Types of an op's outputs, with contents where they are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Outputs(pub Vec<(Type, Option<Known>)>);

impl Outputs {
    /// One output whose elements are known numbers or symbols.
    pub fn dims(ty: TensorType, dims: Option<Vec<Dim>>) -> Outputs {
        Outputs(vec![(ty.into(), dims.map(Known::Dims))])
    }

    /// Itself, unless a rank is beyond what any model has. Ranks that double with every op (a
    /// `gather` by itself) would fill the memory.
    pub(crate) fn within_rank(self) -> Result<Outputs, TypeError> {
        const RANK_MAX: usize = 64;
        let ranks = self.0.iter().filter_map(|(ty, _)| Some(ty.tensor()?.rank()));
        match ranks.max().filter(|&r| r > RANK_MAX) {
            Some(rank) => Err(TypeError::param(format!("its result has {rank} dimensions"))),
            None => Ok(self),
        }
    }

    pub fn of(types: impl IntoIterator<Item = TensorType>) -> Outputs {
        Outputs(types.into_iter().map(|t| (t.into(), None)).collect())
    }
}

impl From<TensorType> for Outputs {
    fn from(t: TensorType) -> Outputs {
        Outputs::of([t])
    }
}

/// Operands an op cannot take. `at` is the operand, to be named by whoever reports it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TypeError {
    #[error("is {found}, a tensor is expected")]
    NotTensor { at: Value, found: Type },
    #[error("is {found}, a list is expected")]
    NotList { at: Value, found: Type },
    #[error("is {found}, a state is expected")]
    NotState { at: Value, found: Type },
    #[error("is {found}, {expected} is expected")]
    DType { at: Value, found: DType, expected: &'static str },
    #[error("is {found}, the other operand is {expected}")]
    MixedDTypes { at: Value, found: DType, expected: DType },
    #[error("has rank {found}, {expected} is expected")]
    Rank { at: Value, found: usize, expected: &'static str },
    #[error("has rank {rank}, axis {axis} does not exist")]
    Axis { at: Value, axis: i32, rank: usize },
    #[error("is {found} along axis {axis}, {expected} is expected")]
    Extent { at: Value, axis: usize, found: Dim, expected: Dim },
    #[error("is {found}, which does not broadcast with {other}")]
    Broadcast { at: Value, found: TensorType, other: TensorType },
    #[error("is {found}, {expected} is expected")]
    Shape { at: Value, found: TensorType, expected: TensorType },
    #[error("must be known when the program is written")]
    NotConstant { at: Value },
    #[error("{why}")]
    Param { why: String },
}

impl TypeError {
    /// The operand at fault, if one is.
    pub fn operand(&self) -> Option<Value> {
        use TypeError::*;
        match self {
            NotTensor { at, .. }
            | NotList { at, .. }
            | NotState { at, .. }
            | DType { at, .. }
            | MixedDTypes { at, .. }
            | Rank { at, .. }
            | Axis { at, .. }
            | Extent { at, .. }
            | Broadcast { at, .. }
            | Shape { at, .. }
            | NotConstant { at } => Some(*at),
            Param { .. } => None,
        }
    }

    /// A parameter whose value makes no sense, in words.
    pub fn param(why: impl Into<String>) -> TypeError {
        TypeError::Param { why: why.into() }
    }
}

impl<'a> Types<'a> {
    fn data(&self, v: Value) -> &'a ValueData {
        let i = v.index();
        if i < self.base.len() { &self.base[i] } else { &self.extra[i - self.base.len()] }
    }

    pub fn ty(&self, v: Value) -> &'a Type {
        &self.data(v).ty
    }

    pub fn name(&self, v: Value) -> &'a str {
        &self.data(v).name
    }

    pub fn tensor(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        let found = self.ty(v);
        found.tensor().ok_or_else(|| TypeError::NotTensor { at: v, found: found.clone() })
    }

    /// A tensor of any float type.
    pub fn float(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "a float", DType::is_float)
    }

    /// A tensor one can calculate with: of floats, or of int32. Narrower integers are only moved
    /// and cast.
    pub fn number(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "a float or int32", |d| d.is_float() || d == DType::I32)
    }

    /// A tensor of floats, integers or `bool`: anything but strings.
    pub fn element(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "a number or bool", |d| d != DType::String)
    }

    /// A tensor of floats, int32 or `bool`: for ops that have no narrow integers.
    pub fn wide(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "a float, int32 or bool", |d| {
            d.is_float() || matches!(d, DType::I32 | DType::Bool)
        })
    }

    /// A tensor of floats or any integers: for ops that have no `bool`.
    pub fn any_number(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "a number", |d| d.is_float() || d.is_int())
    }

    /// The only element of an operand that must be a constant integer.
    pub fn constant_int(&self, v: Value) -> Result<i64, TypeError> {
        self.int(v)?;
        match self.ints(v).as_deref() {
            Some([one]) => Ok(*one),
            _ => Err(TypeError::NotConstant { at: v }),
        }
    }

    /// A tensor of integers.
    pub fn int(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "an integer", DType::is_int)
    }

    /// A tensor of `bool`.
    pub fn bool(&self, v: Value) -> Result<&'a TensorType, TypeError> {
        self.require(v, "bool", |d| d == DType::Bool)
    }

    fn require(
        &self,
        v: Value,
        expected: &'static str,
        ok: impl Fn(DType) -> bool,
    ) -> Result<&'a TensorType, TypeError> {
        let t = self.tensor(v)?;
        if ok(t.dtype) { Ok(t) } else { Err(TypeError::DType { at: v, found: t.dtype, expected }) }
    }

    /// The length of a vector of integers that is known.
    pub fn vector(&self, at: Value) -> Result<u64, TypeError> {
        match self.int(at)?.shape[..] {
            [Dim::Fixed(n)] => Ok(n),
            [_] => Err(TypeError::NotConstant { at }),
            ref other => Err(TypeError::Rank { at, found: other.len(), expected: "1" }),
        }
    }

    /// Could axis `axis` of `at` have this extent?
    pub fn same_extent(&self, at: Value, axis: usize, expected: &Dim) -> Result<(), TypeError> {
        let found = &self.tensor(at)?.shape[axis];
        match (found.fixed(), expected.fixed()) {
            (Some(a), Some(b)) if a != b => {
                let (found, expected) = (found.clone(), expected.clone());
                Err(TypeError::Extent { at, axis, found, expected })
            }
            _ => Ok(()),
        }
    }

    /// Could `at` have this shape?
    pub fn same_shape(&self, at: Value, expected: &[Dim]) -> Result<(), TypeError> {
        let t = self.tensor(at)?;
        if t.rank() != expected.len() {
            let found = t.clone();
            let other = TensorType { dtype: t.dtype, shape: expected.to_vec() };
            return Err(TypeError::Shape { at, found, expected: other });
        }
        (0..t.rank()).try_for_each(|i| self.same_extent(at, i, &expected[i]))
    }

    /// The same element type as `expected`.
    pub fn same_dtype(&self, v: Value, expected: DType) -> Result<&'a TensorType, TypeError> {
        let t = self.tensor(v)?;
        if t.dtype == expected {
            Ok(t)
        } else {
            Err(TypeError::MixedDTypes { at: v, found: t.dtype, expected })
        }
    }

    /// The constant a value is, if it is one.
    pub fn constant(&self, v: Value) -> Option<&'a Tensor> {
        match &self.data(v).known {
            Some(Known::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// The elements of an integer value, as far as they are known before running.
    pub fn dims(&self, v: Value) -> Option<Vec<Dim>> {
        match self.data(v).known.as_ref()? {
            Known::Dims(d) => Some(d.clone()),
            // Negative numbers (-1 in a shape) wrap; callers that allow them look at `ints`.
            Known::Tensor(t) => Some(t.to_i64()?.iter().map(|&i| Dim::Fixed(i as u64)).collect()),
        }
    }

    /// The elements of an integer value as fixed numbers.
    pub fn ints(&self, v: Value) -> Option<Vec<i64>> {
        match self.data(v).known.as_ref()? {
            Known::Tensor(t) => t.to_i64(),
            Known::Dims(d) => d.iter().map(|d| d.fixed().map(|n| n as i64)).collect(),
        }
    }

    /// The elements of a short int32 value, as shape arithmetic follows them.
    pub(crate) fn known_ints(&self, v: Value) -> Option<Vec<Dim>> {
        let ty = self.ty(v).tensor().filter(|t| t.dtype == DType::I32)?;
        ty.n_elements().filter(|&n| n <= KNOWN_MAX as u64)?;
        self.dims(v)
    }

    /// Elements of a value of fixed shape; 0 when unknown, so that work stays a lower bound.
    pub fn n_elements(&self, v: Value) -> u64 {
        self.ty(v).tensor().and_then(TensorType::n_elements).unwrap_or(0)
    }

    /// Output types of block `i` of the op.
    pub fn block(&self, i: usize) -> Option<&'a [Type]> {
        self.blocks.get(i).map(Vec::as_slice)
    }

    /// `axis` counted from the front.
    pub fn axis(&self, v: Value, axis: i32) -> Result<usize, TypeError> {
        let rank = self.tensor(v)?.rank();
        resolve_axis(axis, rank).ok_or(TypeError::Axis { at: v, axis, rank })
    }

    /// `axes` counted from the front, sorted, each once.
    pub fn axes(&self, v: Value, axes: &[i32]) -> Result<Vec<usize>, TypeError> {
        let mut all = axes.iter().map(|&a| self.axis(v, a)).collect::<Result<Vec<_>, _>>()?;
        all.sort_unstable();
        if all.windows(2).any(|w| w[0] == w[1]) {
            return Err(TypeError::param(format!("axes {axes:?} name one axis twice")));
        }
        Ok(all)
    }

    /// The type two operands broadcast to, as in numpy.
    pub fn broadcast(&self, x: Value, y: Value) -> Result<TensorType, TypeError> {
        let a = self.tensor(x)?;
        let b = self.same_dtype(y, a.dtype)?;
        broadcast_shapes(&a.shape, &b.shape)
            .map(|shape| TensorType { dtype: a.dtype, shape })
            .ok_or_else(|| TypeError::Broadcast { at: y, found: b.clone(), other: a.clone() })
    }
}

/// `axis` in `-rank..rank` counted from the front.
pub fn resolve_axis(axis: i32, rank: usize) -> Option<usize> {
    let rank_i = i32::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank_i } else { axis };
    (0..rank_i).contains(&axis).then_some(axis as usize)
}

/// Numpy's rule; a symbol broadcasts with 1 and with itself, and a number beats a symbol.
pub fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let one = Dim::Fixed(1);
    let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map(|i| s[i].clone());
    (0..rank)
        .map(|i| {
            let (x, y) = (at(a, i).unwrap_or(one.clone()), at(b, i).unwrap_or(one.clone()));
            match (&x, &y) {
                _ if x == y || y == one => Some(x),
                _ if x == one => Some(y),
                (Dim::Fixed(_), Dim::Symbol(_)) => Some(x),
                (Dim::Symbol(_), _) => Some(y),
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Symbol;

    #[test]
    fn broadcasting_follows_numpy() {
        let d = |v: &[u64]| v.iter().map(|&n| Dim::Fixed(n)).collect::<Vec<_>>();
        assert_eq!(broadcast_shapes(&d(&[3, 1]), &d(&[4])), Some(d(&[3, 4])));
        assert_eq!(broadcast_shapes(&d(&[]), &d(&[2])), Some(d(&[2])));
        assert_eq!(broadcast_shapes(&d(&[3]), &d(&[4])), None);
        assert_eq!(broadcast_shapes(&d(&[0]), &d(&[1])), Some(d(&[0])));
        let s = vec![Dim::Symbol(Symbol::new("S"))];
        assert_eq!(broadcast_shapes(&s, &d(&[1])), Some(s.clone()));
        assert_eq!(broadcast_shapes(&d(&[7]), &s), Some(d(&[7])));
    }
}
