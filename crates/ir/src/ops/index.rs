//! Ops that read or write elements at indices.

use super::movement::SliceByIndex;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Value, Work, op, string_param};

op! {
    /// Slices of `x` at the rows `[.., K]` of `indices`: each names a place on `K` axes, after
    /// `batch_dims` axes that both have.
    "gather_nd" since Ios15 => GatherNd {
        x: Value;
        indices: Value;
        batch_dims: i32 = 0, since Ios16;
        validate_indices: bool = false, since Ios17;
    }
}

impl OpDef for GatherNd {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.any_number(self.x)?;
        let indices = types.int(self.indices)?;
        let batch = usize::try_from(self.batch_dims).ok();
        let batch = batch.filter(|&b| b <= x.rank() && b < indices.rank());
        let Some(batch) = batch else {
            return Err(TypeError::param(format!("batch_dims {}", self.batch_dims)));
        };
        for axis in 0..batch {
            types.same_extent(self.indices, axis, &x.shape[axis])?;
        }
        let depth = depth(types, self.indices, x.rank() - batch)?;
        let mut shape = indices.shape[..indices.rank() - 1].to_vec();
        shape.extend_from_slice(&x.shape[batch + depth..]);
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

/// How many axes a row of `indices` names, at most `rank`.
fn depth(types: &Types<'_>, at: Value, rank: usize) -> Result<usize, TypeError> {
    let indices = types.int(at)?;
    let Some(last) = indices.shape.last() else {
        return Err(TypeError::Rank { at, found: 0, expected: "at least 1" });
    };
    let Dim::Fixed(n) = *last else { return Err(TypeError::NotConstant { at }) };
    if n <= rank as u64 {
        return Ok(n as usize);
    }
    let (axis, found) = (indices.rank() - 1, last.clone());
    Err(TypeError::Extent { at, axis, found, expected: Dim::Fixed(rank as u64) })
}

op! {
    /// The element of `x` at each of `indices` along `axis`, its other places being those of the
    /// index.
    "gather_along_axis" since Ios15 => GatherAlongAxis {
        x: Value;
        indices: Value;
        axis: i32 = 0;
        validate_indices: bool = false, since Ios17;
    }
}

impl OpDef for GatherAlongAxis {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.any_number(self.x)?;
        let indices = types.int(self.indices)?;
        let axis = types.axis(self.x, self.axis)?;
        along(types, self.indices, x, axis)?;
        Ok(indices.with_dtype(x.dtype).into())
    }
}

/// Has `at` the shape of `x`, but for `axis`?
fn along(types: &Types<'_>, at: Value, x: &TensorType, axis: usize) -> Result<(), TypeError> {
    let found = types.tensor(at)?.rank();
    if found != x.rank() {
        return Err(TypeError::Rank { at, found, expected: "that of the data" });
    }
    let others = (0..x.rank()).filter(|&i| i != axis);
    others.into_iter().try_for_each(|i| types.same_extent(at, i, &x.shape[i]))
}

string_param! {
    /// What is made of an element and an update of it.
    ScatterMode {
        Update = "update",
        Add = "add",
        Sub = "sub",
        Mul = "mul",
        Div = "div",
        Max = "max",
        Min = "min",
    }
}

op! {
    /// `data` with slices along `axis`, those at `indices`, combined with `updates`, whose shape is
    /// that of `data` with that of `indices` in the place of the axis.
    "scatter" since Ios15 => Scatter {
        data: Value;
        indices: Value;
        updates: Value;
        axis: i32 = 0;
        mode: ScatterMode = ScatterMode::Add;
        validate_indices: bool = false, since Ios17;
    }
}
op! {
    /// `data` with the element at each of `indices` along `axis` combined with that of `updates`.
    "scatter_along_axis" since Ios15 => ScatterAlongAxis {
        data: Value;
        indices: Value;
        updates: Value;
        axis: i32 = 0;
        mode: ScatterMode = ScatterMode::Add;
        validate_indices: bool = false, since Ios17;
    }
}
op! {
    /// `data` with the slice at each row `[.., K]` of `indices` combined with that of `updates`.
    "scatter_nd" since Ios15 => ScatterNd {
        data: Value;
        indices: Value;
        updates: Value;
        mode: ScatterMode = ScatterMode::Add;
        validate_indices: bool = false, since Ios17;
    }
}

impl OpDef for Scatter {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let data = types.number(self.data)?;
        let indices = types.int(self.indices)?;
        let axis = types.axis(self.data, self.axis)?;
        types.same_dtype(self.updates, data.dtype)?;
        let mut shape = data.shape[..axis].to_vec();
        shape.extend_from_slice(&indices.shape);
        shape.extend_from_slice(&data.shape[axis + 1..]);
        types.same_shape(self.updates, &shape)?;
        Ok(data.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.updates), ..Work::default() }
    }
}

impl OpDef for ScatterAlongAxis {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let data = types.number(self.data)?;
        let axis = types.axis(self.data, self.axis)?;
        types.same_dtype(self.updates, data.dtype)?;
        along(types, self.indices, data, axis)?;
        types.same_shape(self.updates, &types.int(self.indices)?.shape)?;
        Ok(data.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.updates), ..Work::default() }
    }
}

impl OpDef for ScatterNd {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let data = types.number(self.data)?;
        types.same_dtype(self.updates, data.dtype)?;
        let depth = depth(types, self.indices, data.rank())?;
        let indices = types.int(self.indices)?;
        let mut shape = indices.shape[..indices.rank() - 1].to_vec();
        shape.extend_from_slice(&data.shape[depth..]);
        types.same_shape(self.updates, &shape)?;
        Ok(data.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.updates), ..Work::default() }
    }
}

op! {
    /// `x` with the elements that a `slice_by_index` would take replaced by `update`.
    "slice_update" since Ios18 => SliceUpdate {
        x: Value;
        update: Value;
        begin: Value;
        end: Value;
        stride: Option<Vec<i32>>;
        begin_mask: Option<Vec<bool>>;
        end_mask: Option<Vec<bool>>;
        squeeze_mask: Option<Vec<bool>>;
    }
}

impl SliceUpdate {
    /// The slice that is replaced.
    pub fn slice(&self) -> SliceByIndex {
        SliceByIndex {
            x: self.x,
            begin: self.begin,
            end: self.end,
            stride: self.stride.clone(),
            begin_mask: self.begin_mask.clone(),
            end_mask: self.end_mask.clone(),
            squeeze_mask: self.squeeze_mask.clone(),
        }
    }
}

impl OpDef for SliceUpdate {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.element(self.x)?;
        let update = types.same_dtype(self.update, x.dtype)?;
        let slice = self.slice().infer(types)?;
        let shape = slice.0[0].0.tensor().map(|t| t.shape.clone()).unwrap_or_default();
        if update.rank() == 0 {
            return Err(TypeError::Rank { at: self.update, found: 0, expected: "at least 1" });
        }
        types.same_shape(self.update, &shape)?;
        Ok(x.clone().into())
    }
}
