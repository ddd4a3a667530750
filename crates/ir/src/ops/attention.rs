//! Attention as one op, and activations between integers and floats.

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, Work, broadcast_shapes, op};

op! {
    /// `softmax(query key^T / sqrt(E) + attn_mask) value`, of `query` `[.., L, E]`, `key`
    /// `[.., S, E]` and `value` `[.., S, V]`; a `bool` mask keeps where it is true.
    "scaled_dot_product_attention" since Ios18 => ScaledDotProductAttention {
        query: Value; key: Value; value: Value; attn_mask: Option<Value>
    }
}

impl OpDef for ScaledDotProductAttention {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (q, k, v) =
            (types.float(self.query)?, types.float(self.key)?, types.float(self.value)?);
        let rank = q.rank();
        if rank < 3 {
            return Err(TypeError::Rank { at: self.query, found: rank, expected: "at least 3" });
        }
        for (at, t) in [(self.key, k), (self.value, v)] {
            if t.rank() != rank {
                let (found, expected) = (t.rank(), "that of `query`");
                return Err(TypeError::Rank { at, found, expected });
            }
            types.same_dtype(at, q.dtype)?;
        }
        let extent = |at: Value, t: &TensorType, axis: usize, expected: &Dim| {
            let found = t.shape[axis].clone();
            match found.fixed().zip(expected.fixed()) {
                Some((a, b)) if a != b => {
                    Err(TypeError::Extent { at, axis, found, expected: expected.clone() })
                }
                _ => Ok(()),
            }
        };
        for axis in 0..rank - 2 {
            extent(self.key, k, axis, &q.shape[axis])?;
            extent(self.value, v, axis, &q.shape[axis])?;
        }
        extent(self.key, k, rank - 1, &q.shape[rank - 1])?;
        extent(self.value, v, rank - 2, &k.shape[rank - 2])?;
        if let Some(at) = self.attn_mask {
            let mask = types.tensor(at)?;
            if mask.dtype != DType::Bool && mask.dtype != q.dtype {
                let expected = "a bool or what `query` is";
                return Err(TypeError::DType { at, found: mask.dtype, expected });
            }
            let mut scores = q.shape.clone();
            scores[rank - 1] = k.shape[rank - 2].clone();
            let together = broadcast_shapes(&scores, &mask.shape).filter(|s| {
                s.len() == rank
                    && s.iter().zip(&scores).all(|(a, b)| match (a.fixed(), b.fixed()) {
                        (Some(a), Some(b)) => a == b,
                        _ => true,
                    })
            });
            if together.is_none() {
                let other = TensorType { dtype: q.dtype, shape: scores };
                return Err(TypeError::Broadcast { at, found: mask.clone(), other });
            }
        }
        let mut out = q.clone();
        out.shape[rank - 1] = v.shape[rank - 1].clone();
        Ok(out.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let shape = |v| types.tensor(v).ok().and_then(TensorType::fixed_shape);
        let (Some(q), Some(v)) = (shape(self.query), shape(self.value)) else {
            return Work::default();
        };
        let product = |dims: &[u64]| dims.iter().fold(1u64, |n, &d| n.saturating_mul(d));
        let scores = product(&q[..q.len() - 1]).saturating_mul(v[v.len() - 2]);
        let features = q[q.len() - 1].saturating_add(v[v.len() - 1]);
        Work {
            macs: scores.saturating_mul(features),
            flops: scores.saturating_mul(4),
            exps: scores,
        }
    }
}

op! {
    /// `input / scale + zero_point`, rounded half to even and kept within `output_dtype`; `scale`
    /// and `zero_point` are scalars or `[n]` along `axis`.
    "quantize" since Ios17 => Quantize {
        input: Value;
        zero_point: Option<Value>;
        scale: Value;
        axis: Option<i32>;
        output_dtype: DType;
    }
}
op! {
    /// `(input - zero_point) * scale`, both scalars or `[n]` along `axis`.
    "dequantize" since Ios17 => Dequantize {
        input: Value; zero_point: Option<Value>; scale: Value; axis: Option<i32>
    }
}

fn along_axis(
    types: &Types<'_>,
    input: Value,
    axis: Option<i32>,
    parts: [Option<Value>; 2],
) -> Result<(), TypeError> {
    let x = types.tensor(input)?;
    for at in parts.into_iter().flatten() {
        let part = types.tensor(at)?;
        match (part.rank(), axis) {
            (0, _) => {}
            (1, Some(axis)) => {
                let axis = types.axis(input, axis)?;
                let (found, expected) = (part.shape[0].clone(), x.shape[axis].clone());
                if found.fixed().zip(expected.fixed()).is_some_and(|(a, b)| a != b) {
                    return Err(TypeError::Extent { at, axis: 0, found, expected });
                }
            }
            (1, None) => return Err(TypeError::param("a vector of scales needs an `axis`")),
            (found, _) => return Err(TypeError::Rank { at, found, expected: "0 or 1" }),
        }
    }
    Ok(())
}

impl OpDef for Quantize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.input)?;
        if !matches!(self.output_dtype, DType::I8 | DType::U8) {
            return Err(TypeError::param(format!("output_dtype {}", self.output_dtype)));
        }
        along_axis(types, self.input, self.axis, [Some(self.scale), self.zero_point])?;
        Ok(x.with_dtype(self.output_dtype).into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.input).saturating_mul(3), ..Work::default() }
    }
}

impl OpDef for Dequantize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.int(self.input)?;
        let dtype = types.float(self.scale)?.dtype;
        along_axis(types, self.input, self.axis, [Some(self.scale), self.zero_point])?;
        Ok(x.with_dtype(dtype).into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.input).saturating_mul(2), ..Work::default() }
    }
}
