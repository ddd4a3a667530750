//! `coremldata.bin`: what a compiled model says to those who load it.
//!
//! All numbers are little endian. The layout was read off files Apple's compiler wrote (versions
//! 3404 to 3600):
//!
//! ```text
//!   0  u32      kind of model: the number of its field in the message `Model`
//!   4  3 x u32  version of the container
//!  16  12 B     zeros
//!  28  u64 n    length of a string
//!  36  n B      `generic`; of a pipeline one such for each stage with its version, then its own
//!      u32      specification version
//!      28 B     zeros
//!      u64 m    length of a message
//!      m B      the message `ModelDescription`
//!      ..       16 bytes for each function or stage, which nobody here needs
//! ```

use std::path::Path;

use bytes::Bytes;
use prost::Message;

use crate::Error;
use crate::mlpackage::proto;

/// The field of an ML Program in the message `Model`.
pub const ML_PROGRAM: u32 = 502;
/// The field of a pipeline.
pub const PIPELINE: u32 = 202;

const HEADER: usize = 28;
const ZEROS: usize = 28;

/// What is in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Number of the model's field in the message `Model`.
    pub kind: u32,
    pub spec_version: i32,
    pub description: proto::ModelDescription,
}

/// Reads the bytes of a `coremldata.bin`; `path` is for errors.
///
/// # Errors
/// A file that ends too early, or whose description is no message.
pub fn parse(bytes: Bytes, path: &Path) -> Result<Data, Error> {
    let truncated = |at: &str, needed: u64| Error::Truncated {
        file: path.to_owned(),
        at: Some(at.to_owned()),
        needed,
        found: bytes.len() as u64,
    };
    // `n` bytes at `at`, or how many the file would need.
    let take = |at: usize, n: u64, what: &str| {
        let end = (at as u64).saturating_add(n);
        match end <= bytes.len() as u64 {
            true => Ok(bytes.slice(at..end as usize)),
            false => Err(truncated(what, end)),
        }
    };
    let word =
        |at, what| take(at, 4, what).map(|b| u32::from_le_bytes(b[..].try_into().expect("4")));
    let long =
        |at, what| take(at, 8, what).map(|b| u64::from_le_bytes(b[..].try_into().expect("8")));
    let kind = word(0, "the kind of model")?;
    let length = long(HEADER, "the names of its engines")?;
    let at = HEADER + 8 + take(HEADER + 8, length, "the names of its engines")?.len();
    let spec_version = word(at, "the specification version")?;
    let at = at + 4 + ZEROS;
    let length = long(at, "the description")?;
    let message = take(at + 8, length, "the description")?;
    let description = proto::ModelDescription::decode(message)
        .map_err(|e| Error::malformed(path, Some("the description"), e.to_string()))?;
    let spec_version = i32::try_from(spec_version).map_err(|_| {
        let why = format!("{spec_version} is no version");
        Error::malformed(path, Some("the specification version"), why)
    })?;
    Ok(Data { kind, spec_version, description })
}

/// The bytes Apple's compiler would write; of a pipeline's stage, metadata is absent.
pub fn render(data: &Data, n_functions: usize, stages: Option<usize>) -> Vec<u8> {
    // Seen: 5 up to specification 7, 9 at 9. In between and beyond it is a guess.
    let engine = if data.spec_version >= 9 { 9u32 } else { 5 };
    let (version, names) = match stages {
        None => ([engine, 0, 0, 0, 0, 0], "generic".to_owned()),
        Some(n) => {
            let stage = |i| format!("generic.model{i}v{engine}.0.0");
            let names = (0..n).map(stage).collect::<String>() + "generic";
            ([1, 0, 0, 0, 1, 0], names)
        }
    };
    let mut out = data.kind.to_le_bytes().to_vec();
    version.iter().for_each(|v| out.extend(v.to_le_bytes()));
    out.extend((names.len() as u64).to_le_bytes());
    out.extend(names.as_bytes());
    out.extend(data.spec_version.to_le_bytes());
    out.extend([0; ZEROS]);
    let message = data.description.encode_to_vec();
    out.extend((message.len() as u64).to_le_bytes());
    out.extend(message);
    match stages {
        Some(n) => {
            out.extend((n as u64).to_le_bytes());
            out.extend(u64::from(data.kind).to_le_bytes());
        }
        None => {
            for _ in 0..n_functions {
                out.extend(u64::from(data.kind).to_le_bytes());
                out.extend(0u64.to_le_bytes());
            }
        }
    }
    out
}

/// A list of strings: the file in `modelNames`.
pub fn render_names(names: &[String]) -> Vec<u8> {
    let mut out = (names.len() as u64).to_le_bytes().to_vec();
    names.iter().for_each(|n| put_string(n, &mut out));
    out
}

/// The strings of the file in `modelNames`.
pub fn parse_names(bytes: &[u8], path: &Path) -> Result<Vec<String>, Error> {
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> Option<u64> {
        let (head, tail) = rest.split_first_chunk::<8>()?;
        *rest = tail;
        Some(u64::from_le_bytes(*head))
    };
    let mut read = || -> Option<Vec<String>> {
        let n = number(&mut rest)?;
        let mut names = Vec::new();
        for _ in 0..n {
            let length = usize::try_from(number(&mut rest)?).ok()?;
            let (head, tail) = rest.split_at_checked(length)?;
            names.push(String::from_utf8_lossy(head).into_owned());
            rest = tail;
        }
        Some(names)
    };
    read().ok_or_else(|| Error::malformed(path, None, "the list of names ends too early"))
}

/// `analytics/coremldata.bin`: sections of names with their values. Whose model it is, and of
/// which bytes, is there for the outermost model only.
pub fn render_analytics(stages: Option<usize>, identity: Option<(&str, &str)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut section = |name: &str, pairs: &[(&str, &str)]| {
        put_string(name, &mut out);
        out.extend((pairs.len() as u64).to_le_bytes());
        for (key, value) in pairs {
            put_string(key, &mut out);
            put_string(value, &mut out);
        }
    };
    match stages {
        Some(n) => section("PipelineModelDetails", &[("modelDimension", &n.to_string())]),
        None => section(
            "NeuralNetworkModelDetails",
            &[("containsCustomLayer", "0"), ("modelDimension", "0")],
        ),
    }
    if let Some((hash, name)) = identity {
        section("SpecificationDetails", &[("modelHash", hash), ("modelName", name)]);
    }
    out
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Data {
        let description = proto::ModelDescription {
            predicted_feature_name: "class".into(),
            ..Default::default()
        };
        Data { kind: ML_PROGRAM, spec_version: 8, description }
    }

    #[test]
    fn it_reads_back_and_every_beginning_is_refused() {
        for stages in [None, Some(2)] {
            let bytes = render(&data(), 1, stages);
            let path = Path::new("coremldata.bin");
            assert_eq!(parse(bytes.clone().into(), path).unwrap(), data());
            let end = bytes.len() - 16;
            for n in 0..end {
                let error = parse(bytes[..n].to_vec().into(), path).unwrap_err();
                assert_eq!(error.code(), "truncated", "{n}");
            }
            let mut huge = bytes;
            huge[28..36].fill(0xff);
            assert_eq!(parse(huge.into(), path).unwrap_err().code(), "truncated");
        }
    }

    #[test]
    fn names_read_back() {
        let names = vec!["a".to_owned(), "stage two".to_owned()];
        let bytes = render_names(&names);
        let path = Path::new("names");
        assert_eq!(parse_names(&bytes, path).unwrap(), names);
        assert!(parse_names(&bytes[..bytes.len() - 1], path).is_err());
        assert!(parse_names(&[0xff; 16], path).is_err());
    }
}
