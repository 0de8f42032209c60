//! `./x fuzz`: the targets of fuzz/, built by plain cargo on a stable compiler and run for a bounded time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use crate::shell;

/// The flags that `cargo fuzz` passes for coverage without a sanitizer: inline counters, the table that names them, and
/// tracing of comparisons.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing";

/// The triple is given although it is the host's: only then do the flags not apply to build scripts and macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The time limit for one input.
const INPUT_LIMIT_SECS: u32 = 10;

/// The time that a run may take beyond its fuzzing time: loading the corpus, and a last slow input.
const SLACK: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds to run each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run only targets whose name contains this
    filter: Option<String>,
}

/// The result of one target.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let outcomes = run_targets(options.seconds, options.filter.as_deref())?;
    let failed: Vec<_> = outcomes.iter().filter(|o| o.failure.is_some()).map(|o| o.name.as_str()).collect();
    if !failed.is_empty() {
        bail!("fuzz targets failed: {}", failed.join(", "));
    }
    println!("{} fuzz targets, no failures", outcomes.len());
    Ok(())
}

/// Builds all targets and runs each for `seconds`. The result is empty if there are no targets.
pub(crate) fn run_targets(seconds: u64, filter: Option<&str>) -> Result<Vec<Outcome>> {
    let dir = shell::root().join("fuzz");
    if !dir.join("Cargo.toml").exists() {
        return Ok(Vec::new());
    }
    let target_dir = dir.join("target");
    shell::run(
        shell::cargo()
            .args(["build", "--release", "--bins", "--target", TARGET, "--manifest-path", "fuzz/Cargo.toml"])
            .arg("--target-dir")
            .arg(&target_dir)
            .env("RUSTFLAGS", COVERAGE)
            // No target boots a VM.
            .env("AGENTISO_GUEST_BINARY", "none")
            // A short run gains less from optimisation than the build costs; a crash needs line numbers only.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    let mut names = targets()?;
    names.retain(|name| filter.is_none_or(|wanted| name.contains(wanted)));
    // Targets write files until they are killed. They are kept in memory if possible, because some targets sync every
    // file.
    let scratch = match Path::new("/dev/shm") {
        memory if memory.is_dir() => tempfile::tempdir_in(memory),
        _ => tempfile::tempdir(),
    }
    .context("creating a directory for the files of fuzz targets")?;
    // A fuzzer has one thread.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut outcomes = Vec::new();
    for some in names.chunks(at_once) {
        let run = |name: &String| {
            let binary = target_dir.join(TARGET).join("release").join(name);
            let failure = run_target(name, &binary, scratch.path(), seconds)?;
            if let Some(text) = &failure {
                eprintln!("fuzz target {name} failed:\n{text}");
            }
            Ok(Outcome { name: name.clone(), failure })
        };
        let ended: Vec<Result<Outcome>> = std::thread::scope(|scope| {
            let running: Vec<_> = some.iter().map(|name| scope.spawn(|| run(name))).collect();
            running.into_iter().map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
        });
        for outcome in ended {
            outcomes.push(outcome?);
        }
    }
    Ok(outcomes)
}

fn run_target(name: &str, binary: &Path, scratch: &Path, seconds: u64) -> Result<Option<String>> {
    // New inputs go to a separate directory: the corpus in the repository is extended by hand only.
    let found = shell::root().join("fuzz/target/found").join(name);
    let artifacts = shell::root().join("fuzz/artifacts").join(name);
    for dir in [&found, &artifacts] {
        std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let mut command = shell::command(binary);
    command
        .env("TMPDIR", scratch)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_LIMIT_SECS}"))
        .arg("-rss_limit_mb=2048")
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .arg(&found);
    let corpus = shell::root().join("fuzz/corpus").join(name);
    if corpus.exists() {
        command.arg(corpus);
    }
    eprintln!("$ {name} for {seconds} s");
    match shell::collect_within(&mut command, Duration::from_secs(seconds) + SLACK)? {
        None => Ok(Some("timed out and was killed".to_owned())),
        Some(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if let Some(line) = text.lines().find(|line| line.contains("stat::number_of_executed_units")) {
                eprintln!("  {name}: {line}");
            }
            Ok(None)
        }
        Some(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let tail: Vec<_> = text.lines().rev().take(30).collect();
            Ok(Some(tail.into_iter().rev().collect::<Vec<_>>().join("\n")))
        }
    }
}

/// The names of the binaries, as cargo sees them.
fn targets() -> Result<Vec<String>> {
    let mut command = shell::cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path", "fuzz/Cargo.toml"]);
    let metadata: serde_json::Value =
        serde_json::from_str(&shell::read(&mut command)?).context("reading the output of cargo metadata")?;
    let mut names: Vec<String> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| {
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
        })
        .filter_map(|target| target["name"].as_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}
