//! Progress on standard error, for whatever takes longer than a second; and tidying up.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::show::Out;

/// The stages of a command. On a terminal a spinner; elsewhere a line a second at most, for those
/// that begin after one.
pub struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    start: Instant,
    last_line: Cell<Instant>,
}

/// What is quicker than this needs no progress.
const PATIENCE: Duration = Duration::from_secs(1);

impl Progress {
    pub fn new(out: &Out) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !out.quiet).then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = ProgressBar::new_spinner();
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let now = Instant::now();
        Progress { bar, lines: !terminal && !out.quiet, start: now, last_line: Cell::new(now) }
    }

    /// Says what happens now.
    pub fn stage(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        } else if self.lines && self.last_line.get().elapsed() > PATIENCE {
            self.last_line.set(Instant::now());
            let seconds = self.start.elapsed().as_secs_f64();
            // Nobody may be listening any more.
            let _ = writeln!(std::io::stderr(), "{what} ({seconds:.0} s)");
        }
    }

    /// Clears the line, so that results can be printed.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done();
    }
}

/// On ctrl-C (and termination) removes what is half-written, then exits with 130.
pub fn clean_up_when_interrupted() {
    let handler = || {
        russet_formats::temporary::remove_all();
        std::process::exit(130);
    };
    // Without a handler the default applies: the process ends, a hidden folder may stay.
    let _ = ctrlc::set_handler(handler);
}
