//! Ops that carry or choose values: constants, identity, conditionals, unknown ops.

use crate::infer::{Known, Outputs, TypeError, Types};
use crate::{Arg, OpDef, Tensor, Type, Value, op};

op! {
    /// A tensor known when the program is written.
    "const" since Ios15 => Const { val: Tensor }
}

impl OpDef for Const {
    fn infer(&self, _types: &Types<'_>) -> Result<Outputs, TypeError> {
        let known = Known::Tensor(self.val.clone());
        Ok(Outputs(vec![(self.val.ty().into(), Some(known))]))
    }
}

op! {
    /// `x` under another name.
    "identity" since Ios15 => Identity { x: Value }
}

impl OpDef for Identity {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let known = types.known_ints(self.x).map(Known::Dims);
        Ok(Outputs(vec![(types.ty(self.x).clone(), known)]))
    }
}

op! {
    /// The outputs of the first block when `pred` holds, else those of the second.
    "cond" since Ios15 => Cond { pred: Value }
}

impl OpDef for Cond {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let pred = types.bool(self.pred)?;
        if pred.n_elements().is_some_and(|n| n != 1) {
            return Err(TypeError::Rank { at: self.pred, found: pred.rank(), expected: "0" });
        }
        let (Some(yes), Some(no)) = (types.block(0), types.block(1)) else {
            return Err(TypeError::param("`cond` has two blocks"));
        };
        if !same_types(yes, no) {
            return Err(TypeError::param("the two blocks of `cond` return different types"));
        }
        Ok(Outputs(yes.iter().map(|t| (t.clone(), None)).collect()))
    }
}

/// Do two lists of types agree, one by one?
pub(super) fn same_types(a: &[Type], b: &[Type]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.agrees(b))
}

/// An op this version does not know: its name, its operands and the types it was stated to have.
#[derive(Debug, Clone, PartialEq)]
pub struct Opaque {
    pub name: String,
    /// Every operand by name; parameters are values too.
    pub operands: Vec<(String, Vec<Value>)>,
    pub types: Vec<Type>,
}

impl Opaque {
    pub(crate) fn args(&self) -> Vec<(&str, Arg)> {
        self.operands.iter().map(|(name, v)| (name.as_str(), Arg::Values(v.clone()))).collect()
    }

    pub(crate) fn map_values(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        self.operands.iter_mut().flat_map(|(_, v)| v).for_each(|v| *v = f(*v));
    }

    pub(crate) fn outputs(&self) -> Outputs {
        Outputs(self.types.iter().map(|t| (t.clone(), None)).collect())
    }
}
