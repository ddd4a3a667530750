//! Sound in: features for a model, text where it says some.

use std::path::{Path, PathBuf};
use std::time::Instant;

use russet_exec::{Array, Numbers, Session};
use russet_formats::huggingface::usage::Usage;
use russet_formats::huggingface::usage::audio::{Audio, Features, Says};
use russet_formats::huggingface::usage::transcript::Transcript;
use russet_ir::{Dim, Graph};
use serde_json::{Value, json};

use crate::diagnostic::{Failure, Outcome};
use crate::generate::{Generator, likeliest};
use crate::inputs::Inputs;
use crate::model::{Kind, Model, Shapes};
use crate::progress::Progress;
use crate::run::Arguments;
use crate::show::{Out, path};
use crate::sound::{Sound, features};
use crate::text::Sentences;

/// What a model that hears is; an error for one that does not.
fn audio(model: &Model) -> Outcome<&Audio> {
    match &model.usage {
        Some(Usage::Audio(audio)) => Ok(audio),
        _ => {
            let message = "--audio is for models that hear, and this is none that is known as one";
            Err(Failure::new("no-audio", message).in_file(&model.path))
        }
    }
}

/// What the default function hears of each file.
pub fn sets(files: &[PathBuf], model: &Model, graph: &Graph) -> Outcome<Vec<Inputs>> {
    let audio = audio(model)?;
    let one = |file: &PathBuf| {
        let sound = Sound::read(file)?.at(audio.features.rate());
        input(&audio.features, &sound.samples, graph).map_err(|e| e.in_file(file))
    };
    files.iter().map(one).collect()
}

/// The input of `graph`, what is missing behind the sound being zeros.
fn input(of: &Features, samples: &[f32], graph: &Graph) -> Outcome<Inputs> {
    let heard = features::features(of, samples);
    let name = match of {
        Features::Wave { .. } => "input_values",
        Features::WhisperMel { .. } | Features::NormedMel { .. } => "input_features",
    };
    let v = graph.inputs().iter().find(|&&v| graph.value(v).name == name);
    let shape: Option<Vec<u64>> = v.and_then(|&v| graph.shape(v).iter().map(Dim::fixed).collect());
    let Some([batch, inner @ ..]) = shape.as_deref().filter(|s| s.len() == heard.shape.len() + 1)
    else {
        let message = format!("the function has no input `{name}` of a fixed shape");
        return Err(Failure::new("no-audio", message));
    };
    let inner: Vec<usize> = inner.iter().map(|&n| n as usize).collect();
    if heard.shape[0] > inner[0] {
        let message = format!("it is {} long, the model takes {}", heard.shape[0], inner[0]);
        return Err(Failure::new("audio-too-long", message)
            .help("a Hugging Face folder without --seq is made as long as the sound"));
    }
    if heard.shape[1..] != inner[1..] {
        let message = format!("it makes {:?}, the model takes {inner:?}", heard.shape);
        return Err(Failure::new("no-audio", message));
    }
    let Numbers::F32(mut row) = heard.data else { unreachable!("features are floats") };
    row.resize(inner.iter().product(), 0.0);
    let batch = *batch as usize;
    let shape = std::iter::once(batch).chain(inner).collect();
    Ok([(name.to_owned(), Array::f32(shape, row.repeat(batch)))].into())
}

/// Shapes of a folder that hears, as long as the longest of `files`; none where that is no question.
pub fn fitting(files: &[PathBuf], model: &Model, shapes: &Shapes) -> Outcome<Option<Shapes>> {
    let is_folder = matches!(model.kind, Kind::HuggingFace { .. });
    if files.is_empty() || !is_folder || !shapes.seq.is_empty() || !shapes.shapes.is_empty() {
        return Ok(None);
    }
    let of = &audio(model)?.features;
    let mut longest = None;
    for file in files {
        let sound = Sound::read(file)?.at(of.rate());
        longest = longest.max(features::length(of, sound.samples.len()));
    }
    Ok(longest.map(|n| Shapes { seq: vec![n], ..shapes.clone() }))
}

/// The text that logits by frame stand for, if they do.
pub fn said(model: &Model, logits: &Array) -> Option<String> {
    let Some(Usage::Audio(Audio { says: Says::Ctc(ctc), .. })) = &model.usage else { return None };
    let (&n, x) = (logits.shape.last()?, logits.as_f32()?);
    let frames = logits.shape.get(1)?;
    Some(ctc.text(x.chunks(n.max(1)).take(*frames).map(|row| likeliest(row) as u64)))
}

/// The transcript a model writes, if it writes some.
pub fn transcript(model: &Model) -> Option<(&Features, &Transcript)> {
    match &model.usage {
        Some(Usage::Audio(Audio { features, says: Says::Transcript(t) })) => Some((features, t)),
        _ => None,
    }
}

/// A model that listens to one window of sound after the other.
struct Scribe<'a> {
    features: &'a Features,
    transcript: &'a Transcript,
    encoder: Session,
    generator: Generator<'a>,
    sentences: Sentences,
    /// The language that was asked for.
    language: Option<u64>,
    task: &'a str,
    max_tokens: u64,
}

/// What was written down of a file.
struct Written {
    file: PathBuf,
    text: String,
    ids: Vec<i32>,
    language: Option<String>,
    seconds: f64,
    sound_s: f64,
}

/// Writes down what is said in each file.
pub fn transcribe(args: &Arguments, model: &Model, out: &Out, progress: &Progress) -> Outcome<()> {
    let Some((features, transcript)) = transcript(model) else {
        return Err(Failure::new("no-audio", "the model writes no transcripts"));
    };
    let language = match &args.source.language {
        Some(name) => Some(language(transcript, name)?),
        None => None,
    };
    let sentences = Sentences::open(&args.source.tokenizer_file(model)?, usize::MAX)?;
    progress.stage("packing weights");
    let arithmetic = args.arithmetic.chosen()?.get();
    let encoder = Session::new(model.function(Some("encoder"))?, arithmetic)?;
    let generator = Generator::new(model, &transcript.decoder, arithmetic, Inputs::new())?;
    let mut scribe = Scribe {
        features,
        transcript,
        encoder,
        generator,
        sentences,
        language: language.flatten(),
        task: if args.source.translate { "translate" } else { "transcribe" },
        max_tokens: transcript.decoder.context,
    };
    let mut all = Vec::new();
    for file in &args.source.audio {
        progress.stage(&format!("listening to {}", file.display()));
        all.push(scribe.file(file, progress)?);
    }
    progress.done();
    let several = all.len() > 1;
    let text = all.iter().map(|w| w.line(several)).collect::<String>();
    let json = json!({
        "schema": "russet.run/1",
        "model": path(&args.model),
        "arithmetic": args.arithmetic.chosen()?.name(),
        "transcripts": all.iter().map(Written::json).collect::<Vec<_>>(),
    });
    out.result(json, &text)
}

/// The token of a language; none when the model knows one only and it is that.
fn language(transcript: &Transcript, name: &str) -> Outcome<Option<u64>> {
    if let Some(&id) = transcript.languages.get(name) {
        return Ok(Some(id));
    }
    if transcript.languages.is_empty() {
        return match name {
            "en" => Ok(None),
            _ => Err(Failure::usage(format!("the model knows English only, not `{name}`"))),
        };
    }
    let known: Vec<&str> = transcript.languages.keys().map(String::as_str).collect();
    let failure = Failure::usage(format!("the model has no language `{name}`"));
    Err(failure.help(format!("it knows {}", known.join(", "))))
}

impl Scribe<'_> {
    /// Windows of a file, one after the other.
    fn file(&mut self, file: &Path, progress: &Progress) -> Outcome<Written> {
        let start = Instant::now();
        let sound = Sound::read(file)?.at(self.features.rate());
        let window = match *self.features {
            Features::WhisperMel { hop, frames, .. } => hop as usize * frames as usize,
            _ => return Err(Failure::new("no-audio", "a transcript is made of mel windows")),
        };
        let windows = sound.samples.len().div_ceil(window.max(1));
        let (mut texts, mut ids, mut language) = (Vec::new(), Vec::new(), None);
        for (i, samples) in sound.samples.chunks(window.max(1)).enumerate() {
            if windows > 1 {
                progress.stage(&format!("window {} of {windows} of {}", i + 1, file.display()));
            }
            let (new, spoken) = self.window(samples)?;
            texts.push(self.sentences.text(&new)?.trim().to_owned());
            ids.extend(new);
            language = language.or(spoken);
        }
        Ok(Written {
            file: file.to_owned(),
            text: texts.join(" ").trim().to_owned(),
            ids,
            language,
            seconds: start.elapsed().as_secs_f64(),
            sound_s: sound.samples.len() as f64 / f64::from(sound.rate),
        })
    }

    /// Tokens of one window, and the language heard or asked for.
    fn window(&mut self, samples: &[f32]) -> Outcome<(Vec<i32>, Option<String>)> {
        let inputs = input(self.features, samples, self.encoder.graph())?;
        let mut heard = self.encoder.run(&inputs)?;
        let cache = heard.remove("cross_cache").ok_or_else(|| {
            Failure::new("not-a-decoder", "the encoder has no output `cross_cache`")
        })?;
        self.generator.clear();
        self.generator.give([("cross_cache".to_owned(), cache)].into());
        let t = self.transcript;
        let start = t.start as i32;
        let mut language = self.language;
        let mut begin = Vec::new();
        if language.is_none() && !t.languages.is_empty() {
            // The first token tells the language.
            let logits = self.generator.read(&[start])?;
            let score = |id: u64| logits.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
            let best = t.languages.values().copied().max_by(|&a, &b| score(a).total_cmp(&score(b)));
            language = best;
        } else {
            begin.push(start);
        }
        begin.extend(t.prompt(language, self.task).into_iter().map(|id| id as i32));
        let name = t.languages.iter().find(|l| Some(*l.1) == language).map(|l| l.0.clone());
        Ok((self.write(&begin)?, name))
    }

    /// The likeliest tokens behind `begin`, of those that may be.
    fn write(&mut self, begin: &[i32]) -> Outcome<Vec<i32>> {
        let t = self.transcript;
        let mut made = Vec::new();
        let mut logits = self.generator.read(begin)?;
        loop {
            if logits.iter().any(|x| x.is_nan()) {
                return Err(Failure::new("not-finite", "the logits are not numbers"));
            }
            let first = t.suppressed_first.iter().filter(|_| made.is_empty());
            for &id in t.suppressed.iter().chain(first) {
                if let Some(x) = logits.get_mut(id as usize) {
                    *x = f32::NEG_INFINITY;
                }
            }
            let id = likeliest(&logits);
            if t.decoder.eos_token_ids.contains(&(id as u64)) {
                break;
            }
            made.push(id);
            if self.generator.room() == 0 || made.len() as u64 >= self.max_tokens {
                break;
            }
            logits = self.generator.read(&[id])?;
        }
        Ok(made)
    }
}

impl Written {
    fn line(&self, several: bool) -> String {
        let file = if several { format!("{}: ", self.file.display()) } else { String::new() };
        format!(
            "{file}{}\n({:.1} s of sound in {:.1} s, {} tokens)\n",
            self.text,
            self.sound_s,
            self.seconds,
            self.ids.len()
        )
    }

    fn json(&self) -> Value {
        json!({
            "file": path(&self.file), "text": self.text, "ids": self.ids,
            "language": self.language, "sound_seconds": self.sound_s, "seconds": self.seconds,
        })
    }
}
