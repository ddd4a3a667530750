//! Pictures from files, as numbers a model reads.

mod resize;

use std::path::Path;

use image::{ImageReader, Limits};
use russet_formats::huggingface::usage::image::{ImageProcessor, ResizeTo};

use crate::diagnostic::{Failure, Outcome};

/// Levels from 0 to 255 by row, column and channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub levels: Vec<u8>,
}

/// Pixels along a side, and bytes, beyond which a file is refused.
const SIDE_MAX: u32 = 1 << 16;
const BYTES_MAX: u64 = 1 << 30;

impl Picture {
    /// The picture in a PNG or JPEG file, of 1 channel or 3.
    pub fn read(file: &Path, channels: usize) -> Outcome<Picture> {
        let failed = |why: String| Failure::new("bad-image", why).in_file(file);
        let io = |e: std::io::Error| failed(format!("it cannot be read: {e}"));
        let mut reader = ImageReader::open(file).map_err(io)?.with_guessed_format().map_err(io)?;
        let mut limits = Limits::default();
        limits.max_image_width = Some(SIDE_MAX);
        limits.max_image_height = Some(SIDE_MAX);
        limits.max_alloc = Some(BYTES_MAX);
        reader.limits(limits);
        let decoded = reader.decode().map_err(|e| failed(e.to_string()))?;
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        if width == 0 || height == 0 {
            return Err(failed("there is not one pixel in it".into()));
        }
        let levels = match channels {
            1 => decoded.into_luma8().into_raw(),
            3 => decoded.into_rgb8().into_raw(),
            n => return Err(failed(format!("the model wants pictures of {n} channels"))),
        };
        Ok(Picture { height, width, channels, levels })
    }

    /// `[channels, height, width]` as `p` makes them, with height and width.
    pub fn processed(self, p: &ImageProcessor) -> (Vec<f32>, [usize; 2]) {
        let mut picture = self;
        if let Some(resize) = p.resize {
            let [height, width] = picture.target(resize.to);
            picture = resize::resized(&picture, height, width, resize.filter);
        }
        if let Some([height, width]) = p.center_crop {
            picture = picture.cropped(height as usize, width as usize);
        }
        let size = [picture.height, picture.width];
        let mut all = Vec::with_capacity(picture.levels.len());
        for c in 0..picture.channels {
            let of_channel =
                |v: &Vec<f64>, default| v.get(c).or(v.first()).copied().unwrap_or(default);
            let factor = p.rescale.unwrap_or(1.0);
            let (mean, std) = match &p.normalize {
                Some([mean, std]) => (of_channel(mean, 0.0), of_channel(std, 1.0)),
                None => (0.0, 1.0),
            };
            let levels = picture.levels.iter().skip(c).step_by(picture.channels);
            all.extend(levels.map(|&l| ((f64::from(l) * factor - mean) / std) as f32));
        }
        (all, size)
    }

    /// Height and width to resize to.
    fn target(&self, to: ResizeTo) -> [usize; 2] {
        match to {
            ResizeTo::Exactly { height, width } => [height as usize, width as usize],
            ResizeTo::ShortestEdge(n) => {
                let n = n as usize;
                let long = |long: usize, short: usize| (n * long / short).min(SIDE_MAX as usize);
                match self.width <= self.height {
                    true => [long(self.height, self.width), n],
                    false => [n, long(self.width, self.height)],
                }
            }
        }
    }

    /// The middle; what is missing around a small picture is 0.
    fn cropped(&self, height: usize, width: usize) -> Picture {
        let from = |have: usize, want: usize| (have as i64 - want as i64).div_euclid(2);
        let (top, left) = (from(self.height, height), from(self.width, width));
        let mut levels = vec![0; height * width * self.channels];
        for row in 0..height {
            for column in 0..width {
                let (y, x) = (row as i64 + top, column as i64 + left);
                let inside =
                    (0..self.height as i64).contains(&y) && (0..self.width as i64).contains(&x);
                if inside {
                    let at = (y as usize * self.width + x as usize) * self.channels;
                    let to = (row * width + column) * self.channels;
                    levels[to..to + self.channels]
                        .copy_from_slice(&self.levels[at..at + self.channels]);
                }
            }
        }
        Picture { height, width, channels: self.channels, levels }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use russet_exec::Array;
    use russet_formats::huggingface::usage::image::Images;

    use super::*;

    /// Processors of transformers on one picture; made by `bench/golden_processors.py`.
    #[test]
    fn numbers_are_those_of_the_processors_themselves() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/processors");
        let golden = russet_formats::arrays::read(&folder.join("images.npz")).expect("values");
        assert!(golden.len() >= 5, "{}", golden.len());
        for (name, tensor) in golden {
            let expected = Array::from_tensor(&tensor).expect("numbers");
            let size = [expected.shape[1] as u64, expected.shape[2] as u64];
            let settings: PathBuf = folder.join(&name);
            let processor = Images::read(&settings, size).expect("settings").processor;
            let processor = processor.expect("a processor");
            let picture = Picture::read(&folder.join("picture.png"), 3).expect("a picture");
            let (made, [height, width]) = picture.processed(&processor);
            assert_eq!([height as u64, width as u64], size, "{name}");
            // One level of 255, as far apart as it is after the smallest deviation.
            let level = 1.01 / 255.0 / 0.22;
            let expected = expected.as_f32().expect("floats");
            let far = made.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let (mut worst, mut n_off) = (0f32, 0);
            for d in far {
                worst = worst.max(d);
                n_off += usize::from(d > 1e-4);
            }
            assert!(worst < level, "{name}: {worst}");
            assert!(n_off * 100 <= made.len(), "{name}: {n_off} of {} differ", made.len());
        }
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        for bytes in [&b""[..], b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", &[7; 999]] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), bytes).expect("written");
            assert!(Picture::read(file.path(), 3).is_err());
        }
    }
}
