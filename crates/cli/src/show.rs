//! Writing results: text or one JSON object, to standard output.

use std::io::{ErrorKind, Write};

use serde_json::Value;

use crate::diagnostic::{Failure, Outcome};

/// How results are shown.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    pub json: bool,
    pub quiet: bool,
}

impl Out {
    /// Prints `text`, or `json` when that was asked for.
    pub fn result(&self, json: Value, text: &str) -> Outcome<()> {
        if self.json {
            let line = serde_json::to_string(&json).unwrap_or_default();
            return self.raw(format!("{line}\n").as_bytes());
        }
        self.raw(text.as_bytes())
    }

    /// Prints a part of the text as soon as it is known; nothing in JSON.
    pub fn part(&self, text: &str) -> Outcome<()> {
        if self.json { Ok(()) } else { self.raw(text.as_bytes()) }
    }

    pub fn raw(&self, bytes: &[u8]) -> Outcome<()> {
        let mut stdout = std::io::stdout().lock();
        let done = stdout.write_all(bytes).and_then(|()| stdout.flush());
        done.map_err(|e| match e.kind() {
            ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::new("io", format!("cannot write the result: {e}")),
        })
    }
}

/// A path in JSON, which has no bytes that are no text.
pub fn path(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// Bytes for people, in powers of ten as disks and Apple count.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    let (value, unit) = match n {
        _ if n < 1e3 => return format!("{n} B"),
        _ if n < 1e6 => (n / 1e3, "KB"),
        _ if n < 1e9 => (n / 1e6, "MB"),
        _ => (n / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}

/// Seconds for people.
pub fn seconds(s: f64) -> String {
    match s {
        _ if s < 1e-3 => format!("{:.0} us", s * 1e6),
        _ if s < 1.0 => format!("{:.2} ms", s * 1e3),
        _ => format!("{s:.2} s"),
    }
}

/// Counts for people.
pub fn count(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n < 1e4 => format!("{n}"),
        _ if n < 1e6 => format!("{:.1} K", n / 1e3),
        _ if n < 1e9 => format!("{:.1} M", n / 1e6),
        _ => format!("{:.1} G", n / 1e9),
    }
}

/// "1 hand-off", "2 hand-offs".
pub fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A table: columns of numbers to the right, others to the left.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().map(|r| r[i].chars().count());
        cells.chain([head[i].chars().count()]).max().unwrap_or(0)
    };
    let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let short = |i: usize| rows.iter().all(|r| r[i].split(' ').count() <= 2);
    let numeric =
        |i: usize| short(i) && rows.iter().all(|r| r[i].is_empty() || is_number(r[i].trim_start()));
    let columns: Vec<(usize, bool)> = (0..head.len()).map(|i| (width(i), numeric(i))).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&columns).map(|(cell, &(w, right))| {
            if right { format!("{cell:>w$}") } else { format!("{cell:<w$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let mut text = line(&head);
    rows.iter().for_each(|r| text += &line(r));
    text
}
