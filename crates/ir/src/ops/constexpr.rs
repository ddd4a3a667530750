//! Compressed weights: constants that are computed from smaller constants when a model is loaded.
//!
//! Their contents are not known to type rules, which keeps them compressed while a graph is
//! rewritten; [`Graph::weight`](crate::Graph::weight) decodes them, a piece at a time. Before iOS 18
//! their operands are attributes in a package, from then on values, which may be compressed too.

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, op};

op! {
    /// `(quantized_data - zero_point) * scale`, both of them scalars or `[n]` along `axis`.
    "constexpr_affine_dequantize" since Ios16 => ConstexprAffineDequantize {
        quantized_data: Value; zero_point: Value; scale: Value; axis: i32
    }
}
op! {
    /// Each of `indices` (packed bits, in the order of `shape`) looked up in `lut`.
    "constexpr_lut_to_dense" since Ios16 until Ios18 => ConstexprPackedLutToDense {
        indices: Value; lut: Value; shape: Value
    }
}
op! {
    /// `nonzero_data` where a bit of `mask` (packed, in the order of `shape`) is set, else 0.
    "constexpr_sparse_to_dense" since Ios16 until Ios18 => ConstexprPackedSparseToDense {
        nonzero_data: Value; mask: Value; shape: Value
    }
}
op! {
    /// `source_val` as `output_dtype`.
    "constexpr_cast" since Ios16 => ConstexprCast { source_val: Value; output_dtype: DType }
}
op! {
    /// `(data - offset) * scale`, each number of `offset` and `scale` for a block of `data`.
    "constexpr_blockwise_shift_scale" since Ios18 => ConstexprBlockwiseShiftScale {
        data: Value; scale: Value; offset: Option<Value>
    }
}
op! {
    /// Each of `indices` looked up in `lut` `[groups on each axis.., 2^bits, V]`. Its `V` numbers
    /// take the place of the index along `vector_axis`.
    "constexpr_lut_to_dense" since Ios18 => ConstexprLutToDense {
        indices: Value; lut: Value; vector_axis: Option<i32>
    }
}
op! {
    /// `nonzero_data` where `mask` is set, else 0.
    "constexpr_sparse_to_dense" since Ios18 => ConstexprSparseToDense {
        nonzero_data: Value; mask: Value
    }
}
op! {
    /// As `constexpr_lut_to_dense`, of the indices where `indices_mask` is set. Returns the mask of
    /// the result and its nonzero data.
    "constexpr_lut_to_sparse" since Ios18 => ConstexprLutToSparse {
        indices_mask: Value; indices_nonzero_data: Value; lut: Value; vector_axis: Option<i32>
    }
}
op! {
    /// As `constexpr_blockwise_shift_scale`, of the elements where `data_mask` is set. Returns the
    /// mask and the nonzero data of the result.
    "constexpr_sparse_blockwise_shift_scale" since Ios18 => ConstexprSparseBlockwiseShiftScale {
        data_mask: Value; nonzero_data: Value; scale: Value; offset: Option<Value>
    }
}

/// The fixed shape of a constant.
fn fixed(types: &Types<'_>, at: Value) -> Result<(DType, Vec<u64>), TypeError> {
    let t = types.tensor(at)?;
    Ok((t.dtype, t.fixed_shape().ok_or(TypeError::NotConstant { at })?))
}

/// `x` divides into equal blocks, one for each element of `parts`, on every axis.
fn divides(at: Value, whole: &[u64], parts: &[u64]) -> Result<(), TypeError> {
    if whole.len() != parts.len() || whole.is_empty() {
        return Err(TypeError::Rank { at, found: parts.len(), expected: "that of the data" });
    }
    for (axis, (&n, &p)) in whole.iter().zip(parts).enumerate() {
        if p == 0 || !n.is_multiple_of(p) {
            let (found, expected) = (Dim::Fixed(p), Dim::Fixed(n));
            return Err(TypeError::Extent { at, axis, found, expected });
        }
    }
    Ok(())
}

fn tensor(dtype: DType, shape: Vec<u64>) -> TensorType {
    TensorType::new(dtype, shape)
}

impl OpDef for ConstexprAffineDequantize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (_, shape) = fixed(types, self.quantized_data)?;
        types.int(self.quantized_data)?;
        let axis = types.axis(self.quantized_data, self.axis)?;
        let dtype = types.float(self.scale)?.dtype;
        for at in [self.zero_point, self.scale] {
            let (_, part) = fixed(types, at)?;
            let n = part.iter().product::<u64>();
            if part.len() > 1 || (part.len() == 1 && n != 1 && n != shape[axis]) {
                let (found, expected) = (Dim::Fixed(n), Dim::Fixed(shape[axis]));
                return Err(TypeError::Extent { at, axis: 0, found, expected });
            }
        }
        Ok(tensor(dtype, shape).into())
    }
}

/// The shape an operand holds as numbers.
fn stated_shape(types: &Types<'_>, at: Value) -> Result<Vec<u64>, TypeError> {
    types.int(at)?;
    let ints = types.ints(at).ok_or(TypeError::NotConstant { at })?;
    let shape: Option<Vec<u64>> = ints.into_iter().map(|i| u64::try_from(i).ok()).collect();
    shape
        .filter(|s| crate::types::count(s.iter().copied()).is_some())
        .ok_or_else(|| TypeError::param("a shape of negative or absurd extents"))
}

/// `n` elements of `bits` fill `at`, a vector of bytes.
fn packed(types: &Types<'_>, at: Value, n: u64, bits: u64) -> Result<(), TypeError> {
    let (_, bytes) = fixed(types, at)?;
    let found = bytes.iter().product::<u64>();
    let expected = n.saturating_mul(bits).div_ceil(8);
    if found != expected {
        let (found, expected) = (Dim::Fixed(found), Dim::Fixed(expected));
        return Err(TypeError::Extent { at, axis: 0, found, expected });
    }
    Ok(())
}

/// The bits of an index into a table of `n`; `None` when there is no such width.
pub fn index_bits(n: u64) -> Option<u64> {
    let bits = u64::from(n.checked_ilog2()?);
    (n.is_power_of_two() && matches!(bits, 1 | 2 | 3 | 4 | 6 | 8)).then_some(bits)
}

impl OpDef for ConstexprPackedLutToDense {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (dtype, lut) = fixed(types, self.lut)?;
        let n = lut.iter().product();
        let bits = index_bits(n).filter(|_| lut.len() == 1);
        let bits = bits.ok_or_else(|| TypeError::param(format!("a table of {n} entries")))?;
        let shape = stated_shape(types, self.shape)?;
        if shape.is_empty() {
            return Err(TypeError::param("a `shape` of no axes"));
        }
        packed(types, self.indices, shape.iter().product(), bits)?;
        Ok(tensor(dtype, shape).into())
    }
}

impl OpDef for ConstexprPackedSparseToDense {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (dtype, _) = fixed(types, self.nonzero_data)?;
        let shape = stated_shape(types, self.shape)?;
        packed(types, self.mask, shape.iter().product(), 1)?;
        Ok(tensor(dtype, shape).into())
    }
}

impl OpDef for ConstexprCast {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        types.float(self.source_val)?;
        if !self.output_dtype.is_float() {
            return Err(TypeError::param(format!("output_dtype {}", self.output_dtype)));
        }
        Ok(types.tensor(self.source_val)?.with_dtype(self.output_dtype).into())
    }
}

/// `scale` and `offset` fit blocks of `shape`.
fn shift_scale(
    types: &Types<'_>,
    shape: &[u64],
    scale: Value,
    offset: Option<Value>,
) -> Result<DType, TypeError> {
    let dtype = types.float(scale)?.dtype;
    let (_, blocks) = fixed(types, scale)?;
    divides(scale, shape, &blocks)?;
    if let Some(at) = offset {
        let (_, found) = fixed(types, at)?;
        if found != blocks {
            return Err(TypeError::param("`offset` has not the shape of `scale`"));
        }
    }
    Ok(dtype)
}

impl OpDef for ConstexprBlockwiseShiftScale {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (found, shape) = fixed(types, self.data)?;
        if !found.is_float() && !found.is_int() {
            let (at, expected) = (self.data, "a number");
            return Err(TypeError::DType { at, found, expected });
        }
        let dtype = shift_scale(types, &shape, self.scale, self.offset)?;
        Ok(tensor(dtype, shape).into())
    }
}

/// Numbers an index may stand for; converters use up to 8. Beyond it a small file would decode to
/// any size.
const VECTOR_MAX: u64 = 64;

/// The shape of the result of looking up indices of this shape in `lut`, and its vector length.
fn looked_up(
    types: &Types<'_>,
    indices: (Value, DType, &[u64]),
    lut: Value,
    vector_axis: Option<i32>,
) -> Result<(Vec<u64>, u64), TypeError> {
    let (at, dtype, shape) = indices;
    let (_, table) = fixed(types, lut)?;
    let Some((groups, &[entries, vector])) = table.split_last_chunk::<2>() else {
        return Err(TypeError::Rank { at: lut, found: table.len(), expected: "two more" });
    };
    divides(lut, shape, groups)?;
    if !dtype.is_int() || index_bits(entries) != Some(dtype.bits()) {
        let expected = "an unsigned integer with as many bits as the table has entries for";
        return Err(TypeError::DType { at, found: dtype, expected });
    }
    if vector > VECTOR_MAX {
        return Err(TypeError::param(format!("vectors of {vector} numbers")));
    }
    let mut out = shape.to_vec();
    match vector_axis {
        Some(axis) => {
            let rank = shape.len();
            let axis = crate::resolve_axis(axis, rank).ok_or(TypeError::Axis { at, axis, rank })?;
            out[axis] = out[axis].saturating_mul(vector);
        }
        None if vector != 1 => return Err(TypeError::param("vectors need a `vector_axis`")),
        None => {}
    }
    if crate::types::count(out.iter().copied()).is_none() {
        return Err(TypeError::param("a result of absurd size"));
    }
    Ok((out, vector))
}

impl OpDef for ConstexprLutToDense {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (dtype, shape) = fixed(types, self.indices)?;
        let indices = (self.indices, dtype, shape.as_slice());
        let (shape, _) = looked_up(types, indices, self.lut, self.vector_axis)?;
        Ok(tensor(types.tensor(self.lut)?.dtype, shape).into())
    }
}

fn mask(types: &Types<'_>, at: Value) -> Result<Vec<u64>, TypeError> {
    let (dtype, shape) = fixed(types, at)?;
    match dtype {
        DType::U1 => Ok(shape),
        found => Err(TypeError::DType { at, found, expected: "uint1" }),
    }
}

fn vector(types: &Types<'_>, at: Value) -> Result<(DType, u64), TypeError> {
    let (dtype, shape) = fixed(types, at)?;
    match shape[..] {
        [n] => Ok((dtype, n)),
        _ => Err(TypeError::Rank { at, found: shape.len(), expected: "1" }),
    }
}

impl OpDef for ConstexprSparseToDense {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (dtype, _) = vector(types, self.nonzero_data)?;
        Ok(tensor(dtype, mask(types, self.mask)?).into())
    }
}

impl OpDef for ConstexprLutToSparse {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let shape = mask(types, self.indices_mask)?;
        let (dtype, n) = vector(types, self.indices_nonzero_data)?;
        let indices = (self.indices_nonzero_data, dtype, shape.as_slice());
        let (shape, vector) = looked_up(types, indices, self.lut, self.vector_axis)?;
        let data = tensor(types.tensor(self.lut)?.dtype, vec![n.saturating_mul(vector)]);
        Ok(Outputs::of([tensor(DType::U1, shape), data]))
    }
}

impl OpDef for ConstexprSparseBlockwiseShiftScale {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let shape = mask(types, self.data_mask)?;
        let (_, n) = vector(types, self.nonzero_data)?;
        let dtype = shift_scale(types, &shape, self.scale, self.offset)?;
        Ok(Outputs::of([tensor(DType::U1, shape), tensor(dtype, vec![n])]))
    }
}
