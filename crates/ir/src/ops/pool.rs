//! Windows that slide: pools, and the convolution that goes the other way.

use super::conv::{ConvAxis, PadType, Window, require_vector};
use crate::dims::named;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, Symbol, TensorType, Value, Work, op};

op! {
    /// The mean of each window of `x` `[N, C, *D]`; padding counts as zeros, or not at all when
    /// it is excluded from the average.
    "avg_pool" since Ios15 => AvgPool {
        x: Value;
        kernel_sizes: Vec<i32>;
        strides: Option<Vec<i32>>;
        pad_type: PadType;
        pad: Option<Vec<i32>>;
        exclude_padding_from_average: bool = false;
        ceil_mode: bool = false;
    }
}
op! {
    /// The largest of each window of `x` `[N, C, *D]`; padding never is.
    "max_pool" since Ios15 => MaxPool {
        x: Value;
        kernel_sizes: Vec<i32>;
        strides: Option<Vec<i32>>;
        pad_type: PadType;
        pad: Option<Vec<i32>>;
        ceil_mode: bool = false;
    }
}
op! {
    /// The square root of the sum of squares of each window of `x` `[N, C, *D]`.
    "l2_pool" since Ios15 => L2Pool {
        x: Value;
        kernel_sizes: Vec<i32>;
        strides: Option<Vec<i32>>;
        pad_type: PadType;
        pad: Option<Vec<i32>>;
        ceil_mode: bool = false;
    }
}

/// A pool's window, whichever pool it is.
pub struct Pool<'a> {
    pub kernel_sizes: &'a [i32],
    pub strides: Option<&'a [i32]>,
    pub pad_type: PadType,
    pub pad: Option<&'a [i32]>,
    pub ceil_mode: bool,
}

macro_rules! pool {
    ($($op:ident: $spatial_max:literal, $exps:literal);*) => {$(
        impl $op {
            /// Its window.
            pub fn window(&self) -> Pool<'_> {
                Pool {
                    kernel_sizes: &self.kernel_sizes,
                    strides: self.strides.as_deref(),
                    pad_type: self.pad_type,
                    pad: self.pad.as_deref(),
                    ceil_mode: self.ceil_mode,
                }
            }
        }

        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                self.window().infer(types, self.x, $spatial_max)
            }

            fn work(&self, types: &Types<'_>) -> Work {
                let out = self.infer(types).ok().and_then(|o| o.0[0].0.tensor()?.n_elements());
                let taps = |n: u64, &k: &i32| n.saturating_mul(u64::from(k.unsigned_abs()));
                let out = out.unwrap_or(0);
                let flops = self.kernel_sizes.iter().fold(out, taps);
                Work { flops, exps: out.saturating_mul($exps), ..Work::default() }
            }
        }
    )*};
}

pool!(AvgPool: 5, 0; MaxPool: 5, 0; L2Pool: 4, 1);

impl Pool<'_> {
    /// The spatial axes and the extents of the output, for an input of these extents.
    pub fn axes(&self, input: &[u64]) -> Result<Vec<(ConvAxis, u64)>, TypeError> {
        let kernel: Option<Vec<u64>> =
            self.kernel_sizes.iter().map(|&k| u64::try_from(k).ok()).collect();
        let kernel = kernel.filter(|k| k.len() == input.len()).ok_or_else(|| {
            let (sizes, n) = (self.kernel_sizes, input.len());
            TypeError::param(format!("kernel_sizes {sizes:?} for {n} axes"))
        })?;
        if self.ceil_mode && matches!(self.pad_type, PadType::Same | PadType::SameLower) {
            return Err(TypeError::param("ceil_mode is not for pad_type `same`"));
        }
        let (strides, pad_type, pad) = (self.strides, self.pad_type, self.pad);
        let axes =
            Window { kernel: &kernel, strides, dilations: None, pad_type, pad }.axes(input)?;
        if self.ceil_mode && axes.iter().any(|a| a.pad.0 != a.pad.1) {
            return Err(TypeError::param("ceil_mode is for symmetric padding"));
        }
        let extent = |(a, &n): (ConvAxis, &u64)| {
            let out = if self.ceil_mode { ceiled(&a, n) } else { a.output(n) };
            let out = out.ok_or_else(|| {
                TypeError::param(format!("a window of {} on an extent of {n}", a.kernel))
            })?;
            Ok((a, out))
        };
        axes.into_iter().zip(input).map(extent).collect()
    }

    fn infer(&self, types: &Types<'_>, at: Value, rank_max: usize) -> Result<Outputs, TypeError> {
        let x = types.float(at)?;
        if !(3..=rank_max).contains(&x.rank()) {
            let expected = if rank_max == 5 { "3 to 5" } else { "3 or 4" };
            return Err(TypeError::Rank { at, found: x.rank(), expected });
        }
        let mut shape = x.shape[..2].to_vec();
        // An unknown extent is tried with one that any window fits on: only the checks matter.
        let room = |i: usize| u64::from(self.kernel_sizes.get(i).map_or(1, |k| k.unsigned_abs()));
        let known = x.shape[2..].iter().enumerate();
        let known: Vec<u64> = known.map(|(i, d)| d.fixed().unwrap_or_else(|| room(i))).collect();
        for (d, (axis, out)) in x.shape[2..].iter().zip(self.axes(&known)?) {
            shape.push(match d {
                Dim::Fixed(_) => Dim::Fixed(out),
                Dim::Symbol(s) => axis.unknown(s, if self.ceil_mode { "ceil" } else { "pool" }),
            });
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

/// The extent when windows that begin inside count though they end outside; one that begins in the
/// padding behind does not.
fn ceiled(a: &ConvAxis, n: u64) -> Option<u64> {
    let padded = n.checked_add(a.pad.0)?.checked_add(a.pad.1)?;
    let out = (padded.checked_sub(a.kernel)?.checked_add(a.stride - 1)?) / a.stride + 1;
    let begins_behind = (out - 1) * a.stride >= n + a.pad.0 && a.pad.0 + a.pad.1 > 0;
    Some(if begins_behind { out - 1 } else { out })
}

op! {
    /// The transpose of a convolution: each element of `x` `[N, Cin, *D]` adds its multiple of
    /// `weight` `[Cin, Cout / groups, *K]` to the output, windows `strides` apart; `pad` is cut off.
    "conv_transpose" since Ios15 => ConvTranspose {
        x: Value;
        weight: Value;
        bias: Option<Value>;
        pad: Option<Vec<i32>>;
        output_shape: Option<Vec<i32>>;
        pad_type: PadType = PadType::Valid;
        strides: Option<Vec<i32>>;
        dilations: Option<Vec<i32>>;
        groups: i32 = 1;
    }
}

impl ConvTranspose {
    /// The spatial axes with what is cut off as their padding, and the extents of the output.
    pub fn axes(&self, kernel: &[u64], input: &[u64]) -> Result<Vec<(ConvAxis, u64)>, TypeError> {
        let (strides, dilations) = (self.strides.as_deref(), self.dilations.as_deref());
        // `same` is worked out below, from the extents.
        let pad_type = match self.pad_type {
            PadType::Custom => PadType::Custom,
            _ => PadType::Valid,
        };
        let window = Window { kernel, strides, dilations, pad_type, pad: self.pad.as_deref() };
        let wanted = self.output_shape.as_deref();
        let wanted = wanted.map(|s| &s[s.len().min(2)..]);
        if wanted.is_some_and(|w| w.len() != kernel.len() || w.iter().any(|&n| n < 0)) {
            let why = format!("output_shape {:?} for {} axes", self.output_shape, kernel.len());
            return Err(TypeError::param(why));
        }
        let mut all = Vec::new();
        for (i, (mut a, &n)) in window.axes(input)?.into_iter().zip(input).enumerate() {
            let (k, s, d) = (a.kernel - 1, a.stride, a.dilation);
            let steps = n.checked_sub(1).and_then(|n| n.checked_mul(s));
            let whole =
                steps.zip(k.checked_mul(d)).and_then(|(x, y)| x.checked_add(y)?.checked_add(1));
            let whole = whole.ok_or_else(|| TypeError::param(format!("an extent of {n}")))?;
            let same = matches!(self.pad_type, PadType::Same | PadType::SameLower);
            let natural =
                if same { n.saturating_mul(s) } else { whole.saturating_sub(a.pad.0 + a.pad.1) };
            let out = wanted.map_or(natural, |w| w[i] as u64);
            if same {
                let cut = whole.saturating_sub(out);
                let (small, large) = (cut / 2, cut - cut / 2);
                let lower = self.pad_type == PadType::SameLower;
                a.pad = if lower { (large, small) } else { (small, large) };
            }
            if out == 0 || (wanted.is_some() && out >= natural.saturating_add(s.max(d))) {
                return Err(TypeError::param(format!("an output extent of {out} from {n}")));
            }
            all.push((a, out));
        }
        Ok(all)
    }
}

impl OpDef for ConvTranspose {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.x)?;
        let w = types.float(self.weight)?;
        if !(3..=5).contains(&x.rank()) {
            return Err(TypeError::Rank { at: self.x, found: x.rank(), expected: "3 to 5" });
        }
        if w.rank() != x.rank() {
            let (found, expected) = (w.rank(), "that of `x`");
            return Err(TypeError::Rank { at: self.weight, found, expected });
        }
        let w_shape = w.fixed_shape().ok_or(TypeError::NotConstant { at: self.weight })?;
        let c_in = Dim::Fixed(w_shape[0]);
        if x.shape[1] != c_in {
            let found = x.shape[1].clone();
            return Err(TypeError::Extent { at: self.x, axis: 1, found, expected: c_in });
        }
        let groups = u64::try_from(self.groups).ok().filter(|&g| g > 0);
        let groups = groups.filter(|&g| w_shape[0].is_multiple_of(g));
        let groups = groups.ok_or_else(|| TypeError::param(format!("groups {}", self.groups)))?;
        let c_out = w_shape[1].saturating_mul(groups);
        if let Some(bias) = self.bias {
            require_vector(types, bias, c_out)?;
        }
        if let Some(s) = self.output_shape.as_ref().filter(|s| s.get(1) != Some(&(c_out as i32))) {
            return Err(TypeError::param(format!("output_shape {s:?} for {c_out} channels")));
        }
        let mut shape = vec![x.shape[0].clone(), Dim::Fixed(c_out)];
        let known: Vec<u64> = x.shape[2..].iter().map(|d| d.fixed().unwrap_or(1)).collect();
        for (i, (axis, out)) in self.axes(&w_shape[2..], &known)?.into_iter().enumerate() {
            shape.push(match &x.shape[2 + i] {
                Dim::Symbol(s) if self.output_shape.is_none() => axis.unknown(s, "transposed"),
                _ => Dim::Fixed(out),
            });
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let w = types.ty(self.weight).tensor().and_then(TensorType::fixed_shape);
        let each = w.map_or(0, |w| w[1..].iter().fold(1u64, |n, &d| n.saturating_mul(d)));
        Work { macs: types.n_elements(self.x).saturating_mul(each), ..Work::default() }
    }
}

impl ConvAxis {
    /// The extent this makes of an unknown one. Named after what makes it, so that equal extents
    /// stay equal.
    pub(super) fn unknown(&self, from: &Symbol, kind: &str) -> Dim {
        let ConvAxis { kernel, stride, dilation, pad: (before, after) } = self;
        let name = format!("{from}.{kind}{kernel}s{stride}d{dilation}p{before}_{after}");
        named(&name)
    }
}
