//! `russet demo`: the whole way on a real sentence encoder.

use std::path::PathBuf;

use clap::Args;
use russet_exec::Session;
use russet_ir::Opset;
use serde_json::json;

use crate::arithmetic::ArithmeticName;
use crate::compile;
use crate::diagnostic::{Failure, Outcome};
use crate::fetch::{Fetched, sentence_encoder};
use crate::inputs::Source;
use crate::model::{Model, Shapes};
use crate::progress::Progress;
use crate::run::{Outputs, embeddings, matrix, outputs};
use crate::show::{Out, path};
use crate::text::similarities;
use crate::tiny::tiny_encoder;

#[derive(Args, Debug)]
pub struct Arguments {
    /// A folder with a sentence encoder, instead of all-MiniLM-L6-v2.
    #[arg(long)]
    pub model: Option<PathBuf>,
    /// Where the package is written.
    #[arg(short, long, default_value = "all-MiniLM-L6-v2.mlpackage")]
    pub output: PathBuf,
    /// The chip to predict for.
    #[arg(long, default_value = "m4")]
    pub chip: String,
}

const SENTENCES: [&str; 5] = [
    "A man is playing a guitar on the stage.",
    "Someone performs music with a string instrument.",
    "The stock market fell sharply after the announcement.",
    "Share prices dropped when the news came out.",
    "My cat sleeps on the warm windowsill.",
];

pub fn command(args: &Arguments, out: &Out) -> Outcome<()> {
    let mut notes = Vec::new();
    let fetched = find(args, out, &mut notes)?;
    out.part(&format!("Model      {} (from {})\n", fetched.folder.display(), fetched.from))?;
    for note in &notes {
        out.part(&format!("           not from {note}\n"))?;
    }
    let arguments = compile::Arguments {
        source: fetched.folder.clone(),
        output: args.output.clone(),
        shapes: Shapes { seq: vec![64, 128, 256], ..Shapes::default() },
        chip: args.chip.clone(),
        opset: Some(Opset::Ios18),
        inputs: Source { seed: 1, ..Source::default() },
        no_proof: false,
        proof: false,
        passes: Vec::new(),
        skip: Vec::new(),
        verbose: false,
    };
    let (compiled, account) = compile::produce(&arguments, out)?;
    out.part(&account)?;
    let all = embed(args, out, &fetched)?;
    let mut text = String::from("\nFive sentences through the package:\n");
    for (i, sentence) in SENTENCES.iter().enumerate() {
        text += &format!("  {}  {sentence}\n", i + 1);
    }
    for (arithmetic, vectors) in &all {
        text += &format!("\ncosine similarity in {} arithmetic\n", arithmetic.name());
        text += &matrix(vectors);
    }
    text += &next_steps(args, &fetched);
    let json = json!({
        "schema": "russet.demo/1",
        "model": path(&fetched.folder), "from": fetched.from, "output": path(&args.output), "notes": notes,
        "compile": compiled, "sentences": SENTENCES,
        "similarity": all.iter().map(|(a, v)| (a.name(), similarities(v)))
            .collect::<std::collections::BTreeMap<_, _>>(),
    });
    out.result(json, &text)
}

fn find(args: &Arguments, out: &Out, notes: &mut Vec<String>) -> Outcome<Fetched> {
    if let Some(folder) = &args.model {
        return Ok(Fetched { folder: folder.clone(), from: "the command line".into() });
    }
    let progress = Progress::new(out);
    sentence_encoder(&progress, notes).or_else(|_| tiny_encoder())
}

/// The sentences through the package, in both arithmetics.
fn embed(
    args: &Arguments,
    out: &Out,
    fetched: &Fetched,
) -> Outcome<Vec<(ArithmeticName, Vec<Vec<f32>>)>> {
    let progress = Progress::new(out);
    progress.stage("running the package");
    let source = Source {
        text: SENTENCES.map(ToOwned::to_owned).to_vec(),
        tokenizer: Some(fetched.folder.clone()),
        ..Source::default()
    };
    let model = Model::load(&args.output, &Shapes::default(), Opset::Ios18)?;
    let graph = model.function(None)?;
    let sets = source.sets(&model, graph)?;
    let mut all = Vec::new();
    for arithmetic in [ArithmeticName::F32, ArithmeticName::ANE] {
        let session = Session::new(graph, arithmetic.get())?;
        let made: Vec<Outputs> =
            sets.iter().map(|inputs| outputs(&session, inputs)).collect::<Outcome<_>>()?;
        let vectors = embeddings(&made);
        if vectors.len() != SENTENCES.len() {
            return Err(Failure::new("no-embedding", "the model makes no sentence embedding")
                .in_file(&fetched.folder));
        }
        all.push((arithmetic, vectors));
    }
    Ok(all)
}

/// What to type next, with the name by which this program can be called from here.
fn next_steps(args: &Arguments, fetched: &Fetched) -> String {
    let (package, folder) = (args.output.display(), fetched.folder.display());
    let here = std::env::current_dir().unwrap_or_default();
    let built = std::env::current_exe().unwrap_or_default();
    let russet = match built.strip_prefix(here) {
        Ok(path) if !path.as_os_str().is_empty() => path.display().to_string(),
        _ => "russet".into(),
    };
    format!(
        "\nNext:\n  {russet} inspect  {package}\n  {russet} run      {package} --tokenizer {folder} --text \"…\"\n  {russet} compare  {package} --per-op\n  {russet} simulate {package} --chip m3\n"
    )
}
