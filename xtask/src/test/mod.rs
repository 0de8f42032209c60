//! `./x test`: runs all tests and prints one closing line.

mod clients;
mod doctests;
mod nextest;
mod older;
pub(crate) mod prepare;
mod tally;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::{fuzz, shell, soak};
use prepare::Prepared;
use tally::{SkipLog, Tally};

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds to run each fuzz target
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
    /// Minutes to run the soak; 0 skips it
    #[arg(long, default_value_t = 10.0)]
    soak_minutes: f64,
    /// Skip the soak if it would end later than this many minutes after the start of this run
    #[arg(long)]
    limit_minutes: Option<f64>,
    /// Run only the workspace's tests, and pass these arguments to nextest: ./x test -- -p agentiso-core names
    #[arg(last = true)]
    nextest: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut tally = Tally::default();
    // An error of the run itself is counted in the last line too.
    if let Err(error) = run_parts(options, &mut tally) {
        eprintln!("x: {error:#}");
        tally.fail(format!("the run itself: {error}"));
    }
    close(&tally)
}

fn run_parts(options: &Options, tally: &mut Tally) -> Result<()> {
    let begun = Instant::now();
    let mut prepared = timed("build, image and templates", prepare::prepare)?;
    if prepared.can_boot() {
        prepared.older = timed("build of the version before", older::build)?;
    }
    let given = std::env::var_os("AGENTISO_SKIP_LOG").map(Into::into);
    let (mut skips, carried) = SkipLog::open(given, &prepare::target_dir()?.join("skips.log"))?;
    for line in carried {
        tally.skip(line);
    }
    tally.add(timed("nextest", || nextest::run(&prepared, &mut skips, &options.nextest))?);
    // With a selection of tests, the other parts such as the fuzzers are left out.
    if options.nextest.is_empty() {
        run_others(options, &prepared, &mut skips, begun, tally)?;
    }
    Ok(())
}

/// The soak lasts its minutes whatever runs beside it, so the other parts run beside it.
fn run_others(
    options: &Options,
    prepared: &Prepared,
    skips: &mut SkipLog,
    begun: Instant,
    tally: &mut Tally,
) -> Result<()> {
    std::thread::scope(|scope| {
        let soak = scope.spawn(|| timed("soak", || soak_for(prepared, options, begun)));
        let mut beside = || -> Result<()> {
            tally.add(timed("clients", || clients::run(prepared, skips))?);
            tally.add(timed("examples in documents", doctests::run)?);
            tally.add(timed("fuzz targets", || fuzz_targets(options.fuzz_seconds))?);
            Ok(())
        };
        let ended = beside();
        // The soak is waited for in any case, because its VMs must not outlive this run.
        tally.add(soak.join().map_err(|_| anyhow!("the thread of the soak panicked"))??);
        ended
    })
}

/// Prints how long a part took, so that a slow run shows where.
fn timed<T>(name: &str, part: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let outcome = part();
    println!("=== {name}: {} s", begun.elapsed().as_secs());
    outcome
}

/// Time to compare and destroy everything after the last fault of a soak of ten minutes. On a busy host it takes
/// longer.
const SOAK_WRAP_UP: Duration = Duration::from_secs(8 * 60);

/// The soak counts as one test.
fn soak_for(prepared: &Prepared, options: &Options, begun: Instant) -> Result<Tally> {
    let mut tally = Tally::default();
    let minutes = options.soak_minutes;
    let ends_after = begun.elapsed().as_secs_f64() / 60.0 + minutes + SOAK_WRAP_UP.as_secs_f64() / 60.0;
    if minutes <= 0.0 {
        tally.skip("soak: left out with --soak-minutes 0");
    } else if options.limit_minutes.is_some_and(|limit| ends_after > limit) {
        tally.skip(format!("soak: it would end {ends_after:.0} minutes after the start, later than allowed"));
    } else if let Some(reason) = soak::lack(prepared) {
        tally.skip(format!("soak: {reason}"));
    } else {
        match soak::run_within(prepared, minutes)? {
            None => tally.pass(),
            Some(problem) => tally.fail(format!("soak of {minutes} minutes: {problem}")),
        }
    }
    Ok(tally)
}

fn fuzz_targets(seconds: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    if !shell::succeeds(shell::command("c++").arg("--version")) {
        tally.skip("fuzz targets: no C++ compiler for the fuzzer's runtime");
        return Ok(tally);
    }
    for outcome in fuzz::run_targets(seconds, None).context("the fuzz targets")? {
        match outcome.failure {
            None => tally.pass(),
            Some(_) => tally.fail(format!("fuzz target {}", outcome.name)),
        }
    }
    Ok(tally)
}

fn close(tally: &Tally) -> Result<()> {
    for line in &tally.skipped {
        println!("SKIPPED {line}");
    }
    for name in &tally.failures {
        println!("FAILED {name}");
    }
    println!("{tally}");
    if tally.failed > 0 {
        // The closing line must be the last, so no error message follows.
        std::process::exit(1);
    }
    Ok(())
}
