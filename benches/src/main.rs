//! `agentiso-bench`: measures agentiso together with plain QEMU, QEMU's own network, crun and bubblewrap, in one run on
//! one host.
//!
//! Each measurement is a file and returns figures. If a measurement fails, its figures are left out, the others
//! continue, and the program fails at the end. `./x bench` builds everything and runs this.
#![expect(clippy::disallowed_methods, reason = "it measures other programs, which it starts itself")]

mod containers;
mod create;
mod exec;
mod figures;
mod files;
mod goals;
mod jail;
mod memory;
mod network;
mod output;
mod plain_boot;
mod plain_vm;
mod pool;
mod process_memory;
mod program;
mod promises;
mod raw_echo;
mod report;
mod restart;
mod rootfs;
mod run_dir;
mod samples;
mod sections;
mod setup;
mod snapshots;
mod vm_line;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::goals::Verdict;
use crate::report::{Facts, Report};
use crate::sections::Section;
use crate::setup::{Runs, Setup};

/// Measures agentiso beside plain QEMU, crun and bubblewrap.
///
/// Prints a table, and after a complete run writes it to benches/results.
#[derive(Debug, Parser)]
#[command(name = "agentiso-bench", bin_name = "./x bench --", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Fail when a goal is missed
    #[arg(long)]
    enforce: bool,
    /// Few repetitions, to see that the benchmark works; nothing is written
    #[arg(long)]
    quick: bool,
    /// Only these measurements; nothing is written
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// The image of the workspaces
    #[arg(long, default_value = "debian-minimal")]
    image: String,
    /// The directory for the results; if given, also --quick and --only write them
    #[arg(long)]
    output: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Subcommand)]
enum Part {
    #[command(hide = true)]
    Containers(containers::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.part {
        Some(Part::Containers(options)) => containers::run(options).map(|()| ExitCode::SUCCESS),
        None => {
            // Panics of measurements are caught there. A panic elsewhere must not leave processes running either.
            let outcome = std::panic::catch_unwind(|| benchmark(&arguments));
            run_dir::clean();
            outcome.unwrap_or(Ok(ExitCode::FAILURE))
        }
    };
    outcome.unwrap_or_else(|error| {
        say(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stdout, reason = "the table is the purpose of the program")]
fn benchmark(arguments: &Arguments) -> Result<ExitCode> {
    let load = report::load();
    let runs = if arguments.quick { Runs::QUICK } else { Runs::FULL };
    let setup = Setup::new(run_dir::create()?, arguments.image.clone(), runs)?;
    say("kernel, image and templates (some minutes the first time)");
    setup.prepare();
    let line = setup.vm_line()?;
    let facts = Facts::gather(&setup, &line, load)?;
    let wanted = if arguments.only.is_empty() { Section::ALL.to_vec() } else { arguments.only.clone() };
    let (figures, failures) = sections::run(&setup, line, &wanted, arguments.quick);

    let report = Report { facts, figures };
    println!("{}", report::text(&report));
    let results = match &arguments.output {
        Some(dir) => Some(dir.clone()),
        None if arguments.quick || !arguments.only.is_empty() => None,
        None => Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("results")),
    };
    if let Some(dir) = results {
        say(&format!("written to {}", report::write(&report, &dir)?.display()));
    }
    for failure in &failures {
        say(&format!("failed: {failure}"));
    }
    let missed = report.goals().iter().any(|goal| goal.verdict != Verdict::Met);
    let is_bad = !failures.is_empty() || (arguments.enforce && missed);
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints progress to standard error.
#[expect(clippy::print_stderr, reason = "progress belongs on standard error")]
pub(crate) fn say(text: &str) {
    eprintln!("bench: {text}");
}
