//! Time of `workspace_fork` from a memory snapshot to the first answer of `exec`: one by one, and ten at once.

use std::time::Duration;

use agentiso_testkit::{TestHost, TestWorkspace};
use anyhow::Result;

use super::mark;
use crate::figures::{Figures, Key, Measured};
use crate::process_memory::{pss, settle};
use crate::samples::timed;
use crate::setup::Setup;

const SNAPSHOT: &str = "memory";
const PREFIX: &str = "many";

/// The number of forks at once in the promise.
const MANY: usize = 10;

/// The number of single forks before each batch: both must be measured at about the same time.
const SINGLE: usize = 3;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let source = client.workspace();
    mark::leave(&source);
    source.snapshot_with_memory(SNAPSHOT);
    // One more than counted: the first fork reads the memory file.
    let alone = (0..=setup.runs.forks).map(|_| fork(&source)).collect::<Result<Vec<_>>>()?;
    settle();
    let before = pss(&host.vms())?;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..setup.runs.batches {
        if !many.is_empty() {
            remove(&host, MANY);
        }
        for _ in 0..SINGLE {
            one.push(fork_at_shell(&host, &source, 1));
            remove(&host, 1);
        }
        many.push(fork_at_shell(&host, &source, MANY));
    }
    settle();
    let vms = host.vms();
    anyhow::ensure!(vms.len() == MANY + 1, "{} VMs run instead of {MANY} forks", vms.len());
    let added = pss(&vms)?.saturating_sub(before) / MANY as u64;
    remove(&host, MANY);
    source.destroy();
    let mut figures = Figures::default();
    figures.set(Key::MemoryFork, Measured::times(alone.into_iter().skip(1)));
    figures.set(Key::ShellFork, Measured::times(one));
    figures.set(Key::ManyForks, Measured::times(many));
    figures.set(Key::ForkMemory, Measured::Bytes(added));
    Ok(figures)
}

fn fork(source: &TestWorkspace<'_>) -> Result<Duration> {
    let (fork, time) = timed(|| {
        let fork = source.fork(SNAPSHOT);
        fork.sh("true");
        fork
    });
    mark::expect(&fork, true)?;
    fork.destroy();
    Ok(time)
}

/// Forks through the CLI, because the source and ten forks exceed the limit of one MCP session. Each fork has run a
/// command when the call ends.
fn fork_at_shell(host: &TestHost, source: &TestWorkspace<'_>, count: usize) -> Duration {
    let (source, count) = (source.name.as_str(), count.to_string());
    let call = ["fork", source, SNAPSHOT, "--count", &count, "--prefix", PREFIX, "--setup", "true"];
    timed(|| host.cli_ok(&call)).1
}

fn remove(host: &TestHost, count: usize) {
    let names: Vec<String> = (1..=count).map(|number| format!("{PREFIX}-{number}")).collect();
    host.cli_ok(&[&["rm"], &*names.iter().map(String::as_str).collect::<Vec<_>>()].concat());
}
