//! Fields of `config.json` and of the files beside it, with an error that names the field.

use std::path::{Path, PathBuf};

use russet_ir::ops::GeluMode;
use serde_json::{Map, Value};

use crate::{Error, mapped};

/// The function between the two linear layers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Gelu(GeluMode),
    /// `x * sigmoid(1.702 x)`, of CLIP.
    QuickGelu,
    Relu,
    Silu,
    Tanh,
}

const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu(GeluMode::Exact)),
    ("gelu_python", Activation::Gelu(GeluMode::Exact)),
    ("gelu_new", Activation::Gelu(GeluMode::Tanh)),
    ("gelu_fast", Activation::Gelu(GeluMode::Tanh)),
    ("gelu_pytorch_tanh", Activation::Gelu(GeluMode::Tanh)),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("tanh", Activation::Tanh),
];

/// Classes beyond which a config is not believed without their names.
const LABELS_MAX: u64 = 1 << 16;

/// An object of a JSON file.
#[derive(Debug, Clone)]
pub struct Json {
    json: Map<String, Value>,
    file: PathBuf,
    /// Where the object stands in the file: nothing, or `text_config.`.
    place: String,
}

impl Json {
    /// The object in `text`; `file` is for errors.
    pub fn parse(text: &str, file: &Path) -> Result<Json, Error> {
        let json =
            serde_json::from_str(text).map_err(|e| Error::malformed(file, None, e.to_string()))?;
        Ok(Json { json, file: file.to_owned(), place: String::new() })
    }

    pub fn read(file: &Path) -> Result<Json, Error> {
        Json::parse(&mapped::text(file)?, file)
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// `field` says `found` where `expected` would do.
    pub fn error(
        &self,
        field: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Error {
        let field = format!("{}{field}", self.place);
        Error::Config {
            file: self.file.clone(),
            field,
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// The field as it is written.
    pub fn found(&self, field: &str) -> String {
        self.json.get(field).map_or("absent".into(), Value::to_string)
    }

    /// The field's value; none also for `null`.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.json.get(field).filter(|v| !v.is_null())
    }

    /// Is the field there and `null`? For the few in which that is not the same as absent.
    pub fn is_null(&self, field: &str) -> bool {
        self.json.get(field).is_some_and(Value::is_null)
    }

    pub fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// The first of `fields` that is there, else the first: one thing under its names over time.
    pub fn first<'a>(&self, fields: &[&'a str]) -> &'a str {
        fields.iter().copied().find(|f| self.has(f)).unwrap_or(fields[0])
    }

    /// The object in `field`.
    pub fn section(&self, field: &str) -> Result<Option<Json>, Error> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(json)) => {
                let place = format!("{}{field}.", self.place);
                Ok(Some(Json { json: json.clone(), file: self.file.clone(), place }))
            }
            Some(_) => Err(self.error(field, self.found(field), "an object")),
        }
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.get(field)?.as_str()
    }

    /// A field that, where it is present, must have this value.
    pub fn require(&self, field: &str, value: impl Into<Value>) -> Result<(), Error> {
        let value = value.into();
        match self.get(field) {
            None => Ok(()),
            Some(found) if *found == value => Ok(()),
            Some(found) => Err(self.error(field, found.to_string(), value.to_string())),
        }
    }

    pub fn number(&self, field: &str, default: Option<u64>) -> Result<u64, Error> {
        let number = match self.get(field) {
            None => default,
            // Kept within what an int32 of a program can hold.
            Some(v) => v.as_u64().filter(|&n| i32::try_from(n).is_ok()),
        };
        number.ok_or_else(|| self.error(field, self.found(field), "a whole number"))
    }

    pub fn count(&self, field: &str, default: Option<u64>) -> Result<u64, Error> {
        match self.number(field, default)? {
            0 => Err(self.error(field, "0", "at least 1")),
            n => Ok(n),
        }
    }

    pub fn float(&self, field: &str, default: Option<f64>) -> Result<f64, Error> {
        let number = match self.get(field) {
            None => default,
            Some(v) => v.as_f64().filter(|x| x.is_finite()),
        };
        number.ok_or_else(|| self.error(field, self.found(field), "a number"))
    }

    /// A number above zero.
    pub fn positive(&self, field: &str, default: Option<f64>) -> Result<f64, Error> {
        match self.float(field, default)? {
            x if x > 0.0 => Ok(x),
            x => Err(self.error(field, x.to_string(), "a number above 0")),
        }
    }

    pub fn flag(&self, field: &str, default: bool) -> Result<bool, Error> {
        match self.get(field) {
            None => Ok(default),
            Some(v) => {
                v.as_bool().ok_or_else(|| self.error(field, self.found(field), "true or false"))
            }
        }
    }

    /// The numbers of a list; none when the field is absent.
    pub fn floats(&self, field: &str) -> Result<Option<Vec<f64>>, Error> {
        let Some(v) = self.get(field) else { return Ok(None) };
        let numbers = v.as_array().and_then(|a| a.iter().map(Value::as_f64).collect());
        match numbers {
            Some(numbers) => Ok(Some(numbers)),
            None => Err(self.error(field, self.found(field), "a list of numbers")),
        }
    }

    /// A whole number or a list of them: `eos_token_id` is either.
    pub fn numbers(&self, field: &str) -> Result<Vec<u64>, Error> {
        let Some(v) = self.get(field) else { return Ok(Vec::new()) };
        let one = |v: &Value| v.as_u64().filter(|&n| i32::try_from(n).is_ok());
        let numbers = match v {
            Value::Array(all) => all.iter().map(one).collect(),
            one_value => one(one_value).map(|n| vec![n]),
        };
        let expected = "a whole number or a list of them";
        numbers.ok_or_else(|| self.error(field, self.found(field), expected))
    }

    /// Names of classes in `id2label`, by number; empty without the field.
    pub fn labels(&self) -> Result<Vec<String>, Error> {
        let Some(labels) = self.section("id2label")? else {
            // Two, called so, is what the field says by being left out.
            let n = self.number("num_labels", Some(2))?.min(LABELS_MAX);
            return Ok((0..n).map(|i| format!("LABEL_{i}")).collect());
        };
        let name = |i: usize| labels.json.get(&i.to_string()).and_then(Value::as_str);
        let names: Option<Vec<String>> =
            (0..labels.json.len()).map(|i| name(i).map(str::to_owned)).collect();
        let expected = "a name for each number from 0";
        names.ok_or_else(|| self.error("id2label", "something else", expected))
    }

    /// The same with numbers for fields that are left out.
    pub fn with_defaults(&self, defaults: &[(&str, u64)]) -> Json {
        let mut json = self.clone();
        for (field, n) in defaults {
            if !self.has(field) {
                json.json.insert((*field).to_owned(), (*n).into());
            }
        }
        json
    }

    pub fn epsilon(&self, field: &str, default: f64) -> Result<f32, Error> {
        let number = match self.get(field) {
            None => Some(default),
            Some(v) => v.as_f64().filter(|x| (0.0..1.0).contains(x)),
        };
        let expected = "a number from 0 to 1";
        number.map(|x| x as f32).ok_or_else(|| self.error(field, self.found(field), expected))
    }

    pub fn activation(&self, field: &str, default: &str) -> Result<Activation, Error> {
        let name = self.get(field).map_or(Some(default), Value::as_str);
        let known = ACTIVATIONS.iter().find(|a| Some(a.0) == name);
        known.map(|a| a.1).ok_or_else(|| {
            let names: Vec<&str> = ACTIVATIONS.iter().map(|a| a.0).collect();
            self.error(field, self.found(field), format!("one of {}", names.join(", ")))
        })
    }
}
