//! What a model hears of a sound.

use russet_exec::Array;
use russet_formats::huggingface::usage::audio::Features;

use super::spectrum::{bands, hann, mel_filters, powers};

/// The input of a model, without its batch: `input_values` `[samples]` or `input_features`.
pub fn features(of: &Features, samples: &[f32]) -> Array {
    match *of {
        Features::Wave { normalize, .. } => {
            let values = if normalize { normalized(samples) } else { samples.to_vec() };
            Array::f32(vec![values.len()], values)
        }
        Features::WhisperMel { rate, n_fft, hop, n_mels, frames } => {
            whisper(samples, rate, [n_fft, hop, n_mels, frames].map(|n| n as usize))
        }
        Features::NormedMel { rate, n_fft, window, hop, n_mels, preemphasis } => {
            let sizes = [n_fft, window, hop, n_mels].map(|n| n as usize);
            normed(samples, rate, sizes, preemphasis)
        }
    }
}

/// How long the model has to be for so many samples: what `--seq` says.
pub fn length(of: &Features, n_samples: usize) -> Option<u64> {
    match of {
        Features::Wave { .. } => Some(n_samples as u64),
        Features::NormedMel { hop, .. } => Some(n_samples as u64 / u64::from(*hop)),
        Features::WhisperMel { .. } => None,
    }
}

/// Of mean 0 and variance 1.
fn normalized(samples: &[f32]) -> Vec<f32> {
    let n = samples.len().max(1) as f64;
    let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let variance = samples.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + 1e-7).sqrt();
    samples.iter().map(|&x| ((f64::from(x) - mean) * scale) as f32).collect()
}

/// `[mels, frames]`, silence behind the sound. Frames mirror the sound at its ends.
fn whisper(samples: &[f32], rate: u32, [n_fft, hop, n_mels, frames]: [usize; 4]) -> Array {
    let n = frames * hop;
    let mut sound: Vec<f64> = samples.iter().take(n).map(|&x| x.into()).collect();
    sound.resize(n, 0.0);
    let half = n_fft / 2;
    let mirrored = |i: i64| {
        let last = n as i64 - 1;
        let i = i.abs();
        let i = if i > last { 2 * last - i } else { i };
        usize::try_from(i).ok().and_then(|i| sound.get(i)).copied().unwrap_or(0.0)
    };
    let padded: Vec<f64> = (-(half as i64)..(n + half) as i64).map(mirrored).collect();
    let filters = mel_filters(rate, n_fft, n_mels);
    let powers = powers(&padded, &hann(n_fft, n_fft), n_fft, hop);
    let mut all = vec![0f32; n_mels * frames];
    // The last frame, centred at the end, is not among those a model reads.
    for (t, power) in powers.iter().take(frames).enumerate() {
        for (m, band) in bands(power, &filters).into_iter().enumerate() {
            all[m * frames + t] = band.max(1e-10).log10() as f32;
        }
    }
    let loudest = all.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    all.iter_mut().for_each(|x| *x = (x.max(loudest - 8.0) + 4.0) / 4.0);
    Array::f32(vec![n_mels, frames], all)
}

/// `[frames, mels]`, each mel of mean 0 and variance 1 over time.
fn normed(
    samples: &[f32],
    rate: u32,
    [n_fft, window, hop, n_mels]: [usize; 4],
    preemphasis: f32,
) -> Array {
    let half = n_fft / 2;
    let mut padded = vec![0.0; half];
    let mut before = 0.0;
    for (i, &x) in samples.iter().enumerate() {
        let x = f64::from(x);
        padded.push(if i == 0 { x } else { x - f64::from(preemphasis) * before });
        before = x;
    }
    padded.resize(samples.len() + 2 * half, 0.0);
    let filters = mel_filters(rate, n_fft, n_mels);
    let window = hann(window, window.saturating_sub(1).max(1));
    let frames = samples.len() / hop;
    let powers = powers(&padded, &window, n_fft, hop);
    // So much is added that silence has a logarithm.
    let least = 2f64.powi(-24);
    let mut all: Vec<Vec<f64>> = Vec::new();
    for power in powers.iter().take(frames) {
        all.push(bands(power, &filters).into_iter().map(|b| (b + least).ln()).collect());
    }
    let n = all.len();
    for m in 0..n_mels {
        let mean = all.iter().map(|row| row[m]).sum::<f64>() / n.max(1) as f64;
        let squares = all.iter().map(|row| (row[m] - mean).powi(2)).sum::<f64>();
        let deviation = (squares / n.saturating_sub(1).max(1) as f64).sqrt();
        all.iter_mut().for_each(|row| row[m] = (row[m] - mean) / (deviation + 1e-5));
    }
    let flat = all.into_iter().flatten().map(|x| x as f32).collect();
    Array::f32(vec![n, n_mels], flat)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Sound;
    use super::*;

    /// Extractors of transformers on one sound; made by `bench/golden_processors.py`.
    #[test]
    fn features_are_those_of_the_extractors_themselves() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/processors");
        let golden = russet_formats::arrays::read(&folder.join("sounds.npz")).expect("values");
        let rate = 16000;
        let whisper =
            |n_mels| Features::WhisperMel { rate, n_fft: 400, hop: 160, n_mels, frames: 100 };
        let parakeet = Features::NormedMel {
            rate,
            n_fft: 512,
            window: 400,
            hop: 160,
            n_mels: 80,
            preemphasis: 0.97,
        };
        let wave = Features::Wave { rate, normalize: true };
        let all = [
            ("whisper_80", whisper(80), 1e-4),
            ("whisper_128", whisper(128), 1e-4),
            ("wave", wave, 1e-4),
            ("parakeet", parakeet, 2e-3),
        ];
        assert_eq!(golden.len(), all.len());
        let sound = Sound::read(&folder.join("sound.wav")).expect("a sound");
        assert_eq!(sound.rate, rate);
        for (name, of, far) in all {
            let (_, tensor) = golden.iter().find(|g| g.0 == name).expect("a golden value");
            let expected = Array::from_tensor(tensor).expect("numbers");
            let made = features(&of, &sound.samples);
            assert_eq!(made.shape, expected.shape, "{name}");
            let pairs =
                made.as_f32().expect("floats").iter().zip(expected.as_f32().expect("floats"));
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(worst < far, "{name}: {worst}");
        }
    }
}
