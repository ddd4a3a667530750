//! Another sampling rate: each new sample is a weighted sum of old ones, the weights a sinc under a
//! Kaiser window.
//!
//! Frequencies above half of the lower rate go: at 80 dB of attenuation nothing is heard of them.

use std::f64::consts::PI;

/// Zero crossings of the sinc on each side.
const CROSSINGS: f64 = 32.0;
/// Of the Kaiser window: some 80 dB.
const BETA: f64 = 8.0;
/// Places between two old samples that weights are made for; rates are mostly of a smaller ratio.
const PHASES_MAX: u64 = 4096;

pub fn resampled(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    let (from, to) = (u64::from(from.max(1)), u64::from(to.max(1)));
    let divisor = gcd(from, to);
    let n_phases = (to / divisor).min(PHASES_MAX);
    // A little below half of the lower rate, where the window's slope begins.
    let cutoff = (to as f64 / from as f64).min(1.0) * 0.95;
    let reach = (CROSSINGS / cutoff).ceil() as i64;
    let weights: Vec<Vec<f32>> =
        (0..n_phases).map(|p| phase(p as f64 / n_phases as f64, cutoff, reach)).collect();
    let n = (samples.len() as u64 * to).div_ceil(from);
    let one = |i: u64| {
        let (first, rest) = (i * from / to, i * from % to);
        let weights = &weights[(rest * n_phases / to) as usize];
        let begin = first as i64 - reach + 1;
        let taps = weights.iter().enumerate().filter_map(|(k, w)| {
            let at = usize::try_from(begin + k as i64).ok()?;
            Some(samples.get(at)? * w)
        });
        taps.sum()
    };
    (0..n).map(one).collect()
}

/// Weights of the samples around a place `part` of the way from one to the next.
fn phase(part: f64, cutoff: f64, reach: i64) -> Vec<f32> {
    let weight = |k: i64| {
        let x = k as f64 - part;
        let within = 1.0 - (x / reach as f64).powi(2);
        if within <= 0.0 {
            return 0.0;
        }
        let sinc = if x == 0.0 { 1.0 } else { (PI * cutoff * x).sin() / (PI * cutoff * x) };
        cutoff * sinc * bessel(BETA * within.sqrt()) / bessel(BETA)
    };
    let all: Vec<f64> = (1 - reach..=reach).map(weight).collect();
    // What is silent or constant stays so.
    let sum: f64 = all.iter().sum();
    all.iter().map(|w| (w / sum) as f32).collect()
}

/// The modified Bessel function of order 0.
fn bessel(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..64 {
        term *= (x / 2.0 / f64::from(k)).powi(2);
        sum += term;
    }
    sum
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hertz: f64, rate: u32, n: usize) -> Vec<f32> {
        (0..n).map(|i| (2.0 * PI * hertz * i as f64 / f64::from(rate)).sin() as f32).collect()
    }

    /// The largest difference away from the ends.
    fn furthest(a: &[f32], b: &[f32]) -> f32 {
        let inner = a.iter().zip(b).skip(300).take(a.len() - 600);
        inner.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn a_tone_stays_the_tone_it_was() {
        for (from, to, hertz) in [
            (44100, 16000, 1000.0),
            (8000, 16000, 3000.0),
            (48000, 16000, 7000.0),
            (22050, 16000, 440.0),
        ] {
            let made = resampled(&tone(hertz, from, from as usize), from, to);
            let expected = tone(hertz, to, to as usize);
            assert_eq!(made.len(), expected.len());
            let moved = furthest(&expected, &made);
            assert!(moved < 1e-3, "{hertz} Hz from {from} to {to}: {moved}");
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_goes() {
        let made = resampled(&tone(12000.0, 44100, 44100), 44100, 16000);
        let heard = furthest(&made, &vec![0.0; made.len()]);
        assert!(heard < 1e-3, "{heard}");
    }
}
