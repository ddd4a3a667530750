//! Pictures cut into patches: what vision transformers begin with.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, TensorType, Value};

use super::super::json::Json;
use super::super::net::Bias;
use super::super::scope::Scope;
use crate::Error;

/// A picture's size and that of its patches.
#[derive(Debug, Clone, Copy)]
pub struct Patches {
    pub channels: u64,
    /// Height and width.
    pub image: [u64; 2],
    pub patch: [u64; 2],
}

impl Patches {
    /// From `image_size`, `patch_size` and `num_channels`; sizes are one number or two.
    pub fn parse(json: &Json) -> Result<Patches, Error> {
        let size = |field: &str| match json.numbers(field)?[..] {
            [n] if n > 0 => Ok([n, n]),
            [h, w] if h > 0 && w > 0 => Ok([h, w]),
            _ => Err(json.error(field, json.found(field), "a size above 0, or two")),
        };
        let channels = json.count("num_channels", Some(3))?;
        let patches = Patches { channels, image: size("image_size")?, patch: size("patch_size")? };
        let fits = (0..2).all(|i| patches.image[i] >= patches.patch[i]);
        let bounded = patches.image.iter().all(|&n| n <= SIDE_MAX) && channels <= SIDE_MAX;
        match fits && bounded {
            true => Ok(patches),
            false => {
                let expected = format!("from `patch_size` to {SIDE_MAX} pixels");
                Err(json.error("image_size", json.found("image_size"), expected))
            }
        }
    }

    /// Patches along each side.
    pub fn grid(&self) -> [u64; 2] {
        [self.image[0] / self.patch[0], self.image[1] / self.patch[1]]
    }

    pub fn count(&self) -> u64 {
        self.grid().iter().product()
    }

    /// The input `pixel_values` `[batch, channels, height, width]`.
    pub fn input(&self, s: &mut Scope, batch: u64) -> Value {
        let shape = [batch, self.channels, self.image[0], self.image[1]].map(Dim::Fixed);
        s.net.graph.add_input("pixel_values", TensorType::new(DType::F32, shape))
    }

    /// `[batch, patches, hidden]`: the convolution `module` with a stride of the patch.
    pub fn embed(
        &self,
        s: &mut Scope,
        module: &str,
        pixels: Value,
        (batch, hidden): (u64, u64),
        bias: Bias,
    ) -> Result<Value, Error> {
        let [h, w] = self.patch;
        let shape = [hidden, self.channels, h, w];
        let weight = s.weight(&format!("{module}.weight"), &shape, "patch_weight")?;
        let bias = match bias {
            Bias::Present => Some(s.weight(&format!("{module}.bias"), &[hidden], "patch_bias")?),
            Bias::Absent => None,
        };
        let conv = Conv {
            x: pixels,
            weight,
            bias,
            strides: Some(vec![h as i32, w as i32]),
            pad_type: PadType::Valid,
            pad: Some(vec![0; 4]),
            dilations: Some(vec![1, 1]),
            groups: 1,
        };
        let grid = s.op(conv, "patch_grid")?;
        let flat = s.reshape(grid, &[batch, hidden, self.count()], "patch_columns")?;
        s.transpose(flat, &[0, 2, 1], "patches")
    }
}

/// Pixels beyond which a side is a mistake.
const SIDE_MAX: u64 = 1 << 14;
