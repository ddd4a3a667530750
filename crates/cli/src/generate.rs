//! Decoders: text in, the likeliest text behind it out, a token at a time.

use std::time::Instant;

use russet_exec::{Arithmetic, Array, Numbers, Packs, Session};
use russet_formats::huggingface::usage::{Cache, Decoder, Usage};
use serde_json::{Value, json};

use crate::diagnostic::{Failure, Outcome};
use crate::inputs::Inputs;
use crate::model::Model;
use crate::progress::Progress;
use crate::run::Arguments;
use crate::show::{Out, path};
use crate::text::Sentences;

/// A decoder with what it has read so far.
pub struct Generator<'a> {
    decoder: &'a Decoder,
    /// For several tokens at once; a program may do without.
    prefill: Option<Session>,
    decode: Session,
    head: Session,
    /// What every run is given beside tokens and cache.
    given: Inputs,
    states: Inputs,
    n_past: u64,
}

impl<'a> Generator<'a> {
    /// The functions of `model`; `given` are inputs that stay the same from token to token.
    pub fn new(
        model: &Model,
        decoder: &'a Decoder,
        arithmetic: Arithmetic,
        given: Inputs,
    ) -> Outcome<Generator<'a>> {
        let mut packs = Packs::default();
        let mut session = |name: &str| -> Outcome<Session> {
            let graph = model.function(Some(name))?;
            Ok(Session::sharing(graph, arithmetic, &mut packs)?)
        };
        let prefill = match model.program.function("prefill") {
            Some(_) => Some(session("prefill")?),
            None => None,
        };
        let (decode, head) = (session("decode")?, session("lm_head")?);
        let states = Inputs::new();
        Ok(Generator { decoder, prefill, decode, head, given, states, n_past: 0 })
    }

    /// Forgets what was read.
    pub fn clear(&mut self) {
        self.states.clear();
        self.n_past = 0;
    }

    /// Gives every run these inputs from here on.
    pub fn give(&mut self, given: Inputs) {
        self.given = given;
    }

    /// Tokens there is room for.
    pub fn room(&self) -> u64 {
        self.decoder.context - self.n_past
    }

    /// Reads `ids`; the logits of what comes next.
    pub fn read(&mut self, mut ids: &[i32]) -> Outcome<Vec<f32>> {
        let mut hidden = Vec::new();
        while !ids.is_empty() {
            let n = match self.prefill {
                Some(_) => self.decoder.next(self.n_past, ids.len() as u64),
                None => 1,
            };
            let (now, later) = ids.split_at(ids.len().min(n as usize));
            hidden = self.step(now, n)?;
            ids = later;
        }
        let x = Array::f32(vec![1, 1, hidden.len()], hidden);
        let made = self.head.run(&[("hidden_state".to_owned(), x)].into())?;
        floats(&made, "logits").map(<[f32]>::to_vec)
    }

    /// The hidden state of the last of `ids`, which a function that takes `n` tokens reads.
    fn step(&mut self, ids: &[i32], n: u64) -> Outcome<Vec<f32>> {
        let session = match &self.prefill {
            Some(prefill) if n > 1 => prefill,
            _ => &self.decode,
        };
        let mut inputs = self.given.clone();
        for (name, t) in self.decoder.inputs(self.n_past, ids, n) {
            inputs.insert(name, Array::from_tensor(&t).expect("numbers"));
        }
        let outputs = match self.decoder.cache {
            Cache::State => session.run_stateful(&inputs, &mut self.states)?,
            Cache::Io => {
                let cache = match self.states.remove("kv_cache") {
                    Some(cache) => cache,
                    None => empty(session, "kv_cache")?,
                };
                inputs.insert("kv_cache".to_owned(), cache);
                let outputs = session.run(&inputs)?;
                let mut cache = inputs.remove("kv_cache").expect("put there");
                let new = outputs.get("kv_new").ok_or_else(|| missing("kv_new"))?;
                put(&mut cache, new, self.n_past as usize, ids.len());
                self.states.insert("kv_cache".to_owned(), cache);
                outputs
            }
        };
        self.n_past += ids.len() as u64;
        let hidden = floats(&outputs, "last_hidden_state")?;
        let width = hidden.len() / n as usize;
        Ok(hidden[(ids.len() - 1) * width..ids.len() * width].to_vec())
    }
}

fn missing(name: &str) -> Failure {
    Failure::new("not-a-decoder", format!("there is no output `{name}`"))
}

fn floats<'a>(outputs: &'a Inputs, name: &str) -> Outcome<&'a [f32]> {
    outputs.get(name).and_then(Array::as_f32).ok_or_else(|| missing(name))
}

/// Zeros for the input `name`.
fn empty(session: &Session, name: &str) -> Outcome<Array> {
    let graph = session.graph();
    let input = graph.inputs().iter().find(|&&v| graph.value(v).name == name);
    let shape = input.and_then(|&v| graph.ty(v).tensor()?.fixed_shape());
    let shape = shape.ok_or_else(|| {
        Failure::new("not-a-decoder", format!("there is no input `{name}` of a fixed shape"))
    })?;
    let shape: Vec<usize> = shape.into_iter().map(|n| n as usize).collect();
    let n = shape.iter().product();
    Ok(Array::f32(shape, vec![0.0; n]))
}

/// Puts the first `n` rows of `new` `[.., S, columns]` behind the `n_past` first of `cache`.
fn put(cache: &mut Array, new: &Array, n_past: usize, n: usize) {
    let (Numbers::F32(to), Numbers::F32(from)) = (&mut cache.data, &new.data) else { return };
    let [context, columns] = cache.shape[cache.shape.len() - 2..] else { return };
    let n_new = new.shape[new.shape.len() - 2];
    let heads = to.chunks_mut(context * columns).zip(from.chunks(n_new * columns));
    for (to, from) in heads {
        to[n_past * columns..(n_past + n) * columns].copy_from_slice(&from[..n * columns]);
    }
}

/// The largest; the first of several.
pub fn likeliest(logits: &[f32]) -> i32 {
    let mut best = 0;
    for (i, x) in logits.iter().enumerate() {
        if *x > logits[best] || logits[best].is_nan() {
            best = i;
        }
    }
    best as i32
}

/// Text that a decoder added to a prompt.
struct Generated {
    prompt: String,
    n_prompt: usize,
    ids: Vec<i32>,
    text: String,
    prompt_s: f64,
    decode_s: f64,
    /// Why it ends.
    end: &'static str,
}

pub fn command(
    args: &Arguments,
    model: &Model,
    decoder: &Decoder,
    out: &Out,
    progress: &Progress,
) -> Outcome<()> {
    let room = decoder.context as usize;
    let sentences = Sentences::open(&args.source.tokenizer_file(model)?, usize::MAX)?;
    progress.stage("packing weights");
    let arithmetic = args.arithmetic.chosen()?.get();
    let mut generator = Generator::new(model, decoder, arithmetic, Inputs::new())?;
    let mut all = Vec::new();
    for prompt in &args.source.text {
        let mut ids = sentences.ids(prompt)?;
        if ids.is_empty() {
            ids.extend(decoder.bos_token_id.map(|id| id as i32));
        }
        if ids.is_empty() || ids.len() >= room {
            let n = ids.len();
            let message = format!("{n} tokens to begin with, 1 to {} fit", room.saturating_sub(1));
            return Err(
                Failure::new("bad-text", message).help("a larger `--context` leaves room for more")
            );
        }
        progress.stage(&format!("reading {} tokens", ids.len()));
        generator.clear();
        let done = generate(args, &mut generator, &sentences, (prompt, ids), out, progress)?;
        out.part(&format!("\n{}", done.speed()))?;
        all.push(done);
    }
    let json = json!({
        "schema": "russet.run/1",
        "model": path(&args.model),
        "arithmetic": args.arithmetic.chosen()?.name(),
        "generated": all.iter().map(Generated::json).collect::<Vec<_>>(),
    });
    out.result(json, "")
}

/// Adds tokens to a prompt until one ends it, or there are as many as are wanted or fit.
fn generate(
    args: &Arguments,
    generator: &mut Generator<'_>,
    sentences: &Sentences,
    (prompt, ids): (&str, Vec<i32>),
    out: &Out,
    progress: &Progress,
) -> Outcome<Generated> {
    let start = Instant::now();
    let mut logits = generator.read(&ids)?;
    let prompt_s = start.elapsed().as_secs_f64();
    progress.done();
    out.part(prompt)?;
    let start = Instant::now();
    let (mut made, mut shown, mut n_read) = (Vec::new(), String::new(), 0);
    let end = loop {
        if logits.iter().any(|x| x.is_nan()) {
            return Err(Failure::new("not-finite", "the logits are not numbers")
                .help("`russet compare MODEL --per-op` shows at which op it begins"));
        }
        let id = likeliest(&logits);
        if generator.decoder.eos_token_ids.contains(&(id as u64)) {
            break "end of text";
        }
        made.push(id);
        // What precedes has to be there too: a token may join the one before it.
        let text = sentences.text(&[&ids[..], &made].concat())?;
        let before = sentences.text(&ids)?;
        let new = text.strip_prefix(&before).unwrap_or(&text);
        // A character may be of several tokens.
        if !new.ends_with('\u{fffd}') {
            if let Some(more) = new.strip_prefix(&shown) {
                out.part(more)?;
            }
            shown = new.to_owned();
        }
        if made.len() as u64 >= args.max_tokens {
            break "as many tokens as asked for";
        }
        if generator.room() == 0 {
            break "context full";
        }
        logits = generator.read(&[id])?;
        n_read += 1;
    };
    // The first token came with the prompt.
    let decode_s = if n_read > 0 { start.elapsed().as_secs_f64() } else { 0.0 };
    let n_prompt = ids.len();
    Ok(Generated {
        prompt: prompt.into(),
        n_prompt,
        ids: made,
        text: shown,
        prompt_s,
        decode_s,
        end,
    })
}

impl Generated {
    /// Tokens per second while reading the prompt, and while adding to it.
    fn rates(&self) -> (f64, Option<f64>) {
        let n = self.ids.len().saturating_sub(1);
        let decode = (self.decode_s > 0.0 && n > 0).then(|| n as f64 / self.decode_s);
        (self.n_prompt as f64 / self.prompt_s.max(1e-9), decode)
    }

    fn speed(&self) -> String {
        let (prompt, decode) = self.rates();
        let decode = decode.map_or(String::new(), |r| format!(", {r:.1} tokens/s"));
        format!(
            "({}; prompt of {} tokens {prompt:.1} tokens/s; {} new{decode})\n",
            self.end,
            self.n_prompt,
            self.ids.len()
        )
    }

    fn json(&self) -> Value {
        let (prompt, decode) = self.rates();
        json!({
            "prompt": self.prompt, "prompt_tokens": self.n_prompt, "text": self.text,
            "ids": self.ids, "end": self.end, "prompt_seconds": self.prompt_s,
            "decode_seconds": self.decode_s, "prompt_tokens_per_second": prompt,
            "tokens_per_second": decode,
        })
    }
}

/// The decoder a model is, if it is one.
pub fn decoder(model: &Model) -> Option<&Decoder> {
    match &model.usage {
        Some(Usage::Decoder(decoder)) => Some(decoder),
        _ => None,
    }
}
