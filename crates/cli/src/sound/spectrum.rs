//! How loud each frequency is, and each band of the mel scale.

use realfft::RealFftPlanner;

/// The power `|X|^2` of `n_fft / 2 + 1` frequencies, frame by frame. Frame `i` is centred at sample
/// `i * hop` of `padded`, which has half a frame before the first; `window` may be shorter than a frame.
pub fn powers(padded: &[f64], window: &[f64], n_fft: usize, hop: usize) -> Vec<Vec<f64>> {
    let transform = RealFftPlanner::<f64>::new().plan_fft_forward(n_fft);
    let (mut frame, mut bins) = (transform.make_input_vec(), transform.make_output_vec());
    let mut scratch = transform.make_scratch_vec();
    let n_frames = if padded.len() < n_fft { 0 } else { (padded.len() - n_fft) / hop + 1 };
    let before = (n_fft - window.len()) / 2;
    let one = |i: usize| {
        frame.fill(0.0);
        let samples = &padded[i * hop + before..];
        for ((x, s), w) in frame[before..].iter_mut().zip(samples).zip(window) {
            *x = s * w;
        }
        transform.process_with_scratch(&mut frame, &mut bins, &mut scratch).expect("fixed lengths");
        bins.iter().map(|c| c.norm_sqr()).collect()
    };
    (0..n_frames).map(one).collect()
}

/// A raised cosine of `n` samples that repeats after `period`.
pub fn hann(n: usize, period: usize) -> Vec<f64> {
    let turn = 2.0 * std::f64::consts::PI / period as f64;
    (0..n).map(|i| 0.5 - 0.5 * (turn * i as f64).cos()).collect()
}

/// Triangles on the mel scale of Slaney's toolbox, each of area 1: `[mels][frequencies]`.
pub fn mel_filters(rate: u32, n_fft: usize, n_mels: usize) -> Vec<Vec<f64>> {
    let top = f64::from(rate) / 2.0;
    let n_bins = n_fft / 2 + 1;
    let last = to_mel(top);
    let edge = |i: usize| to_hertz(last * i as f64 / (n_mels + 1) as f64);
    let hertz = |k: usize| top * k as f64 / (n_bins - 1) as f64;
    let filter = |m: usize| {
        let (low, centre, high) = (edge(m), edge(m + 1), edge(m + 2));
        let height = 2.0 / (high - low);
        let at = |k: usize| {
            let (up, down) =
                ((hertz(k) - low) / (centre - low), (high - hertz(k)) / (high - centre));
            up.min(down).max(0.0) * height
        };
        (0..n_bins).map(at).collect()
    };
    (0..n_mels).map(filter).collect()
}

/// Linear below 1 kHz, logarithmic above.
fn to_mel(hertz: f64) -> f64 {
    match hertz {
        h if h < 1000.0 => h * 3.0 / 200.0,
        h => 15.0 + (h / 1000.0).ln() * 27.0 / 6.4f64.ln(),
    }
}

fn to_hertz(mel: f64) -> f64 {
    match mel {
        m if m < 15.0 => m * 200.0 / 3.0,
        m => 1000.0 * ((m - 15.0) * 6.4f64.ln() / 27.0).exp(),
    }
}

/// The power in each band.
pub fn bands(power: &[f64], filters: &[Vec<f64>]) -> Vec<f64> {
    filters.iter().map(|f| f.iter().zip(power).map(|(f, p)| f * p).sum()).collect()
}
