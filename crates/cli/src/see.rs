//! Pictures in: classes, vectors, and how well texts describe them.

use std::path::PathBuf;

use russet_exec::{Array, Session};
use russet_formats::huggingface::usage::Usage;
use russet_formats::huggingface::usage::image::{Images, Similarity};
use russet_ir::{Dim, Graph};
use serde_json::{Value, json};

use crate::diagnostic::{Failure, Outcome};
use crate::inputs::{self, Inputs};
use crate::model::Model;
use crate::pixels::Picture;
use crate::progress::Progress;
use crate::run::Arguments;
use crate::show::{Out, path, table};
use crate::text::Sentences;

/// What a model that sees is; an error for one that does not.
fn images(model: &Model) -> Outcome<&Images> {
    match &model.usage {
        Some(Usage::Image(images)) => Ok(images),
        _ => {
            let message = "--image is for models that see, and this is none that is known as one";
            Err(Failure::new("no-image", message).in_file(&model.path))
        }
    }
}

/// What `graph` sees of each file.
pub fn sets(files: &[PathBuf], model: &Model, graph: &Graph) -> Outcome<Vec<Inputs>> {
    let Some(processor) = &images(model)?.processor else {
        let message = "nothing says how pictures become its input";
        return Err(Failure::new("no-image", message)
            .in_file(&model.path)
            .help("the folder lacks a preprocessor_config.json"));
    };
    let input = graph.inputs().iter().find(|&&v| graph.value(v).name == "pixel_values");
    let shape: Option<Vec<u64>> =
        input.and_then(|&v| graph.shape(v).iter().map(Dim::fixed).collect());
    let Some([batch, channels, height, width]) = shape.as_deref() else {
        let message = "the function has no input `pixel_values` of a fixed shape";
        return Err(Failure::new("no-image", message).in_file(&model.path));
    };
    let expected = [*height as usize, *width as usize];
    let one = |file: &PathBuf| {
        let picture = Picture::read(file, *channels as usize)?;
        let (values, size) = picture.processed(processor);
        if size != expected {
            let [h, w] = size;
            let message =
                format!("it becomes {h} x {w} pixels, the model takes {height} x {width}");
            return Err(Failure::new("no-image", message).in_file(file));
        }
        let batch = *batch as usize;
        let shape = vec![batch, *channels as usize, expected[0], expected[1]];
        let array = Array::f32(shape, values.repeat(batch));
        Ok([("pixel_values".to_owned(), array)].into())
    };
    files.iter().map(one).collect()
}

/// Classes that are shown.
const N_SHOWN: usize = 5;

/// The likeliest classes with their probabilities, if the model has names for them.
pub fn classes(model: &Model, logits: &Array) -> Option<Vec<(String, f64)>> {
    let Some(Usage::Image(images)) = &model.usage else { return None };
    let row = logits.as_f32()?.get(..images.labels.len())?;
    if images.labels.is_empty() {
        return None;
    }
    let mut all: Vec<(String, f64)> = images.labels.iter().cloned().zip(softmax(row)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(N_SHOWN);
    Some(all)
}

/// Lines and JSON of the likeliest classes.
pub fn classes_text(classes: &[(String, f64)]) -> String {
    let rows: Vec<Vec<String>> =
        classes.iter().map(|(name, p)| vec![format!("  {name}"), format!("{p:.4}")]).collect();
    table(&["  class", "probability"], &rows)
}

pub fn classes_json(classes: &[(String, f64)]) -> Value {
    let one = |(name, p): &(String, f64)| json!({ "label": name, "probability": p });
    classes.iter().map(one).collect()
}

fn softmax(x: &[f32]) -> Vec<f64> {
    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let all: Vec<f64> = x.iter().map(|&x| f64::from(x - largest).exp()).collect();
    let sum: f64 = all.iter().sum();
    all.iter().map(|e| e / sum).collect()
}

/// Is it a model that compares pictures with texts, and are both given?
pub fn compares(model: &Model, args: &Arguments) -> bool {
    let given = !args.source.image.is_empty() && !args.source.text.is_empty();
    given && model.program.function("text").is_some() && model.program.function("image").is_some()
}

/// How well each text describes each picture.
pub fn compare(args: &Arguments, model: &Model, out: &Out, progress: &Progress) -> Outcome<()> {
    let images = images(model)?;
    let function = |name: &str| model.function(Some(name));
    progress.stage("looking");
    let (image, text) = (function("image")?, function("text")?);
    let sets = sets(&args.source.image, model, image)?;
    let pictures = embeds(args, image, &sets, "image_embeds")?;
    progress.stage("reading");
    let sets = texts(args, model, images, text)?;
    let sentences = embeds(args, text, &sets, "text_embeds")?;
    progress.done();
    let cosines: Vec<Vec<f64>> =
        pictures.iter().map(|p| sentences.iter().map(|t| dot(p, t)).collect()).collect();
    let probabilities: Option<Vec<Vec<f64>>> =
        images.similarity.map(|s| cosines.iter().map(|row| likely(s, row)).collect());
    let files = &args.source.image;
    let mut shown = String::new();
    for (i, file) in files.iter().enumerate() {
        shown += &format!("{}\n", file.display());
        let row = |j: usize, text: &String| {
            let p = probabilities.as_ref().map_or(String::new(), |p| format!("{:.4}", p[i][j]));
            vec![format!("  {text}"), format!("{:.4}", cosines[i][j]), p]
        };
        let rows: Vec<Vec<String>> =
            args.source.text.iter().enumerate().map(|(j, t)| row(j, t)).collect();
        shown += &table(&["  text", "cosine", "probability"], &rows);
    }
    let json = json!({
        "schema": "russet.run/1",
        "model": path(&args.model),
        "arithmetic": args.arithmetic.chosen()?.name(),
        "images": files.iter().map(|f| path(f)).collect::<Vec<_>>(),
        "texts": args.source.text,
        "cosines": cosines,
        "probabilities": probabilities,
    });
    out.result(json, &shown)
}

/// Texts as the function's inputs.
fn texts(args: &Arguments, model: &Model, images: &Images, graph: &Graph) -> Outcome<Vec<Inputs>> {
    let lengths = inputs::lengths(graph)?;
    let longest = lengths.iter().copied().max().unwrap_or(1);
    let file = args.source.tokenizer_file(model)?;
    let sentences = Sentences::open(&file, longest as usize)?;
    let side = images.text.as_ref();
    let one = |text: &String| {
        let mut text = text.clone();
        if side.is_some_and(|s| s.lower_case) {
            text = text.to_lowercase();
        }
        if side.is_some_and(|s| s.no_punctuation) {
            text.retain(|c| !c.is_ascii_punctuation());
            text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        inputs::sentence(&sentences.ids(&text)?, graph, &lengths, model)
    };
    args.source.text.iter().map(one).collect()
}

fn embeds(args: &Arguments, graph: &Graph, sets: &[Inputs], name: &str) -> Outcome<Vec<Vec<f32>>> {
    let session = Session::new(graph, args.arithmetic.chosen()?.get())?;
    let one = |inputs: &Inputs| {
        let made = session.run(inputs)?;
        let vector = made.get(name).and_then(|a| a.as_f32()?.get(..*a.shape.last()?));
        vector
            .map(<[f32]>::to_vec)
            .ok_or_else(|| Failure::new("no-image", format!("the function has no output `{name}`")))
    };
    sets.iter().map(one).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// The probability of each text.
fn likely(s: Similarity, cosines: &[f64]) -> Vec<f64> {
    let scores: Vec<f64> = cosines.iter().map(|c| c * f64::from(s.scale)).collect();
    match s.bias {
        Some(bias) => scores.iter().map(|x| 1.0 / (1.0 + (-x - f64::from(bias)).exp())).collect(),
        None => softmax(&scores.iter().map(|&x| x as f32).collect::<Vec<_>>()),
    }
}
