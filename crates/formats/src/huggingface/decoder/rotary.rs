//! Frequencies of rotary positions, in the variants that configs name.
//!
//! Two forms are read: `rope_theta` beside `rope_scaling`, and `rope_parameters`, which holds both
//! (and one such object for each kind of layer in models that have several).

use std::f64::consts::PI;

use super::super::json::Json;
use super::super::usage::Rotary;
use crate::Error;

/// What a table is for.
pub struct Table {
    /// Columns that are rotated: twice as many as there are frequencies.
    pub n_columns: u64,
    /// Tokens the model was made for.
    pub length_max: u64,
    /// Tokens there will be.
    pub context: u64,
}

/// The share of a head's columns that is rotated.
pub fn partial(json: &Json) -> Result<f64, Error> {
    let parameters = json.section("rope_parameters")?;
    let within = parameters.filter(|p| p.has("partial_rotary_factor"));
    let json = within.as_ref().unwrap_or(json);
    let field = json.first(&["partial_rotary_factor", "rotary_pct"]);
    match json.positive(field, Some(1.0))? {
        share if share <= 1.0 => Ok(share),
        share => Err(json.error(field, share.to_string(), "at most 1")),
    }
}

/// The table of layers of `kind`, or of all layers.
pub fn read(json: &Json, kind: Option<&str>, table: &Table) -> Result<Rotary, Error> {
    if let Some(all) = json.section("rope_parameters")? {
        let own = kind.map(|k| all.section(k)).transpose()?.flatten();
        let own = own.unwrap_or(all);
        let theta = own.positive("rope_theta", Some(theta(json)?))?;
        return scaled(json, &own, theta, table);
    }
    let theta = theta(json)?;
    match json.section("rope_scaling")? {
        Some(scaling) => scaled(json, &scaling, theta, table),
        None => Ok(plain(theta, table)),
    }
}

fn theta(json: &Json) -> Result<f64, Error> {
    json.positive("rope_theta", Some(10000.0))
}

/// One frequency for each pair of columns, falling from 1 to nearly `1 / theta`.
pub fn plain(theta: f64, table: &Table) -> Rotary {
    let frequencies = exponents(table).map(|e| theta.powf(-e) as f32).collect();
    Rotary { frequencies, scale: 1.0 }
}

fn exponents(table: &Table) -> impl Iterator<Item = f64> {
    let n = table.n_columns;
    (0..n / 2).map(move |i| (2 * i) as f64 / n as f64)
}

/// The frequencies that the scaling `s` makes of those of `theta`. `json` is the whole config.
fn scaled(json: &Json, s: &Json, theta: f64, table: &Table) -> Result<Rotary, Error> {
    let field = s.first(&["rope_type", "type"]);
    let base = || exponents(table).map(|e| theta.powf(-e));
    let made = |frequencies: Vec<f64>, scale: f64| Rotary {
        frequencies: frequencies.into_iter().map(|f| f as f32).collect(),
        scale: scale as f32,
    };
    match s.text(field).unwrap_or("default") {
        "default" => Ok(plain(theta, table)),
        "linear" => {
            let factor = s.positive("factor", None)?;
            Ok(made(base().map(|f| f / factor).collect(), 1.0))
        }
        // Up to the length the model was made for, nothing changes.
        "dynamic" if table.context <= table.length_max => Ok(plain(theta, table)),
        "dynamic" => {
            let (factor, n) = (s.positive("factor", None)?, table.n_columns as f64);
            let ratio = factor * table.context as f64 / table.length_max as f64 - (factor - 1.0);
            Ok(plain(theta * ratio.powf(n / (n - 2.0)), table))
        }
        "llama3" => llama3(s, base().collect()).map(|f| made(f, 1.0)),
        "yarn" => yarn(s, theta, table).map(|(f, scale)| made(f, scale)),
        "longrope" | "su" => long(json, s, theta, table).map(|(f, scale)| made(f, scale)),
        found => {
            let expected = "one of default, linear, dynamic, llama3, yarn, longrope";
            Err(s.error(field, format!("{found:?}"), expected))
        }
    }
}

/// Slow rotations are slowed further, fast ones stay, those between are mixed.
fn llama3(s: &Json, base: Vec<f64>) -> Result<Vec<f64>, Error> {
    let factor = s.positive("factor", None)?;
    let (low, high) = (s.positive("low_freq_factor", None)?, s.positive("high_freq_factor", None)?);
    if low >= high {
        return Err(s.error("low_freq_factor", low.to_string(), format!("less than {high}")));
    }
    let original = s.count("original_max_position_embeddings", None)? as f64;
    let one = |f: f64| {
        let length = 2.0 * PI / f;
        if length < original / high {
            return f;
        }
        if length > original / low {
            return f / factor;
        }
        let smooth = (original / length - low) / (high - low);
        (1.0 - smooth) * f / factor + smooth * f
    };
    Ok(base.into_iter().map(one).collect())
}

/// Frequencies that turn less than `beta_slow` times within the original length are divided by the
/// factor, those that turn more than `beta_fast` times stay, with a ramp between; attention is
/// scaled up for it.
fn yarn(s: &Json, theta: f64, table: &Table) -> Result<(Vec<f64>, f64), Error> {
    let factor = s.positive("factor", None)?;
    let field = "original_max_position_embeddings";
    let original = s.count(field, Some(table.length_max))? as f64;
    let (fast, slow) = (s.positive("beta_fast", Some(32.0))?, s.positive("beta_slow", Some(1.0))?);
    let n = table.n_columns as f64;
    let column = |turns: f64| n * (original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (column(fast), column(slow));
    if s.flag("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    let (low, mut high) = (low.max(0.0), high.min(n - 1.0));
    if low == high {
        high += 0.001;
    }
    let mscale = |factor: f64, m: f64| match factor > 1.0 {
        true => 0.1 * m * factor.ln() + 1.0,
        false => 1.0,
    };
    let scale = match (s.has("mscale"), s.has("mscale_all_dim")) {
        _ if s.has("attention_factor") => s.positive("attention_factor", None)?,
        (true, true) => {
            let (a, b) = (s.positive("mscale", None)?, s.positive("mscale_all_dim", None)?);
            mscale(factor, a) / mscale(factor, b)
        }
        _ => mscale(factor, 1.0),
    };
    let one = |(i, e): (usize, f64)| {
        let stays = 1.0 - ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        let f = theta.powf(-e);
        f / factor * (1.0 - stays) + f * stays
    };
    Ok((exponents(table).enumerate().map(one).collect(), scale))
}

/// A factor for each frequency: one list up to the original length, another beyond it.
fn long(json: &Json, s: &Json, theta: f64, table: &Table) -> Result<(Vec<f64>, f64), Error> {
    let field = "original_max_position_embeddings";
    let holder = if s.has(field) { s } else { json };
    let original = holder.count(field, None)?;
    let list = if table.context > original { "long_factor" } else { "short_factor" };
    let factors = s.floats(list)?.unwrap_or_default();
    if factors.len() as u64 != table.n_columns / 2 || factors.iter().any(|&f| f <= 0.0) {
        let expected = format!("{} numbers above 0", table.n_columns / 2);
        return Err(s.error(list, format!("{} numbers", factors.len()), expected));
    }
    let factor = s.positive("factor", Some(table.length_max as f64 / original as f64))?;
    let grown = (1.0 + factor.ln() / (original as f64).ln()).sqrt();
    let usual = if factor <= 1.0 { 1.0 } else { grown };
    let scale = s.positive("attention_factor", Some(usual))?;
    let frequencies = exponents(table).zip(factors).map(|(e, f)| theta.powf(-e) / f);
    Ok((frequencies.collect(), scale))
}
