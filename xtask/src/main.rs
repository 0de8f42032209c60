//! The project's chores, behind `./x`. Each chore is a file; [`shell`] is the one place that starts processes.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is its purpose")]

mod bench;
mod deny;
mod docs;
mod format;
mod fuzz;
mod lint;
mod shell;
mod soak;
mod steps;
mod test;
mod tools;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "x", bin_name = "./x", about = "The project's chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// From a clone to a working sandbox, with a first workspace to prove it
    Up,
    /// Run every test; the last line says how many passed, failed and were skipped
    Test(test::Options),
    /// Measure, and write the figures to benches/results
    Bench(bench::Options),
    /// Format the code
    Fmt(format::Options),
    /// Clippy over everything, warnings denied
    Lint,
    /// Check the dependencies' licences, advisories and sources
    Deny,
    /// Run the fuzz targets
    Fuzz(fuzz::Options),
    /// Random operations under random faults, against a model of what must be there
    Soak(soak::Options),
    /// Check that the documents are true
    Docs(docs::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.chore {
        Chore::Up => up::run(),
        Chore::Test(options) => test::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Fmt(options) => format::run(&options),
        Chore::Lint => lint::run(),
        Chore::Deny => deny::run(),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Docs(options) => docs::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("x: {error:#}");
            ExitCode::FAILURE
        }
    }
}
