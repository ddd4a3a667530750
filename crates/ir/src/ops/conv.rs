//! Matrix products: convolution, linear layers, matmul.

use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Value, Work, broadcast_shapes, op, string_param};

string_param! {
    /// How [`Conv`] pads its spatial axes.
    PadType { Valid = "valid", Same = "same", SameLower = "same_lower", Custom = "custom" }
}

op! {
    /// Convolution of `x` `[N, Cin, *D]` with `weight` `[Cout, Cin / groups, *K]`, one to three
    /// spatial axes; `bias` is `[Cout]`. `pad` (before and after each axis) counts for `custom`.
    "conv" since Ios15 => Conv {
        x: Value;
        weight: Value;
        bias: Option<Value>;
        strides: Option<Vec<i32>>;
        pad_type: PadType = PadType::Valid;
        pad: Option<Vec<i32>>;
        dilations: Option<Vec<i32>>;
        groups: i32 = 1;
    }
}

/// One spatial axis of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvAxis {
    pub kernel: u64,
    pub stride: u64,
    pub dilation: u64,
    /// Rows of zeros before and after; for `same` they depend on the extent.
    pub pad: (u64, u64),
}

impl Conv {
    /// A 1x1 convolution: a linear layer over the channels.
    pub fn pointwise(x: Value, weight: Value, bias: Option<Value>) -> Conv {
        Conv {
            x,
            weight,
            bias,
            strides: Some(vec![1, 1]),
            pad_type: PadType::Valid,
            pad: Some(vec![0; 4]),
            dilations: Some(vec![1, 1]),
            groups: 1,
        }
    }

    /// Is every kernel extent 1, with stride 1, no padding and one group?
    pub fn is_pointwise(&self, types: &Types<'_>) -> bool {
        let Ok(w) = types.tensor(self.weight) else { return false };
        self.groups == 1
            && w.shape.iter().skip(2).all(|d| *d == Dim::Fixed(1))
            && self.strides.iter().flatten().all(|&s| s == 1)
            && (self.pad_type != PadType::Custom || self.pad.iter().flatten().all(|&p| p == 0))
    }

    /// The spatial axes, for a kernel and an input of these extents.
    pub fn axes(&self, kernel: &[u64], input: &[u64]) -> Result<Vec<ConvAxis>, TypeError> {
        let (strides, dilations) = (self.strides.as_deref(), self.dilations.as_deref());
        Window { kernel, strides, dilations, pad_type: self.pad_type, pad: self.pad.as_deref() }
            .axes(input)
    }
}

/// How a kernel slides over spatial axes: what convolutions and pools share.
pub(super) struct Window<'a> {
    pub kernel: &'a [u64],
    pub strides: Option<&'a [i32]>,
    pub dilations: Option<&'a [i32]>,
    pub pad_type: PadType,
    pub pad: Option<&'a [i32]>,
}

impl Window<'_> {
    /// Each axis, for an input of these extents.
    pub fn axes(&self, input: &[u64]) -> Result<Vec<ConvAxis>, TypeError> {
        let rank = self.kernel.len();
        let strides = per_axis("strides", self.strides, rank)?;
        let dilations = per_axis("dilations", self.dilations, rank)?;
        let custom = match self.pad {
            _ if self.pad_type != PadType::Custom => None,
            Some(p) if p.len() == 2 * rank && p.iter().all(|&p| p >= 0) => Some(p),
            p => return Err(TypeError::param(format!("pad {p:?} for {rank} axes"))),
        };
        if self.kernel.contains(&0) {
            return Err(TypeError::param(format!("a kernel of extents {:?}", self.kernel)));
        }
        let axis = |i: usize| {
            let (k, s, d) = (self.kernel[i], strides[i], dilations[i]);
            let pad = match (self.pad_type, custom) {
                (PadType::Custom, Some(p)) => (p[2 * i] as u64, p[2 * i + 1] as u64),
                (PadType::Same | PadType::SameLower, _) => {
                    let covered = (input[i].div_ceil(s).max(1) - 1)
                        .saturating_mul(s)
                        .saturating_add((k - 1).saturating_mul(d))
                        .saturating_add(1);
                    let total = covered.saturating_sub(input[i]);
                    let (small, large) = (total / 2, total - total / 2);
                    if self.pad_type == PadType::Same { (small, large) } else { (large, small) }
                }
                _ => (0, 0),
            };
            ConvAxis { kernel: k, stride: s, dilation: d, pad }
        };
        Ok((0..rank).map(axis).collect())
    }
}

/// A positive number for each of `rank` axes; ones when absent.
fn per_axis(name: &str, given: Option<&[i32]>, rank: usize) -> Result<Vec<u64>, TypeError> {
    match given {
        None => Ok(vec![1; rank]),
        Some(v) if v.len() == rank && v.iter().all(|&s| s > 0) => {
            Ok(v.iter().map(|&s| s as u64).collect())
        }
        Some(v) => Err(TypeError::param(format!("{name} {v:?} for {rank} axes"))),
    }
}

impl ConvAxis {
    /// Extent of the output for an input of `n`; `None` when the kernel does not fit.
    pub fn output(&self, n: u64) -> Option<u64> {
        let span = (self.kernel.checked_sub(1)?).checked_mul(self.dilation)?.checked_add(1)?;
        let padded = n.checked_add(self.pad.0)?.checked_add(self.pad.1)?;
        Some(padded.checked_sub(span)? / self.stride + 1)
    }
}

impl OpDef for Conv {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.x)?;
        let w = types.float(self.weight)?;
        if !(3..=5).contains(&x.rank()) {
            let (found, expected) = (x.rank(), "3 to 5");
            return Err(TypeError::Rank { at: self.x, found, expected });
        }
        if w.rank() != x.rank() {
            let (found, expected) = (w.rank(), "that of `x`");
            return Err(TypeError::Rank { at: self.weight, found, expected });
        }
        let Some(w_shape) = w.fixed_shape() else {
            return Err(TypeError::NotConstant { at: self.weight });
        };
        let groups = u64::try_from(self.groups).ok().filter(|&g| g > 0);
        let groups = groups.ok_or_else(|| TypeError::param(format!("groups {}", self.groups)))?;
        let (c_out, per_group) = (w_shape[0], w_shape[1]);
        let c_in = Dim::Fixed(per_group.saturating_mul(groups));
        if x.shape[1] != c_in {
            let found = x.shape[1].clone();
            return Err(TypeError::Extent { at: self.x, axis: 1, found, expected: c_in });
        }
        if !c_out.is_multiple_of(groups) {
            let why = format!("{c_out} output channels in {groups} groups");
            return Err(TypeError::param(why));
        }
        if let Some(bias) = self.bias {
            types.float(bias)?;
            require_vector(types, bias, c_out)?;
        }
        let kernel = &w_shape[2..];
        let mut shape = vec![x.shape[0].clone(), Dim::Fixed(c_out)];
        let known: Vec<u64> = x.shape[2..].iter().map(|d| d.fixed().unwrap_or(0)).collect();
        for (i, a) in self.axes(kernel, &known)?.into_iter().enumerate() {
            shape.push(match &x.shape[2 + i] {
                d if a.kernel == 1 && a.stride == 1 && a.pad == (0, 0) => d.clone(),
                Dim::Fixed(n) => Dim::Fixed(a.output(*n).ok_or_else(|| TypeError::Extent {
                    at: self.x,
                    axis: 2 + i,
                    found: Dim::Fixed(*n),
                    expected: Dim::Fixed(a.kernel),
                })?),
                Dim::Symbol(s) => a.unknown(s, "conv"),
            });
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let out = self.infer(types).ok().and_then(|o| o.0[0].0.tensor()?.n_elements());
        let w = types.ty(self.weight).tensor().and_then(TensorType::fixed_shape);
        let per_output = w.map_or(0, |w| w[1..].iter().fold(1u64, |n, &d| n.saturating_mul(d)));
        Work { macs: out.unwrap_or(0).saturating_mul(per_output), ..Work::default() }
    }
}

pub(super) fn require_vector(types: &Types<'_>, v: Value, n: u64) -> Result<(), TypeError> {
    let t = types.number(v)?;
    if t.rank() != 1 {
        return Err(TypeError::Rank { at: v, found: t.rank(), expected: "1" });
    }
    if t.shape[0] != Dim::Fixed(n) {
        let (found, expected) = (t.shape[0].clone(), Dim::Fixed(n));
        return Err(TypeError::Extent { at: v, axis: 0, found, expected });
    }
    Ok(())
}

op! {
    /// `x` `[.., D]` times `weight` `[E, D]` transposed, plus `bias` `[E]`.
    "linear" since Ios15 => Linear { x: Value; weight: Value; bias: Option<Value> }
}

impl OpDef for Linear {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        let w = types.number(self.weight)?;
        if w.rank() != 2 {
            return Err(TypeError::Rank { at: self.weight, found: w.rank(), expected: "2" });
        }
        let Some(last) = x.shape.last() else {
            return Err(TypeError::Rank { at: self.x, found: 0, expected: "at least 1" });
        };
        if *last != w.shape[1] {
            let (found, expected) = (w.shape[1].clone(), last.clone());
            return Err(TypeError::Extent { at: self.weight, axis: 1, found, expected });
        }
        let Dim::Fixed(n_out) = w.shape[0] else {
            return Err(TypeError::NotConstant { at: self.weight });
        };
        let parameters = [Some(self.weight), self.bias];
        for at in parameters.into_iter().flatten() {
            // Floats of two widths may meet; a float and an integer may not.
            let found = types.number(at)?.dtype;
            if found.is_float() != x.dtype.is_float() {
                return Err(TypeError::MixedDTypes { at, found, expected: x.dtype });
            }
        }
        if let Some(bias) = self.bias {
            require_vector(types, bias, n_out)?;
        }
        let mut out = x.clone();
        *out.shape.last_mut().expect("checked above") = Dim::Fixed(n_out);
        Ok(out.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n_out = types.ty(self.weight).tensor().and_then(|w| w.shape[0].fixed()).unwrap_or(0);
        Work { macs: types.n_elements(self.x).saturating_mul(n_out), ..Work::default() }
    }
}

op! {
    /// Matrix product of the last two axes, the others broadcast.
    "matmul" since Ios15 => Matmul {
        x: Value;
        y: Value;
        transpose_x: bool = false;
        transpose_y: bool = false;
    }
}

impl OpDef for Matmul {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        let y = types.number(self.y)?;
        for (at, t) in [(self.x, x), (self.y, y)] {
            if t.rank() < 2 {
                return Err(TypeError::Rank { at, found: t.rank(), expected: "at least 2" });
            }
        }
        // A constant may be of another float type than what it is multiplied with.
        let constant = |v: Value| types.constant(v).is_some();
        let (x_constant, y_constant) = (constant(self.x), constant(self.y));
        let floats = x.dtype.is_float() && y.dtype.is_float();
        if x.dtype != y.dtype && (x_constant == y_constant || !floats) {
            let (found, expected) = (y.dtype, x.dtype);
            return Err(TypeError::MixedDTypes { at: self.y, found, expected });
        }
        let dtype = if x_constant { y.dtype } else { x.dtype };
        let matrix = |t: &TensorType, transposed: bool| {
            let [r, c] = [&t.shape[t.rank() - 2], &t.shape[t.rank() - 1]].map(Dim::clone);
            if transposed { (c, r) } else { (r, c) }
        };
        let (m, k) = matrix(x, self.transpose_x);
        let (k_y, n) = matrix(y, self.transpose_y);
        // Two symbols may turn out to be one number.
        if k.fixed().zip(k_y.fixed()).is_some_and(|(a, b)| a != b) {
            let axis = y.rank() - if self.transpose_y { 1 } else { 2 };
            return Err(TypeError::Extent { at: self.y, axis, found: k_y, expected: k });
        }
        let batch = broadcast_shapes(&x.shape[..x.rank() - 2], &y.shape[..y.rank() - 2]);
        let mut shape = batch.ok_or_else(|| TypeError::Broadcast {
            at: self.y,
            found: y.clone(),
            other: x.clone(),
        })?;
        shape.extend([m, n]);
        Ok(TensorType { dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let out = self.infer(types).ok().and_then(|o| o.0[0].0.tensor()?.n_elements());
        let k = types.tensor(self.x).ok().and_then(|x| {
            let from_end = if self.transpose_x { 2 } else { 1 };
            x.shape.get(x.rank().checked_sub(from_end)?)?.fixed()
        });
        Work { macs: out.unwrap_or(0).saturating_mul(k.unwrap_or(0)), ..Work::default() }
    }
}
