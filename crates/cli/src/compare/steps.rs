//! How an error grows over steps of a model with states.

use russet_exec::Session;
use russet_ir::{Graph, Type};
use serde_json::{Value, json};

use super::apart::Apart;
use crate::compile::finite;
use crate::diagnostic::{Failure, Outcome};
use crate::inputs::Inputs;
use crate::show::table;

/// The distance of the outputs after each step, worst of all outputs.
pub struct Growth(pub Vec<f64>);

/// One side: a session and its states.
pub struct Side {
    session: Session,
    states: Inputs,
}

impl Side {
    pub fn new(session: Session) -> Side {
        Side { session, states: Inputs::new() }
    }
}

/// Runs both sides step by step, each on its own states; `inputs` gives those of a step.
pub fn growth(
    (a, b): (&mut Side, &mut Side),
    n_steps: usize,
    mut inputs: impl FnMut(usize) -> Outcome<Inputs>,
) -> Outcome<Growth> {
    let has_state = |g: &Graph| g.inputs().iter().any(|&v| matches!(g.ty(v), Type::State(_)));
    if !has_state(a.session.graph()) || !has_state(b.session.graph()) {
        return Err(Failure::usage("--steps is for models with states, and this one has none"));
    }
    let mut all = Vec::new();
    for step in 0..n_steps {
        let x = inputs(step)?;
        let made = a.session.run_stateful(&x, &mut a.states)?;
        let other = b.session.run_stateful(&x, &mut b.states)?;
        let apart = made.iter().filter_map(|(name, x)| {
            let mut apart = Apart::default();
            apart.add(x, other.get(name)?);
            Some(apart.relative_l2())
        });
        all.push(apart.fold(0.0, f64::max));
    }
    Ok(Growth(all))
}

impl Growth {
    /// Steps that are shown: powers of two, and the last.
    fn shown(&self) -> impl Iterator<Item = (usize, f64)> {
        let last = self.0.len();
        let all = self.0.iter().enumerate().map(|(i, &e)| (i + 1, e));
        all.filter(move |(n, _)| n.is_power_of_two() || *n == last)
    }

    /// The exponent `p` of a growth like `steps^p`, over the steps that differ.
    pub fn exponent(&self) -> Option<f64> {
        let logs: Vec<(f64, f64)> = self
            .shown()
            .filter(|(_, e)| e.is_finite() && *e > 0.0)
            .map(|(n, e)| ((n as f64).ln(), e.ln()))
            .collect();
        let n = logs.len() as f64;
        let (mx, my) = logs.iter().fold((0.0, 0.0), |(x, y), l| (x + l.0 / n, y + l.1 / n));
        let spread: f64 = logs.iter().map(|l| (l.0 - mx).powi(2)).sum();
        let both: f64 = logs.iter().map(|l| (l.0 - mx) * (l.1 - my)).sum();
        (logs.len() > 2).then(|| both / spread)
    }

    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> =
            self.shown().map(|(n, e)| vec![n.to_string(), format!("{e:.3e}")]).collect();
        let grows = self.exponent().map_or(String::new(), |p| format!(", like steps^{p:.2}"));
        let broken = self.0.iter().position(|e| !e.is_finite());
        let broken = broken.map_or(String::new(), |i| format!("; not finite from step {}", i + 1));
        let head = table(&["step", "relative L2"], &rows);
        format!("\nerror over {} steps{grows}{broken}\n{head}", self.0.len())
    }

    pub fn json(&self) -> Value {
        json!({
            "relative_l2": self.0.iter().map(|&e| finite(e)).collect::<Vec<_>>(),
            "exponent": self.exponent(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_has_an_exponent() {
        let linear = Growth((1..=64).map(|n| 1e-3 * f64::from(n)).collect());
        assert!((linear.exponent().unwrap() - 1.0).abs() < 1e-9);
        let root = Growth((1..=100).map(|n| 1e-3 * f64::from(n).sqrt()).collect());
        assert!((root.exponent().unwrap() - 0.5).abs() < 1e-9);
        assert!(Growth(vec![0.0, 0.0]).exponent().is_none());
        assert!(Growth(vec![1.0, f64::INFINITY]).text().contains("not finite from step 2"));
    }
}
