//! Sound from files: WAV and FLAC, all channels as one.

pub mod features;
mod resample;
mod spectrum;

use std::path::Path;

use crate::diagnostic::{Failure, Outcome};

/// Samples from -1 to 1.
pub struct Sound {
    pub rate: u32,
    pub samples: Vec<f32>,
}

/// Samples beyond which a file is refused: twelve hours at 16 kHz.
const SAMPLES_MAX: usize = 12 * 3600 * 16_000;

impl Sound {
    pub fn read(file: &Path) -> Outcome<Sound> {
        let failed = |why: String| Failure::new("bad-audio", why).in_file(file);
        let is_flac = {
            let bytes = russet_formats::mapped::open(file)?;
            bytes.starts_with(b"fLaC")
        };
        let sound = if is_flac { flac(file) } else { wav(file) }.map_err(failed)?;
        match (sound.samples.is_empty(), sound.rate) {
            (true, _) => Err(failed("there is not one sample in it".into())),
            (_, 0) => Err(failed("it has no sampling rate".into())),
            _ => Ok(sound),
        }
    }

    /// The same at another rate.
    pub fn at(self, rate: u32) -> Sound {
        let samples = match self.rate == rate {
            true => self.samples,
            false => resample::resampled(&self.samples, self.rate, rate),
        };
        Sound { rate, samples }
    }
}

fn wav(file: &Path) -> Result<Sound, String> {
    let mut reader = hound::WavReader::open(file)
        .map_err(|e| format!("it is no WAV file that can be read ({e}), nor a FLAC file"))?;
    let spec = reader.spec();
    let said = |e: hound::Error| e.to_string();
    let samples = match spec.sample_format {
        hound::SampleFormat::Float => {
            mixed(reader.samples::<f32>().map(|s| s.map_err(said)), spec.channels.into())
        }
        hound::SampleFormat::Int => {
            let full = full_scale(spec.bits_per_sample.into());
            let samples = reader.samples::<i32>();
            mixed(samples.map(|s| Ok(s.map_err(said)? as f32 / full)), spec.channels.into())
        }
    };
    Ok(Sound { rate: spec.sample_rate, samples: samples? })
}

fn flac(file: &Path) -> Result<Sound, String> {
    let said = |e: claxon::Error| e.to_string();
    let mut reader = claxon::FlacReader::open(file).map_err(said)?;
    let info = reader.streaminfo();
    let full = full_scale(info.bits_per_sample);
    let samples = reader.samples().map(|s| Ok(s.map_err(said)? as f32 / full));
    Ok(Sound { rate: info.sample_rate, samples: mixed(samples, info.channels as usize)? })
}

/// One more than the largest number of so many bits.
fn full_scale(bits: u32) -> f32 {
    2f32.powi(bits.clamp(1, 32) as i32 - 1)
}

/// The mean over channels of each moment.
fn mixed(
    samples: impl Iterator<Item = Result<f32, String>>,
    n_channels: usize,
) -> Result<Vec<f32>, String> {
    let n_channels = n_channels.max(1);
    let (mut all, mut sum, mut n) = (Vec::new(), 0.0, 0);
    for sample in samples {
        let sample = sample?;
        sum += if sample.is_finite() { sample } else { 0.0 };
        n += 1;
        if n == n_channels {
            if all.len() == SAMPLES_MAX {
                return Err(format!("it has more than {SAMPLES_MAX} samples"));
            }
            all.push(sum / n_channels as f32);
            (sum, n) = (0.0, 0);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_become_one() {
        let file = tempfile::Builder::new().suffix(".wav").tempfile().expect("a file");
        let spec = hound::WavSpec {
            channels: 2,
            sample_rate: 8000,
            bits_per_sample: 16,
            sample_format: hound::SampleFormat::Int,
        };
        let mut writer = hound::WavWriter::create(file.path(), spec).expect("a writer");
        for sample in [16384i16, 0, -32768, -32768] {
            writer.write_sample(sample).expect("a sample");
        }
        writer.finalize().expect("a file");
        let sound = Sound::read(file.path()).expect("a sound");
        assert_eq!((sound.rate, sound.samples), (8000, vec![0.25, -1.0]));
    }

    #[test]
    fn what_is_no_sound_is_refused() {
        for bytes in [&b""[..], b"RIFF", b"fLaC", b"fLaC\0\0\0\x22", &[0xff; 4096]] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), bytes).expect("written");
            assert!(Sound::read(file.path()).is_err());
        }
    }
}
