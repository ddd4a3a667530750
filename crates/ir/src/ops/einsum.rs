//! Products in the notation of Einstein, as far as Core ML has them.

use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Value, Work, broadcast_shapes, op};

op! {
    /// Matrix products over axes -3 and -1, one for each place of the others: `nchw,nwhu->nchu` or
    /// `chw,whr->chr`, in any letters. The axes of both broadcast.
    "einsum" since Ios15 => Einsum { values: Vec<Value>; equation: String }
}

impl Einsum {
    /// Is the equation one of the two, in other letters perhaps?
    pub fn is_known(&self) -> bool {
        let mut letters: Vec<char> = Vec::new();
        let mut canonical = String::new();
        for c in self.equation.chars() {
            if !c.is_alphabetic() {
                canonical.push(c);
                continue;
            }
            let i = letters.iter().position(|&l| l == c).unwrap_or_else(|| {
                letters.push(c);
                letters.len() - 1
            });
            canonical.push(char::from(b'a' + i.min(25) as u8));
        }
        matches!(canonical.as_str(), "abcd,adce->abce" | "abc,cbd->abd")
    }
}

impl OpDef for Einsum {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let [left, right] = self.values[..] else {
            return Err(TypeError::param(format!(
                "{} values, two are expected",
                self.values.len()
            )));
        };
        let rank = self.equation.split(',').next().map_or(0, |s| s.chars().count());
        if !self.is_known() {
            let known = "`nchw,nwhu->nchu` and `chw,whr->chr`";
            return Err(TypeError::param(format!("{:?} is none of {known}", self.equation)));
        }
        let x = types.float(left)?;
        let y = types.same_dtype(right, x.dtype)?;
        for (at, t) in [(left, x), (right, y)] {
            if t.rank() != rank {
                let expected = if rank == 4 { "4" } else { "3" };
                return Err(TypeError::Rank { at, found: t.rank(), expected });
            }
        }
        let inner = &x.shape[rank - 1];
        types.same_extent(right, rank - 3, inner)?;
        let both = |i: usize| -> Result<Dim, TypeError> {
            let one = broadcast_shapes(&x.shape[i..=i], &y.shape[i..=i]);
            let one = one.and_then(|d| d.into_iter().next());
            one.ok_or_else(|| TypeError::Broadcast {
                at: right,
                found: y.clone(),
                other: x.clone(),
            })
        };
        let mut shape = vec![x.shape[rank - 3].clone(), both(rank - 2)?, y.shape[rank - 1].clone()];
        if rank == 4 {
            shape.insert(0, both(0)?);
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let out = self.infer(types).ok().and_then(|o| o.0[0].0.tensor()?.n_elements());
        let depth = self.values.first().and_then(|&v| types.ty(v).tensor()?.shape.last()?.fixed());
        Work { macs: out.unwrap_or(0).saturating_mul(depth.unwrap_or(0)), ..Work::default() }
    }
}
