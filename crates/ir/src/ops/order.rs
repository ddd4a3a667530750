//! Ops that compare along one axis, or go along it: places of extremes, sorting, running sums.

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, Work, op, string_param};

string_param! {
    /// The element type of places in a tensor.
    IndexDType { I32 = "int32", U16 = "uint16" }
}

impl IndexDType {
    pub fn dtype(self) -> DType {
        match self {
            IndexDType::I32 => DType::I32,
            IndexDType::U16 => DType::U16,
        }
    }
}

op! {
    /// Where the largest along `axis` is; of equal ones, the first.
    "reduce_argmax" since Ios15 => ReduceArgmax {
        x: Value;
        axis: i32 = -1;
        keep_dims: bool = false;
        output_dtype: IndexDType = IndexDType::I32, since Ios17;
    }
}
op! {
    /// Where the smallest along `axis` is; of equal ones, the first.
    "reduce_argmin" since Ios15 => ReduceArgmin {
        x: Value;
        axis: i32 = -1;
        keep_dims: bool = false;
        output_dtype: IndexDType = IndexDType::I32, since Ios17;
    }
}

macro_rules! extreme {
    ($($op:ident),*) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                let x = types.number(self.x)?;
                let axis = types.axis(self.x, self.axis)?;
                let mut shape = x.shape.clone();
                match self.keep_dims {
                    true => shape[axis] = Dim::Fixed(1),
                    false => drop(shape.remove(axis)),
                }
                if x.shape[axis] == Dim::Fixed(0) {
                    return Err(TypeError::param(format!("axis {axis} is empty")));
                }
                Ok(TensorType { dtype: self.output_dtype.dtype(), shape }.into())
            }

            fn work(&self, types: &Types<'_>) -> Work {
                Work { flops: types.n_elements(self.x), ..Work::default() }
            }
        }
    )*};
}

extreme!(ReduceArgmax, ReduceArgmin);

op! {
    /// The places along `axis` in the order of their elements; of equal ones, the first comes first.
    "argsort" since Ios15 => Argsort { x: Value; axis: i32 = -1; ascending: bool = false }
}

impl OpDef for Argsort {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        types.axis(self.x, self.axis)?;
        Ok(x.with_dtype(DType::I32).into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.x), ..Work::default() }
    }
}

op! {
    /// The `k` largest along `axis` (smallest when `ascending`), in order, and their places; of
    /// equal ones, the first. Unsorted, they may come in any order.
    "topk" since Ios15 => Topk {
        x: Value;
        k: i32 = 1;
        axis: i32 = -1;
        ascending: bool = false;
        sort: bool = true, since Ios16;
        return_indices: bool = true, since Ios16;
        output_indices_dtype: Option<IndexDType>, since Ios17;
    }
}

impl OpDef for Topk {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.any_number(self.x)?;
        let axis = types.axis(self.x, self.axis)?;
        let k = u64::try_from(self.k).ok();
        let k = k.filter(|&k| x.shape[axis].fixed().is_none_or(|n| k <= n));
        let Some(k) = k else {
            return Err(TypeError::param(format!("k {} of {} elements", self.k, x.shape[axis])));
        };
        let mut values = x.clone();
        values.shape[axis] = Dim::Fixed(k);
        if !self.return_indices {
            return match self.output_indices_dtype {
                Some(_) => Err(TypeError::param("output_indices_dtype without indices")),
                None => Ok(values.into()),
            };
        }
        let indices = self.output_indices_dtype.unwrap_or(IndexDType::I32).dtype();
        let indices = values.with_dtype(indices);
        Ok(Outputs::of([values, indices]))
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.x), ..Work::default() }
    }
}

op! {
    /// The sum of all elements up to each along `axis`: without itself when `exclusive`, from the
    /// end when `reverse`.
    "cumsum" since Ios15 => Cumsum {
        x: Value; axis: i32 = 0; exclusive: bool = false; reverse: bool = false
    }
}

impl OpDef for Cumsum {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        types.axis(self.x, self.axis)?;
        Ok(x.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.x), ..Work::default() }
    }
}
