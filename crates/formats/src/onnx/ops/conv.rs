//! Convolutions, there and back.

use russet_ir::ops::*;
use russet_ir::{DType, Value};

use super::super::cx::{Cx, Import, Outs, params};
use super::super::importer::{Out, Why};
use super::movement::padded;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Conv" => conv,
        "ConvTranspose" => conv_transpose,
        "Col2Im" => col2im,
        "CausalConvWithState" => causal,
        _ => return None,
    })
}

/// How a window slides over the axes behind batch and channels.
pub struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Elements before and after each axis.
    pub pads: Vec<(i64, i64)>,
}

impl Window {
    /// What the attributes say, for a kernel of these extents on `x`.
    pub fn of(cx: &Cx<'_, '_>, x: Value, kernel: Vec<i64>) -> Result<Window, Why> {
        let n = kernel.len();
        if cx.rank(x) != n + 2 || kernel.iter().any(|k| !(1..1 << 20).contains(k)) {
            return Err(Why(format!("a kernel {kernel:?} on {} axes", cx.rank(x))));
        }
        let list = |name: &str| -> Result<Vec<i64>, Why> {
            match cx.attrs.ints(name) {
                None => Ok(vec![1; n]),
                Some(v) if v.len() == n && v.iter().all(|&i| (1..1 << 20).contains(&i)) => {
                    Ok(v.to_vec())
                }
                Some(v) => Err(Why(format!("`{name}` {v:?} for {n} axes"))),
            }
        };
        let (strides, dilations) = (list("strides")?, list("dilations")?);
        let mut window = Window { kernel, strides, dilations, pads: vec![(0, 0); n] };
        match cx.text_attr("auto_pad", "NOTSET") {
            "VALID" => {}
            same @ ("SAME_UPPER" | "SAME_LOWER") => {
                for i in 0..n {
                    let extent = cx.need_extent(x, i + 2, "padding to the same extent")? as i64;
                    let s = window.strides[i];
                    let out = extent.div_euclid(s) + i64::from(extent.rem_euclid(s) != 0);
                    let total = ((out - 1) * s + window.span(i) - extent).max(0);
                    let (small, large) = (total / 2, total - total / 2);
                    window.pads[i] =
                        if same == "SAME_UPPER" { (small, large) } else { (large, small) };
                }
            }
            _ => {
                if let Some(p) = cx.attrs.ints("pads") {
                    let bounded = p.iter().all(|p| (-(1 << 20)..1 << 20).contains(p));
                    if p.len() != 2 * n || !bounded {
                        return Err(Why(format!("`pads` {p:?} for {n} axes")));
                    }
                    window.pads = (0..n).map(|i| (p[i], p[n + i])).collect();
                }
            }
        }
        Ok(window)
    }

    /// Elements a window covers along an axis.
    pub fn span(&self, axis: usize) -> i64 {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    /// In MIL's order.
    pub fn flat_pads(&self) -> Result<Vec<i32>, Why> {
        let flat: Vec<i64> = self.pads.iter().flat_map(|p| [p.0, p.1]).collect();
        params("pads", &flat)
    }
}

/// The extents of a kernel: an attribute, or those of the weights.
fn kernel(cx: &Cx<'_, '_>, weight: Value) -> Result<Vec<i64>, Why> {
    let shape = cx.need_shape(weight, "a kernel")?;
    let behind: Vec<i64> = shape.iter().skip(2).map(|&n| n as i64).collect();
    match cx.attrs.ints("kernel_shape") {
        Some(k) if k != behind => Err(Why(format!("kernel_shape {k:?} of weights {shape:?}"))),
        _ => Ok(behind),
    }
}

fn conv(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, weight, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let y = convolved(cx, x, weight, bias)?;
    cx.same(y)
}

/// A convolution as the node's attributes say.
pub fn convolved(
    cx: &mut Cx<'_, '_>,
    x: Value,
    weight: Value,
    bias: Option<Value>,
) -> Result<Value, Why> {
    let kernel = kernel(cx, weight)?;
    let mut window = Window::of(cx, x, kernel)?;
    let mut x = x;
    if window.pads.iter().any(|p| p.0 < 0 || p.1 < 0) {
        let mut all = vec![(0, 0); 2];
        all.extend(&window.pads);
        x = padded(cx, x, &all, "constant", 0.0)?;
        window.pads.iter_mut().for_each(|p| *p = (0, 0));
    }
    let groups = params("group", &[cx.int_attr("group", 1)])?[0];
    cx.push(Conv {
        x,
        weight,
        bias,
        strides: Some(params("strides", &window.strides)?),
        pad_type: PadType::Custom,
        pad: Some(window.flat_pads()?),
        dilations: Some(params("dilations", &window.dilations)?),
        groups,
    })
}

fn conv_transpose(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, weight, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let kernel = kernel(cx, weight)?;
    let n = kernel.len();
    let groups = params("group", &[cx.int_attr("group", 1)])?[0];
    let auto = cx.text_attr("auto_pad", "NOTSET").starts_with("SAME");
    let upper = cx.text_attr("auto_pad", "NOTSET") == "SAME_UPPER";
    let wanted = cx.attrs.ints("output_shape").map(|s| s[s.len().saturating_sub(n)..].to_vec());
    let wanted = wanted.filter(|w| w.len() == n && w.iter().all(|w| (1..1 << 30).contains(w)));
    let more = cx.attrs.ints("output_padding").map_or(vec![0; n], <[i64]>::to_vec);
    if more.len() != n || more.iter().any(|m| !(0..1 << 20).contains(m)) {
        return Err(Why(format!("output_padding {more:?} for {n} axes")));
    }
    let mut window = match auto {
        // What `same` means here is another thing than for a convolution.
        true => {
            let list = |name: &str| cx.attrs.ints(name).map_or(vec![1; n], <[i64]>::to_vec);
            let (strides, dilations) = (list("strides"), list("dilations"));
            let sane = |v: &[i64]| v.len() == n && v.iter().all(|i| (1..1 << 20).contains(i));
            if !sane(&strides) || !sane(&dilations) || kernel.iter().any(|&k| k > 1 << 20) {
                return Err(Why::from("strides of other axes"));
            }
            Window { kernel, strides, dilations, pads: vec![(0, 0); n] }
        }
        false => Window::of(cx, x, kernel)?,
    };
    let mut extents = Vec::new();
    if auto || wanted.is_some() {
        for i in 0..n {
            let extent = cx.need_extent(x, i + 2, "a stated output")? as i64;
            let out = match &wanted {
                Some(w) => w[i],
                None => extent * window.strides[i],
            };
            let total = window.strides[i] * (extent - 1) + more[i] + window.span(i) - out;
            let (small, large) = (total.div_euclid(2), total - total.div_euclid(2));
            window.pads[i] = if upper { (small, large) } else { (large, small) };
            extents.push(out);
        }
    }
    // Elements the output has more at its end are less cut off there, or come from nothing.
    let mut beyond = vec![(0, 0); n + 2];
    for i in 0..n {
        window.pads[i].1 -= more[i];
        let (pad, missing) = (&mut window.pads[i], &mut beyond[i + 2]);
        *missing = ((-pad.0).max(0), (-pad.1).max(0));
        *pad = (pad.0.max(0), pad.1.max(0));
    }
    let late = beyond.iter().any(|p| *p != (0, 0));
    let mut y = cx.push(ConvTranspose {
        x,
        weight,
        bias: bias.filter(|_| !late),
        pad: Some(window.flat_pads()?),
        output_shape: None,
        pad_type: PadType::Custom,
        strides: Some(params("strides", &window.strides)?),
        dilations: Some(params("dilations", &window.dilations)?),
        groups,
    })?;
    if late {
        y = padded(cx, y, &beyond, "constant", 0.0)?;
        if let Some(bias) = bias {
            let bias = cx.expand_dims(bias, &(1..=n).collect::<Vec<_>>())?;
            y = cx.add(y, bias)?;
        }
    }
    cx.same(y)
}

/// A convolution of each channel `[B, C, L]` by itself that sees no later element; what it still
/// needs of this call goes to the next one.
fn causal(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, weight, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let channels = cx.need_extent(weight, 0, "a convolution of channels")?;
    let before = cx.need_extent(weight, 2, "a kernel")?.saturating_sub(1) as i64;
    let seen = match cx.opt(3)? {
        Some(past) if before > 0 => cx.concat(vec![past, x], 2)?,
        _ => padded(cx, x, &[(0, 0), (0, 0), (before, 0)], "constant", 0.0)?,
    };
    let mut y = cx.push(Conv {
        x: seen,
        weight,
        bias,
        strides: None,
        pad_type: PadType::Valid,
        pad: None,
        dilations: None,
        groups: channels as i32,
    })?;
    if matches!(cx.text_attr("activation", "none"), "silu" | "swish") {
        y = cx.push(Silu { x: y })?;
    }
    let elem = cx.elem(0);
    let mut outs = vec![Out::Value(y, elem)];
    if cx.outputs.get(1) == Some(&true) {
        if before == 0 {
            return Err(Why::from("the state of a kernel of one element is empty"));
        }
        outs.push(Out::Value(cx.slice(seen, 2, -before, None)?, elem));
    }
    Ok(outs)
}

/// Blocks `[N, C * k, L]` added up where they lie in an image: a transposed convolution whose
/// weights put each element of a block in its place.
fn col2im(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (image, block) = (cx.ints(1, "image_shape")?, cx.ints(2, "block_shape")?);
    let n = block.len();
    let channels = cx.need_extent(x, 1, "blocks of columns")?;
    let taps = block.iter().try_fold(1i64, |n, &b| n.checked_mul(b)).unwrap_or(0);
    let list = |name: &str| cx.attrs.ints(name).map_or(vec![1; n], <[i64]>::to_vec);
    let (strides, dilations) = (list("strides"), list("dilations"));
    let pads = cx.attrs.ints("pads").map_or(vec![0; 2 * n], <[i64]>::to_vec);
    let sizes = [image.len(), strides.len(), dilations.len(), pads.len() / 2];
    let mut all = image.iter().chain(&strides).chain(&dilations).chain(&pads);
    let sane = all.all(|i| (0..1 << 20).contains(i)) && block.iter().all(|&b| b > 0);
    let bounded = taps <= 4096 && channels.saturating_mul(taps as u64) <= 1 << 24;
    if taps < 1 || sizes != [n; 4] || !channels.is_multiple_of(taps as u64) || !sane || !bounded {
        return Err(Why(format!("blocks {block:?} of {channels} channels")));
    }
    let groups = channels / taps as u64;
    let mut counts = Vec::new();
    for i in 0..n {
        let free = image[i] + pads[i] + pads[n + i] - ((block[i] - 1) * dilations[i] + 1);
        if strides[i] < 1 || free < 0 {
            return Err(Why(format!("blocks {block:?} of an image {image:?}")));
        }
        counts.push((free / strides[i] + 1) as u64);
    }
    let batch = super::super::cx::Part::Of(x, 0);
    let mut parts = vec![batch, super::super::cx::Part::N(channels)];
    parts.extend(counts.iter().map(|&c| super::super::cx::Part::N(c)));
    let blocks = cx.reshape(x, &parts)?;
    // [C * k, 1, *k]: the weights of one channel, for every group.
    let one = |i: i64, j: i64| f32::from(u8::from(i == j));
    let eye: Vec<f32> = (0..taps).flat_map(|i| (0..taps).map(move |j| one(i, j))).collect();
    let mut shape = vec![channels, 1];
    shape.extend(block.iter().map(|&b| b as u64));
    let weight = cx.floats(shape, &eye.repeat(groups as usize), DType::F32)?;
    let dtype = cx.dtype(blocks);
    let weight = cx.cast(weight, dtype)?;
    let whole = cx.push(ConvTranspose {
        x: blocks,
        weight,
        bias: None,
        pad: None,
        output_shape: None,
        pad_type: PadType::Valid,
        strides: Some(params("strides", &strides)?),
        dilations: Some(params("dilations", &dilations)?),
        groups: groups as i32,
    })?;
    // Padding is cut off, and what no block covers is zero.
    let mut around = vec![(0, 0); 2];
    for i in 0..n {
        let made = cx.need_extent(whole, i + 2, "an image")? as i64;
        let missing = image[i] + pads[i] + pads[n + i] - made;
        around.push((-pads[i], missing - pads[n + i]));
    }
    let y = padded(cx, whole, &around, "constant", 0.0)?;
    cx.same(y)
}
