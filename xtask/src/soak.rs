//! `./x soak`: builds agentiso with its named faults and runs tests/soak on it.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::shell;
use crate::test::prepare::{self, Prepared};

const PACKAGE: &str = "agentiso-soak";

/// Time to compare and destroy tens of workspaces, on a busy host under emulation.
const AFTERWARDS: Duration = Duration::from_secs(900);

/// A command that fails where the soak would.
const TRY_OUT: &str = "ip link set lo up && losetup --find && mkfs.ext4 -V";

#[derive(Args)]
pub(crate) struct Options {
    /// Minutes of faults, without the time for comparing and cleaning up
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of operations and faults, to repeat an earlier run
    #[arg(long)]
    seed: Option<u64>,
    /// Further arguments for the soak itself: ./x soak -- --help
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let prepared = prepare::prepare()?;
    let mut command = command(&prepared, options.minutes)?;
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    shell::run(command.args(&options.arguments))
}

/// Builds the soak and returns the command that runs it. It prints its seed and its report, keeps its evidence in
/// target/soak, and fails if there are findings.
fn command(prepared: &Prepared, minutes: f64) -> Result<Command> {
    // With the tests' features, so that nothing is built twice.
    let build = ["build", "--package", PACKAGE, "--package", "agentiso", "--features", prepare::FEATURES];
    shell::run(shell::cargo().args(build))?;
    let target = prepare::target_dir()?;
    let mut command = shell::command(target.join("debug").join(PACKAGE));
    prepared.environment(&mut command, &target.join("skips.log"));
    command.arg("--evidence").arg(target.join("soak"));
    command.args(["--minutes", &minutes.to_string()]);
    Ok(command)
}

/// Runs the soak as a test, and returns the reason if it failed.
pub(crate) fn run_within(prepared: &Prepared, minutes: f64) -> Result<Option<String>> {
    let mut command = command(prepared, minutes)?;
    eprintln!("$ {}", shell::shown(&command));
    let limit = Duration::from_secs_f64(minutes * 60.0) + AFTERWARDS;
    let Some(output) = shell::collect_within(&mut command, limit)? else {
        return Ok(Some(format!("did not end within {} s", limit.as_secs())));
    };
    eprintln!("{}", String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(None);
    }
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(Some("it found problems; the evidence is in target/soak".to_owned()))
}

/// The reason why the soak cannot run here, if there is one.
pub(crate) fn lack(prepared: &Prepared) -> Option<&'static str> {
    if !prepared.can_boot() {
        return Some("QEMU is not installed");
    }
    let mut try_out = shell::command("unshare");
    try_out.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", TRY_OUT]);
    let may = shell::succeeds(&mut try_out);
    (!may).then_some(
        "it needs root (for namespaces and loop devices) and the programs unshare, ip and mkfs.ext4",
    )
}
