//! Every weight of a function: how it is stored, its range, and what to worry about.

use std::collections::HashMap;

use rayon::prelude::*;
use russet_ir::{Graph, Tensor};
use serde_json::{Value, json};

use super::Account;
use super::summary::{Weight, weights};
use crate::progress::Progress;
use crate::show::{bytes, table};

/// The largest finite fp16.
const FP16_MAX: f32 = 65504.0;

/// Elements looked at in one go.
const PIECE: u64 = 1 << 18;

/// What the elements of a weight are like.
#[derive(Clone)]
struct Range {
    /// Of the finite ones; the first is above the second when there are none.
    min: f32,
    max: f32,
    n_nan: u64,
    n_infinite: u64,
    /// Finite, but not as fp16.
    n_over_fp16: u64,
    n_zero: u64,
    /// Of the contents: equal weights have equal ones.
    hash: u64,
}

impl Range {
    const NONE: Range = Range {
        min: f32::INFINITY,
        max: f32::NEG_INFINITY,
        n_nan: 0,
        n_infinite: 0,
        n_over_fp16: 0,
        n_zero: 0,
        hash: 0xcbf2_9ce4_8422_2325,
    };

    fn of(t: &Tensor) -> Range {
        let mut range = Range::NONE;
        let n = t.n_elements();
        let mut at = 0;
        while at < n {
            let len = PIECE.min(n - at);
            t.elements(at, len).into_iter().for_each(|x| range.add(x));
            at += len;
        }
        range
    }

    fn add(&mut self, x: f32) {
        // FNV-1a, a word at a time.
        self.hash = (self.hash ^ u64::from(x.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
        match x {
            _ if x.is_nan() => self.n_nan += 1,
            _ if x.is_infinite() => self.n_infinite += 1,
            _ => {
                (self.min, self.max) = (self.min.min(x), self.max.max(x));
                self.n_over_fp16 += u64::from(x.abs() > FP16_MAX);
                self.n_zero += u64::from(x == 0.0);
            }
        }
    }
}

/// The weights of `graph`, decoded and measured, several at a time.
pub fn table_of(graph: &Graph, progress: &Progress) -> Account {
    let all = weights(graph);
    let mut ranges: Vec<Option<Range>> = Vec::new();
    // In batches, so that progress is shown from this thread.
    for (i, batch) in all.chunks(16).enumerate() {
        progress.stage(&format!("weight {} of {}", i * 16, all.len()));
        let measured = batch.par_iter().map(|w| graph.weight(w.value).map(|t| Range::of(&t)));
        ranges.extend(measured.collect::<Vec<_>>());
    }
    let mut first: HashMap<(u64, String), &str> = HashMap::new();
    let same: Vec<Option<&str>> = all
        .iter()
        .zip(&ranges)
        .map(|(w, range)| {
            let key = (range.as_ref()?.hash, format!("{:?}{}", w.shape, w.dtype));
            let before = *first.entry(key).or_insert(w.name);
            (before != w.name).then_some(before)
        })
        .collect();
    let rows = all.iter().zip(&ranges).zip(&same).map(|((w, r), same)| row(w, r, *same));
    let rows: Vec<Vec<String>> = rows.collect();
    let head = ["weight", "shape", "type", "encoding", "stored", "lowest", "highest", "to note"];
    let text = match rows.is_empty() {
        true => format!("function {} has no weights\n", graph.name),
        false => table(&head, &rows),
    };
    let all: Vec<Value> =
        all.iter().zip(&ranges).zip(&same).map(|((w, r), same)| line(w, r, *same)).collect();
    let json = json!({ "schema": "russet.weights/1", "function": graph.name, "weights": all });
    Account { text, json }
}

fn row(w: &Weight<'_>, range: &Option<Range>, same: Option<&str>) -> Vec<String> {
    let shape: Vec<String> = w.shape.iter().map(u64::to_string).collect();
    let mut notes = Vec::new();
    let (mut low, mut high) = ("-".to_owned(), "-".to_owned());
    match range {
        None => notes.push("cannot be decoded".to_owned()),
        Some(r) => {
            if r.min <= r.max {
                (low, high) = (format!("{:.4}", r.min), format!("{:.4}", r.max));
            }
            let mut note = |n: u64, what: &str| {
                if n > 0 {
                    notes.push(format!("{n} {what}"));
                }
            };
            note(r.n_nan, "NaN");
            note(r.n_infinite, "infinite");
            note(r.n_over_fp16, "beyond fp16");
            let n: u64 = w.shape.iter().product();
            if n > 0 && r.n_zero * 10 > n * 3 {
                notes.push(format!("{:.0} % zeros", 100.0 * r.n_zero as f64 / n as f64));
            }
        }
    }
    notes.extend(same.map(|name| format!("equals {name}")));
    let encoding = match w.encoding {
        "plain" => "plain".to_owned(),
        other => format!("{other}, {}", w.stored),
    };
    let (name, ty) = (w.name.to_owned(), w.dtype.to_string());
    let stored = bytes(w.n_bytes);
    vec![name, shape.join("x"), ty, encoding, stored, low, high, notes.join("; ")]
}

fn line(w: &Weight<'_>, range: &Option<Range>, same: Option<&str>) -> Value {
    let mut json = json!({
        "name": w.name, "shape": w.shape, "dtype": w.dtype.to_string(), "encoding": w.encoding,
        "stored_dtype": w.stored.to_string(), "bytes": w.n_bytes, "equals": same,
    });
    if let Some(r) = range {
        let finite = r.min <= r.max;
        json["min"] = json!(finite.then_some(r.min));
        json["max"] = json!(finite.then_some(r.max));
        json["n_nan"] = json!(r.n_nan);
        json["n_infinite"] = json!(r.n_infinite);
        json["n_beyond_fp16"] = json!(r.n_over_fp16);
        json["n_zero"] = json!(r.n_zero);
    }
    json
}
