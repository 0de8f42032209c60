//! Comparison with alternatives to a VM (crun, bubblewrap), on the same root file system.
//!
//! The measurements run in a separate process (`agentiso-bench containers`). If the host has cgroups of both versions,
//! which crun refuses, that process gets a mount namespace without the second hierarchy. So this workaround is not part
//! of any figure.

mod bwrap;
mod crun;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::figures::{Figures, Key, Measured};
use crate::program;
use crate::program::Running;
use crate::setup::Runs;

/// The second cgroup hierarchy of a host with both versions.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// The keys that this process fills.
const CRUN: [Key; 3] = [Key::CrunRun, Key::CrunExec, Key::CrunOutput];

/// Options of the measuring process.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[arg(long)]
    rootfs: PathBuf,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    quick: bool,
}

/// Measures in a separate process.
pub(crate) fn measure(rootfs: &Path, dir: &Path, quick: bool) -> Result<Figures> {
    let own = std::env::current_exe().context("finding our own program")?;
    let mut command = if Path::new(UNIFIED).is_dir() && rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg(format!("umount {UNIFIED}; exec \"$0\" \"$@\"")).arg(own);
        command
    } else {
        Command::new(own)
    };
    command.arg("containers").arg("--rootfs").arg(rootfs).arg("--dir").arg(dir);
    if quick {
        command.arg("--quick");
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("the comparison could not be started")?;
    let mut running = Running(child);
    let stdout = running.0.stdout.take().context("a pipe was asked for")?;
    // Every single step there has a deadline, so this wait ends.
    let figures = serde_json::from_reader(stdout).context("the comparison gave no figures")?;
    Ok(figures)
}

/// The measuring process: it prints the figures as JSON on standard output.
#[expect(clippy::print_stdout, reason = "the answer to the process that asked")]
pub(crate) fn run(options: &Options) -> Result<()> {
    let runs = if options.quick { Runs::QUICK } else { Runs::FULL };
    let mut figures = Figures::default();
    match program::find("crun") {
        Some(crun) => figures.merge(or_failed(&CRUN, crun::measure(&crun, options, runs))),
        None => figures.merge(absent(&CRUN, "not installed")),
    }
    match program::find("bwrap") {
        Some(bwrap) => figures.merge(or_failed(&[Key::BwrapRun], bwrap::measure(&bwrap, options, runs))),
        None => figures.merge(absent(&[Key::BwrapRun], "not installed")),
    }
    println!("{}", serde_json::to_string(&figures).context("figures are JSON")?);
    Ok(())
}

/// A comparison that fails on this host is reported with its reason.
fn or_failed(keys: &[Key], figures: Result<Figures>) -> Figures {
    figures.unwrap_or_else(|error| absent(keys, &format!("does not work here: {error:#}")))
}

fn absent(keys: &[Key], reason: &str) -> Figures {
    let mut figures = Figures::default();
    for key in keys {
        figures.set(*key, Measured::Absent(reason.to_owned()));
    }
    figures
}

/// Times a number of runs of a command.
fn repeated(runs: usize, mut run: impl FnMut(usize) -> Result<()>) -> Result<Measured> {
    let mut times = Vec::new();
    for turn in 0..=runs {
        let (outcome, time) = crate::samples::timed(|| run(turn));
        outcome?;
        times.push(time);
    }
    if times.is_empty() {
        bail!("nothing was run");
    }
    // The first run is not counted: it reads the programs from disk.
    Ok(Measured::times(times.into_iter().skip(1)))
}
