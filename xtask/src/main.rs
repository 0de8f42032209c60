//! The project's chores, behind `./x`. Each chore is a file; [`shell`] is the one place that starts processes.
#![expect(clippy::disallowed_methods, reason = "a chore starts the programs that it needs")]
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
    /// Set up a fresh clone, up to a first workspace
    Up,
    /// Run all tests; the last line says how many passed, failed and were skipped
    Test(test::Options),
    /// Run the benchmarks and write the results to benches/results
    Bench(bench::Options),
    /// Format the code
    Fmt(format::Options),
    /// Run clippy with warnings denied
    Lint,
    /// Check licences, advisories and sources of the dependencies
    Deny,
    /// Run the fuzz targets
    Fuzz(fuzz::Options),
    /// Run random operations under random faults and compare the results with a model
    Soak(soak::Options),
    /// Check links, commands and configuration keys in the documents
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
