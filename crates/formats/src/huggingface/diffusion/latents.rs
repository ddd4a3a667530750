//! Latent pictures as tokens and back, and the numbers diffusers' transformers share.

use russet_ir::{DType, Dim, Tensor, TensorType, Value};

use super::super::attention::Heads;
use super::super::json::{Activation, Json};
use super::super::net::Bias;
use super::super::scope::Scope;
use super::super::vision::patches::Patches;
use crate::Error;

/// A square latent picture cut into patches, and the transformer on them.
#[derive(Debug, Clone, Copy)]
pub struct Latents {
    pub heads: Heads,
    pub n_layers: u64,
    pub in_channels: u64,
    pub out_channels: u64,
    /// Latent pixels along a side, and of a patch.
    pub size: u64,
    pub patch: u64,
}

/// Sides and channels beyond which a config is a mistake.
const SIZE_MAX: u64 = 1 << 10;
const CHANNELS_MAX: u64 = 1 << 14;

/// Numbers in a table of places, and columns of a head, beyond which a config is a mistake.
const PLACES_MAX: u64 = 1 << 26;
const DIM_MAX: u64 = 1 << 10;

/// Heads by their fields.
pub fn heads(json: &Json) -> Result<Heads, Error> {
    let (count, dim) =
        (json.count("num_attention_heads", None)?, json.count("attention_head_dim", None)?);
    match dim <= DIM_MAX && count.checked_mul(dim).is_some_and(|n| n <= 1 << 20) {
        true => Ok(Heads { batch: 1, count, dim }),
        false => Err(json.error("attention_head_dim", dim.to_string(), "fewer columns")),
    }
}

impl Latents {
    pub fn parse(json: &Json) -> Result<Latents, Error> {
        let in_channels = json.count("in_channels", Some(4))?;
        let latents = Latents {
            heads: heads(json)?,
            n_layers: json.count("num_layers", None)?,
            in_channels,
            out_channels: json.count("out_channels", Some(in_channels))?,
            size: json.count("sample_size", None)?,
            patch: json.count("patch_size", Some(2))?,
        };
        for (field, n) in [("in_channels", in_channels), ("out_channels", latents.out_channels)] {
            if n > CHANNELS_MAX {
                return Err(json.error(field, n.to_string(), format!("at most {CHANNELS_MAX}")));
            }
        }
        if latents.size > SIZE_MAX || !latents.size.is_multiple_of(latents.patch) {
            let expected = format!("a multiple of `patch_size`, at most {SIZE_MAX}");
            return Err(json.error("sample_size", latents.size.to_string(), expected));
        }
        if latents.count() * latents.width() > PLACES_MAX {
            return Err(json.error("sample_size", latents.size.to_string(), "fewer patches"));
        }
        Ok(latents)
    }

    pub fn width(&self) -> u64 {
        self.heads.width()
    }

    /// Patches along a side.
    pub fn side(&self) -> u64 {
        self.size / self.patch
    }

    /// Tokens.
    pub fn count(&self) -> u64 {
        self.side() * self.side()
    }

    /// The input `hidden_states`, as tokens with their places `[1, tokens, width]` added.
    pub fn embed(&self, s: &mut Scope, places: Tensor) -> Result<Value, Error> {
        let batch = self.heads.batch;
        let shape = [batch, self.in_channels, self.size, self.size].map(Dim::Fixed);
        let x = s.net.graph.add_input("hidden_states", TensorType::new(DType::F32, shape));
        let patches =
            Patches { channels: self.in_channels, image: [self.size; 2], patch: [self.patch; 2] };
        let mut s = s.inside("pos_embed", "");
        let x = patches.embed(&mut s, "proj", x, (batch, self.width()), Bias::Present)?;
        let places = s.constant(places, "positions")?;
        s.add(x, places, "embedded")
    }

    /// Tokens `[batch, tokens, patch * patch * channels]` as a picture, called `sample`. Rank 4 all
    /// the way: what is more does not run on the Neural Engine.
    pub fn picture(&self, s: &mut Scope, x: Value) -> Result<Value, Error> {
        let (b, n, p, c) = (self.heads.batch, self.side(), self.patch, self.out_channels);
        let rows = s.reshape(x, &[b * n, n, p, p * c], "patch_rows")?;
        let rows = s.transpose(rows, &[0, 2, 1, 3], "pixel_rows")?;
        let pixels = s.reshape(rows, &[b, n * p, n * p, c], "pixels")?;
        s.transpose(pixels, &[0, 3, 1, 2], "sample")
    }

    /// Sines and cosines of columns in the first half of channels, of rows in the second; places are
    /// counted in `unit`s.
    pub fn waves(&self, unit: f64) -> Tensor {
        let (side, width) = (self.side(), self.width());
        let half = width / 2;
        let rates: Vec<f64> =
            (0..half / 2).map(|i| 1.0 / 10000f64.powf(i as f64 / (half as f64 / 2.0))).collect();
        let mut table = Vec::with_capacity((side * side * width) as usize);
        for row in 0..side {
            for column in 0..side {
                for place in [column, row] {
                    // In f32 first, as diffusers has it.
                    let place = f64::from((place as f64 / unit) as f32);
                    table.extend(rates.iter().map(|r| (place * r).sin() as f32));
                    table.extend(rates.iter().map(|r| (place * r).cos() as f32));
                }
            }
        }
        Tensor::f32(vec![1, side * side, half / 2 * 4], &table)
    }
}

/// The MLP between tokens: what it is called in `activation_fn`.
#[derive(Debug, Clone, Copy)]
pub enum Mlp {
    Plain(Activation),
    /// `value * gelu(gate)`, both of one matrix.
    Gated,
}

impl Mlp {
    pub fn parse(json: &Json, usual: &str) -> Result<Mlp, Error> {
        let gelu = |name| json.activation("", name).map(Mlp::Plain);
        match json.text("activation_fn").unwrap_or(usual) {
            "gelu" => gelu("gelu"),
            "gelu-approximate" => gelu("gelu_pytorch_tanh"),
            "geglu-approximate" => gelu("quick_gelu"),
            "geglu" => Ok(Mlp::Gated),
            other => {
                let expected = "gelu, gelu-approximate, geglu or geglu-approximate";
                Err(json.error("activation_fn", other, expected))
            }
        }
    }

    /// The MLP `module` on `x` of `n` columns, four times as many inside.
    pub fn build(self, s: &mut Scope, module: &str, x: Value, n: u64) -> Result<Value, Error> {
        let mut s = s.inside(module, "mlp");
        let inner = 4 * n;
        let active = match self {
            Mlp::Plain(activation) => {
                let up = s.linear("net.0.proj", x, (n, inner), Bias::Present, "up")?;
                s.activation(activation, up, "active")?
            }
            Mlp::Gated => {
                let both = s.linear("net.0.proj", x, (n, 2 * inner), Bias::Present, "both")?;
                let halves = s.parts(both, 2, -1, "half")?;
                let gate = Activation::Gelu(russet_ir::ops::GeluMode::Exact);
                let gate = s.activation(gate, halves[1], "open_gate")?;
                s.mul(halves[0], gate, "gated")?
            }
        };
        s.linear("net.2", active, (inner, n), Bias::Present, "down")
    }
}
