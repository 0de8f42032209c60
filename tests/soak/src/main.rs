//! `agentiso-soak`: several clients run random operations on tens of workspaces during random faults, and compare the
//! results with a model.
//!
//! A seed determines the operations and faults, but not their timing. At the end everything is compared with the model
//! and destroyed, and nothing may be left on the host. `./x soak` runs it; see docs/reliability.md.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program whose output is its purpose")]

mod alone;
mod growth;
mod journal;
mod leaks;
mod model;
mod panics;
mod plan;
mod player;
mod report;
mod rng;
mod run;
mod site;
mod storm;
mod weather;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Parser;

use site::Settings;

#[derive(Parser)]
#[command(about = "Random operations under random faults, against a model of what must be there")]
struct Arguments {
    /// Minutes of faults; comparing and cleaning up take additional time
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The seed that determines the operations and faults; taken from the clock by default
    #[arg(long)]
    seed: Option<u64>,
    /// Clients at work at the same time
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// Workspaces at a time, of all clients together
    #[arg(long, default_value_t = 24)]
    workspaces: usize,
    /// Memory of each VM
    #[arg(long, default_value_t = 256)]
    memory_mb: u32,
    /// The most operations between two faults
    #[arg(long, default_value_t = 6)]
    operations_between_faults: u64,
    /// Do not damage the ledger; by default it is damaged from time to time, while no daemon runs
    #[arg(long)]
    no_ledger_damage: bool,
    /// The network backend of the workspaces: gateway or bridge
    #[arg(long, default_value = "gateway")]
    backend: String,
    /// The parent of the directory for logs and findings, which is named after the seed
    #[arg(long, default_value = "target/soak")]
    evidence: PathBuf,
}

fn main() -> ExitCode {
    match soak(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("agentiso-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<ExitCode> {
    let Some(inside) = std::env::var_os(alone::INSIDE) else {
        let seed = arguments.seed.map_or_else(seed_of_the_moment, Ok)?;
        println!("seed {seed}");
        match alone::run_again(seed)? {}
    };
    let seed = inside.to_str().and_then(|text| text.parse().ok()).context("a seed")?;
    let settings = Settings {
        seed,
        minutes: arguments.minutes,
        clients: arguments.clients.max(1),
        workspaces: arguments.workspaces,
        memory_mb: arguments.memory_mb,
        operations_between_faults: arguments.operations_between_faults,
        damages_ledger: !arguments.no_ledger_damage,
        backend: arguments.backend.clone(),
        evidence: std::path::absolute(&arguments.evidence)?.join(seed.to_string()),
    };
    let (text, is_clean) = run::run(&settings)?;
    println!("{text}");
    println!("evidence: {}", settings.evidence.display());
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A seed from the clock, short enough to be typed again.
fn seed_of_the_moment() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock after 1970")?;
    Ok(since.as_nanos() as u64 % 1_000_000_000)
}
