//! `workspace_fork` of a snapshot with memory to the first answer of `exec`: one by one, and ten at once.

use std::time::Duration;

use agentiso_testkit::{TestHost, TestWorkspace};
use anyhow::Result;

use super::mark;
use crate::figures::{Figures, Key, Measured};
use crate::process_memory::{pss, settle};
use crate::samples::timed;
use crate::setup::Setup;

const SNAPSHOT: &str = "memory";

/// At once, as promised.
const MANY: usize = 10;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let source = client.workspace();
    mark::leave(&source);
    source.snapshot_with_memory(SNAPSHOT);
    // One more than counted, for the first time the memory is read.
    let one = (0..=setup.runs.forks).map(|_| fork(&source)).collect::<Result<Vec<_>>>()?;
    settle();
    let alone = pss(&host.machines())?;
    let (mut many, mut added) = (Vec::new(), 0);
    for _ in 0..setup.runs.batches {
        many.push(fork_many(&host, &source));
        settle();
        let machines = host.machines();
        anyhow::ensure!(
            machines.len() == MANY + 1,
            "{} machines run instead of {MANY} forks",
            machines.len()
        );
        added = pss(&machines)?.saturating_sub(alone) / MANY as u64;
        let names: Vec<String> = names().collect();
        host.cli_ok(&[&["rm"], &*names.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    }
    source.destroy();
    let mut figures = Figures::default();
    figures.set(Key::MemoryFork, Measured::times(one.into_iter().skip(1)));
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

fn names() -> impl Iterator<Item = String> {
    (1..=MANY).map(|number| format!("many-{number}"))
}

/// At the shell: the source and ten forks are more workspaces than one MCP session may have. Each has answered a command
/// when the call ends.
fn fork_many(host: &TestHost, source: &TestWorkspace<'_>) -> Duration {
    let count = MANY.to_string();
    let call = ["fork", &source.name, SNAPSHOT, "--count", &count, "--prefix", "many", "--setup", "true"];
    timed(|| host.cli_ok(&call)).1
}
