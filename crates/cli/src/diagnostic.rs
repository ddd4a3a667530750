//! Errors as people read them: where, what was found, what to do.

use std::io::Write;
use std::path::Path;

use russet_exec::ExecError;
use russet_ir::Finding;
use russet_machine::ProfileError;
use russet_passes::PassError;
use serde_json::json;

/// What stops a command.
#[derive(Debug)]
pub enum Failure {
    Diagnostic(Box<Diagnostic>),
    /// Several, all of one kind.
    Findings(Vec<Finding>),
    /// Findings at or above the denied severity were shown.
    Denied,
    ClosedPipe,
}

/// One error with its place.
#[derive(Debug)]
pub struct Diagnostic {
    /// Stable and short, as in `error[missing-tensor]`.
    pub code: String,
    pub message: String,
    /// The file, and the tensor or op in it.
    pub place: Option<String>,
    pub help: Option<String>,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        let (code, message) = (code.to_owned(), message.into());
        Failure::Diagnostic(Box::new(Diagnostic { code, message, place: None, help: None }))
    }

    /// An option that cannot be as it was given.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new("usage", message)
    }

    /// The code of a single error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Failure::Diagnostic(d) => Some(&d.code),
            _ => None,
        }
    }

    pub fn at(mut self, place: impl Into<String>) -> Failure {
        if let Failure::Diagnostic(d) = &mut self {
            d.place.get_or_insert(place.into());
        }
        self
    }

    pub fn in_file(self, file: &Path) -> Failure {
        self.at(file.display().to_string())
    }

    pub fn help(mut self, help: impl Into<String>) -> Failure {
        if let Failure::Diagnostic(d) = &mut self {
            d.help = Some(help.into());
        }
        self
    }

    /// Prints the error: text to standard error, JSON to standard output.
    pub fn report(&self, json: bool) {
        // Where neither can be written, the exit code is all there is.
        let _ = if json {
            let error = json!({ "schema": "russet.error/1", "errors": self.as_json() });
            writeln!(std::io::stdout(), "{error}")
        } else {
            write!(std::io::stderr(), "{}", self.as_text())
        };
    }

    fn as_json(&self) -> Vec<serde_json::Value> {
        match self {
            Failure::Diagnostic(d) => vec![json!({
                "code": d.code, "message": d.message, "place": d.place, "help": d.help,
            })],
            Failure::Findings(all) => all
                .iter()
                .map(|f| {
                    json!({
                        "code": f.code, "message": f.message, "place": f.place,
                        "snippet": f.snippet, "help": f.help,
                    })
                })
                .collect(),
            Failure::Denied | Failure::ClosedPipe => Vec::new(),
        }
    }

    fn as_text(&self) -> String {
        let one =
            |code: &str, message: &str, place: Option<&str>, snippet: &str, help: Option<&str>| {
                let mut text = format!("error[{code}]: {message}\n");
                if let Some(place) = place {
                    text += &format!("  --> {place}\n");
                }
                if !snippet.is_empty() {
                    text += &format!("   | {snippet}\n");
                }
                if let Some(help) = help {
                    text += &format!("   = help: {help}\n");
                }
                text
            };
        match self {
            Failure::Diagnostic(d) => {
                one(&d.code, &d.message, d.place.as_deref(), "", d.help.as_deref())
            }
            Failure::Findings(all) => all
                .iter()
                .map(|f| one(f.code, &f.message, Some(&f.place), &f.snippet, f.help.as_deref()))
                .collect(),
            Failure::Denied | Failure::ClosedPipe => String::new(),
        }
    }
}

impl From<russet_formats::Error> for Failure {
    fn from(e: russet_formats::Error) -> Failure {
        if let russet_formats::Error::Nodes { file, findings } = e {
            let placed =
                |f: Finding| Finding { place: format!("{}: {}", file.display(), f.place), ..f };
            return Failure::Findings(findings.into_iter().map(placed).collect());
        }
        let failure = Failure::new(e.code(), e.to_string()).at(e.place());
        match e.help() {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}

impl From<ExecError> for Failure {
    fn from(e: ExecError) -> Failure {
        let code = match &e {
            ExecError::MissingInput { .. } => "missing-input",
            ExecError::UnknownInput { .. } => "unknown-input",
            ExecError::InputType { .. } | ExecError::InputShape { .. } => "input-mismatch",
            ExecError::Unsupported { .. } | ExecError::DType { .. } => "unsupported-op",
            ExecError::Op { .. } => "op-failed",
            ExecError::TooLarge { .. } => "too-large",
        };
        Failure::new(code, e.to_string())
    }
}

impl From<PassError> for Failure {
    fn from(e: PassError) -> Failure {
        match e {
            PassError::Run(e) => e.into(),
            PassError::Unproven { .. } => Failure::new("unproven-rewrite", e.to_string())
                .help("this is a mistake of russet's; `--skip` of that pass goes around it"),
            PassError::Broken { .. } | PassError::Restless { .. } | PassError::Types { .. } => {
                Failure::new("broken-pass", e.to_string())
                    .help("this is a mistake of russet's; `--skip` of that pass goes around it")
            }
        }
    }
}

impl From<ProfileError> for Failure {
    fn from(e: ProfileError) -> Failure {
        let code = match e {
            ProfileError::Unknown { .. } => "unknown-chip",
            ProfileError::Broken { .. } => "broken-profile",
        };
        Failure::new(code, e.to_string())
    }
}
