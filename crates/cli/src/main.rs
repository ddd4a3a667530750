//! `russet`: arguments in, text or JSON out, exit code.
//!
//! Results go to standard output, progress and errors to standard error. Exit codes: 0 fine,
//! 1 findings at or above what is denied, 2 cannot.

mod arithmetic;
mod bench;
mod compare;
mod compile;
mod convert;
mod demo;
mod diagnostic;
mod fetch;
mod generate;
mod hear;
mod inputs;
mod inspect;
mod model;
mod pixels;
mod progress;
mod run;
mod see;
mod show;
mod simulate;
mod sound;
mod stages;
mod text;
mod tiny;
mod vocabulary;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use diagnostic::Failure;

/// Transformers on Apple's Neural Engine: compiled, proven, simulated and run, on any machine.
#[derive(Parser)]
#[command(name = "russet", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object instead of text, errors included.
    #[arg(long, global = true)]
    json: bool,
    /// No progress on standard error.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Turn a model into a package for the Neural Engine, and prove that its numbers survived.
    Compile(compile::Arguments),
    /// Show what is in a model: functions, ops, dtypes, bytes.
    Inspect(inspect::Arguments),
    /// Run a model on this machine's CPU, in f32 or as the Neural Engine would.
    Run(run::Arguments),
    /// How far two models, or two arithmetics, are apart; and at which op it begins.
    Compare(compare::Arguments),
    /// Predict where a model runs on a chip and how long it takes.
    Simulate(simulate::Arguments),
    /// Time a model on this machine's CPU.
    Bench(bench::Arguments),
    /// The whole way on a real sentence encoder: get it, compile it, prove it, run it.
    Demo(demo::Arguments),
    /// Print a completion script for a shell.
    Completions { shell: clap_complete::Shell },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are no errors; usage errors are 2, as all that "cannot".
            let is_error = e.use_stderr();
            if is_error && std::env::args_os().any(|a| a == "--json") {
                let text = e.render().to_string();
                Failure::usage(text.trim_start_matches("error: ").trim_end()).report(true);
            } else {
                let _ = e.print();
            }
            return ExitCode::from(if is_error { 2 } else { 0 });
        }
    };
    progress::clean_up_when_interrupted();
    let out = show::Out { json: cli.json, quiet: cli.quiet };
    let done = match cli.command {
        Command::Compile(a) => compile::command(&a, &out),
        Command::Inspect(a) => inspect::command(&a, &out),
        Command::Run(a) => run::command(&a, &out),
        Command::Compare(a) => compare::command(&a, &out),
        Command::Simulate(a) => simulate::command(&a, &out),
        Command::Bench(a) => bench::command(&a, &out),
        Command::Demo(a) => demo::command(&a, &out),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "russet", &mut script);
            out.raw(&script)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Denied) => ExitCode::from(1),
        // The reader has gone: nothing is left to say, and nothing went wrong.
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(out.json);
            ExitCode::from(2)
        }
    }
}
