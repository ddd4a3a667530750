//! How far two tensors are apart, added up over runs.

use russet_exec::{Array, Numbers};
use serde_json::{Value, json};

use crate::compile::finite;

/// What is known of the difference between a reference and another side.
#[derive(Debug, Clone, Default)]
pub struct Apart {
    difference: f64,
    size_a: f64,
    size_b: f64,
    dot: f64,
    pub max: f64,
    pub n: u64,
    pub n_infinite: u64,
    pub n_nan: u64,
    /// Numbers that are infinite or NaN on the other side only.
    pub n_broken: u64,
    /// The largest magnitude of the reference.
    pub largest: f64,
    /// Shapes or kinds that differ.
    pub differs_in_kind: bool,
}

impl Apart {
    /// Adds one more pair.
    pub fn add(&mut self, a: &Array, b: &Array) {
        if a.shape != b.shape || std::mem::discriminant(&a.data) != std::mem::discriminant(&b.data)
        {
            self.differs_in_kind = true;
            return;
        }
        numbers(a).zip(numbers(b)).for_each(|(x, y)| self.add_pair(x, y));
    }

    fn add_pair(&mut self, x: f64, y: f64) {
        self.n += 1;
        self.n_infinite += u64::from(y.is_infinite());
        self.n_nan += u64::from(y.is_nan());
        self.n_broken += u64::from(x.is_finite() && !y.is_finite());
        self.largest = self.largest.max(x.abs());
        if x == y || x.is_nan() && y.is_nan() {
            if x.is_finite() {
                let square = x * x;
                (self.size_a, self.size_b) = (self.size_a + square, self.size_b + square);
                self.dot += square;
            }
            return;
        }
        let d = (x - y).abs();
        self.difference += d * d;
        self.max = if d.is_nan() { f64::INFINITY } else { self.max.max(d) };
        (self.size_a, self.size_b) = (self.size_a + x * x, self.size_b + y * y);
        self.dot += x * y;
    }

    /// The norm of the difference over that of the reference.
    pub fn relative_l2(&self) -> f64 {
        match self.max {
            _ if self.differs_in_kind || self.difference.is_nan() => f64::INFINITY,
            0.0 => 0.0,
            _ => (self.difference / self.size_a.max(f64::MIN_POSITIVE)).sqrt(),
        }
    }

    pub fn cosine(&self) -> f64 {
        match self.size_a.sqrt() * self.size_b.sqrt() {
            _ if self.differs_in_kind => f64::NAN,
            0.0 => f64::from(u8::from(self.size_a == self.size_b)),
            sizes => self.dot / sizes,
        }
    }

    /// Signal to noise in decibels; infinite where nothing differs.
    pub fn snr_db(&self) -> f64 {
        -20.0 * self.relative_l2().log10()
    }

    pub fn share_infinite(&self) -> f64 {
        self.n_infinite as f64 / self.n.max(1) as f64
    }

    pub fn share_nan(&self) -> f64 {
        self.n_nan as f64 / self.n.max(1) as f64
    }

    /// Is a number lost, or the direction?
    pub fn is_broken(&self) -> bool {
        let cosine = self.cosine();
        self.n_broken > 0 || cosine.is_nan() || cosine < BROKEN_COSINE
    }

    pub fn json(&self) -> Value {
        json!({
            "relative_l2": finite(self.relative_l2()), "cosine": finite(self.cosine()),
            "max": finite(self.max), "snr_db": finite(self.snr_db()),
            "infinite": self.share_infinite(), "nan": self.share_nan(),
            "broken_elements": self.n_broken, "largest": finite(self.largest),
        })
    }
}

/// Cosine below which a tensor counts as broken.
const BROKEN_COSINE: f64 = 0.99;

/// A magnitude for people.
pub fn shown(x: f64) -> String {
    if x < 1e6 { format!("{x:.4}") } else { format!("{x:.3e}") }
}

/// The numbers of an array, whatever they are.
pub fn numbers(a: &Array) -> Box<dyn Iterator<Item = f64> + '_> {
    match &a.data {
        Numbers::F32(x) => Box::new(x.iter().map(|&x| x.into())),
        Numbers::I32(x) => Box::new(x.iter().map(|&i| i.into())),
        Numbers::Bool(x) => Box::new(x.iter().map(|&b| f64::from(u8::from(b)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(a: &[f32], b: &[f32]) -> Apart {
        let mut apart = Apart::default();
        apart.add(&Array::f32(vec![a.len()], a.to_vec()), &Array::f32(vec![b.len()], b.to_vec()));
        apart
    }

    #[test]
    fn measures_of_a_small_difference() {
        let d = apart(&[3.0, 4.0], &[3.0, 4.5]);
        assert!((d.relative_l2() - 0.1).abs() < 1e-12 && d.max == 0.5 && d.largest == 4.0);
        assert!((d.snr_db() - 20.0).abs() < 1e-9);
        assert!((d.cosine() - 27.0 / (5.0 * 29.25f64.sqrt())).abs() < 1e-12);
        let mut both = d.clone();
        both.add(&Array::f32(vec![1], vec![0.0]), &Array::f32(vec![1], vec![0.0]));
        assert_eq!((both.n, both.relative_l2()), (3, d.relative_l2()));
    }

    #[test]
    fn what_is_lost_counts_as_broken() {
        let d = apart(&[1.0, 2.0, 3.0, 4.0], &[1.0, f32::INFINITY, f32::NAN, 4.0]);
        assert_eq!((d.share_infinite(), d.share_nan(), d.n_broken), (0.25, 0.25, 2));
        assert!(d.is_broken() && d.relative_l2() == f64::INFINITY);
        assert!(!apart(&[f32::INFINITY, 1.0], &[f32::INFINITY, 1.0]).is_broken());
        assert!(apart(&[1.0], &[1.0, 2.0]).is_broken());
    }
}
