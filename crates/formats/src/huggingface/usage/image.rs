//! How pictures become `pixel_values`, as `preprocessor_config.json` says it under its names over time.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::json::Json;
use crate::Error;

/// What a program that reads pictures takes and gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Images {
    /// None when the folder does not say, or the program reads texts only.
    pub processor: Option<ImageProcessor>,
    /// Names of the classes that `logits` are of; empty when it does not classify.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Of a program with a function `text`.
    #[serde(default)]
    pub text: Option<TextSide>,
    /// How vectors of pictures and texts are compared.
    #[serde(default)]
    pub similarity: Option<Similarity>,
}

/// How texts become `input_ids` of the function `text`, padded on the right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextSide {
    pub pad_token_id: u64,
    /// What the code around the tokenizer makes of texts, which the tokenizer's file does not say.
    pub lower_case: bool,
    pub no_punctuation: bool,
}

/// What a cosine is multiplied by, and what is added to it, before it becomes a probability: a
/// sigmoid of each where there is a bias, else a softmax over texts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Similarity {
    pub scale: f32,
    pub bias: Option<f32>,
}

/// Steps from a picture to numbers, in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageProcessor {
    pub resize: Option<Resize>,
    /// Height and width that are cut out of the middle.
    pub center_crop: Option<[u64; 2]>,
    /// What levels 0..255 are multiplied by.
    pub rescale: Option<f64>,
    /// Mean and standard deviation by channel.
    pub normalize: Option<[Vec<f64>; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    pub to: ResizeTo,
    pub filter: Filter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeTo {
    Exactly {
        height: u64,
        width: u64,
    },
    /// The shorter edge to this, the other in proportion.
    ShortestEdge(u64),
}

/// Resampling filters, those of PIL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    Nearest,
    Box,
    Bilinear,
    Hamming,
    Bicubic,
    Lanczos,
}

/// PIL's numbers for its filters.
const FILTERS: [(u64, Filter); 6] = [
    (0, Filter::Nearest),
    (1, Filter::Lanczos),
    (2, Filter::Bilinear),
    (3, Filter::Bicubic),
    (4, Filter::Box),
    (5, Filter::Hamming),
];

/// What a processor does about which the file says nothing.
struct Usual {
    /// What names of processors begin with.
    names: &'static [&'static str],
    filter: Filter,
    size: u64,
    /// Does a size of one number mean the shorter edge?
    by_edge: bool,
    crop: Option<u64>,
    mean: [f64; 3],
    std: [f64; 3],
}

const HALF: [f64; 3] = [0.5; 3];
const CLIP_MEAN: [f64; 3] = [0.48145466, 0.4578275, 0.40821073];
const CLIP_STD: [f64; 3] = [0.26862954, 0.26130258, 0.27577711];

const VIT: Usual = Usual {
    names: &["ViT"],
    filter: Filter::Bilinear,
    size: 224,
    by_edge: false,
    crop: None,
    mean: HALF,
    std: HALF,
};
const USUAL: [Usual; 4] = [
    Usual {
        names: &["CLIP", "ChineseCLIP", "Bit"],
        filter: Filter::Bicubic,
        size: 224,
        by_edge: true,
        crop: Some(224),
        mean: CLIP_MEAN,
        std: CLIP_STD,
    },
    Usual { names: &["Siglip"], filter: Filter::Bicubic, ..VIT },
    Usual { names: &["DeiT"], filter: Filter::Bicubic, size: 256, crop: Some(224), ..VIT },
    VIT,
];

impl Images {
    /// No pictures.
    pub fn none() -> Images {
        Images { processor: None, labels: Vec::new(), text: None, similarity: None }
    }

    /// By `preprocessor_config.json` of `folder`; what it makes has to be of the size `image`.
    pub fn read(folder: &Path, image: [u64; 2]) -> Result<Images, Error> {
        let file = folder.join("preprocessor_config.json");
        if !file.is_file() {
            return Ok(Images::none());
        }
        let json = Json::read(&file)?;
        // Newer folders keep the parts of a processor in one file.
        let json = json.section("image_processor")?.unwrap_or(json);
        let processor = ImageProcessor::parse(&json)?;
        if let Some(size) = processor.size().filter(|&size| size != image) {
            let expected = format!("{} x {}, as the model has it", image[0], image[1]);
            let field = if processor.center_crop.is_some() { "crop_size" } else { "size" };
            return Err(json.error(field, format!("{} x {}", size[0], size[1]), expected));
        }
        Ok(Images { processor: Some(processor), ..Images::none() })
    }
}

impl ImageProcessor {
    pub fn parse(json: &Json) -> Result<ImageProcessor, Error> {
        let name = json.first(&["image_processor_type", "feature_extractor_type"]);
        let name = json.text(name).unwrap_or_default();
        let known = USUAL.iter().find(|u| u.names.iter().any(|n| name.starts_with(n)));
        let usual = known.unwrap_or(&VIT);
        let crops = json.flag("do_center_crop", usual.crop.is_some())?;
        let normalizes = json.flag("do_normalize", true)?;
        let rescales = json.flag("do_rescale", true)?;
        let factor = json.positive("rescale_factor", Some(1.0 / 255.0))?;
        Ok(ImageProcessor {
            resize: match json.flag("do_resize", true)? {
                true => Some(Resize { to: size(json, usual)?, filter: filter(json, usual)? }),
                false => None,
            },
            center_crop: match crops {
                true => Some(crop(json, usual)?),
                false => None,
            },
            rescale: rescales.then_some(factor),
            normalize: match normalizes {
                true => Some([
                    per_channel(json, "image_mean", &usual.mean)?,
                    per_channel(json, "image_std", &usual.std)?,
                ]),
                false => None,
            },
        })
    }

    /// Height and width of what it makes, if that does not depend on the picture.
    pub fn size(&self) -> Option<[u64; 2]> {
        match (self.center_crop, self.resize?.to) {
            (Some(size), _) => Some(size),
            (None, ResizeTo::Exactly { height, width }) => Some([height, width]),
            (None, ResizeTo::ShortestEdge(_)) => None,
        }
    }
}

/// Sides beyond which a size is a mistake.
const SIDE_MAX: u64 = 1 << 14;

fn side(json: &Json, field: &str) -> Result<u64, Error> {
    match json.count(field, None)? {
        n if n <= SIDE_MAX => Ok(n),
        n => Err(json.error(field, n.to_string(), format!("at most {SIDE_MAX} pixels"))),
    }
}

fn size(json: &Json, usual: &Usual) -> Result<ResizeTo, Error> {
    let of = |n: u64| match usual.by_edge {
        true => ResizeTo::ShortestEdge(n),
        false => ResizeTo::Exactly { height: n, width: n },
    };
    match json.get("size") {
        None => Ok(of(usual.size)),
        Some(serde_json::Value::Number(_)) => Ok(of(side(json, "size")?)),
        Some(serde_json::Value::Array(_)) => match json.numbers("size")?[..] {
            // Oldest of all: width, then height.
            [width, height] if (1..=SIDE_MAX).contains(&width.min(height)) => {
                Ok(ResizeTo::Exactly { height: height.min(SIDE_MAX), width: width.min(SIDE_MAX) })
            }
            _ => Err(json.error("size", json.found("size"), "one number or two")),
        },
        Some(_) => match json.section("size")? {
            Some(s) if s.has("shortest_edge") && !s.has("longest_edge") => {
                Ok(ResizeTo::ShortestEdge(side(&s, "shortest_edge")?))
            }
            Some(s) if s.has("height") && s.has("width") => {
                Ok(ResizeTo::Exactly { height: side(&s, "height")?, width: side(&s, "width")? })
            }
            _ => Err(json.error("size", json.found("size"), "height and width or shortest_edge")),
        },
    }
}

fn crop(json: &Json, usual: &Usual) -> Result<[u64; 2], Error> {
    match json.get("crop_size") {
        None => Ok([usual.crop.unwrap_or(usual.size); 2]),
        Some(serde_json::Value::Object(_)) => {
            let s = json.section("crop_size")?.unwrap_or_else(|| json.clone());
            Ok([side(&s, "height")?, side(&s, "width")?])
        }
        Some(_) => Ok([side(json, "crop_size")?; 2]),
    }
}

fn filter(json: &Json, usual: &Usual) -> Result<Filter, Error> {
    if !json.has("resample") {
        return Ok(usual.filter);
    }
    let n = json.number("resample", None)?;
    let known = FILTERS.iter().find(|f| f.0 == n);
    known.map(|f| f.1).ok_or_else(|| json.error("resample", n.to_string(), "from 0 to 5"))
}

fn per_channel(json: &Json, field: &str, usual: &[f64; 3]) -> Result<Vec<f64>, Error> {
    let given = json.floats(field)?.unwrap_or_else(|| usual.to_vec());
    let is_std = field == "image_std";
    match given.iter().all(|x| x.is_finite() && !(is_std && *x == 0.0)) && !given.is_empty() {
        true => Ok(given),
        false => Err(json.error(field, json.found(field), "numbers, by channel")),
    }
}
