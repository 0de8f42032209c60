//! The cost of the jail: creates, forks and calls of VMs with and without it, in turns, so that other load of the host
//! affects both alike.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost, TestWorkspace};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, WARM_UP, expect_rung_of};
use crate::snapshots::mark;
use crate::vm_line::Rung;

const SNAPSHOT: &str = "memory";

/// A host with or without the jail, and its times.
struct Side<'a> {
    host: &'a TestHost,
    client: &'a Client,
    source: TestWorkspace<'a>,
    creates: Vec<Duration>,
    forks: Vec<Duration>,
    execs: Vec<Duration>,
}

impl<'a> Side<'a> {
    fn new(host: &'a TestHost, client: &'a Client) -> Result<Self> {
        let source = client.workspace();
        mark::leave(&source);
        source.snapshot_with_memory(SNAPSHOT);
        let (creates, forks, execs) = (Vec::new(), Vec::new(), Vec::new());
        let mut side = Self { host, client, source, creates, forks, execs };
        // Warm-up: the first of each reads files that the next ones find in memory.
        side.create()?;
        side.fork()?;
        (0..WARM_UP).for_each(|_| side.exec());
        (side.creates, side.forks, side.execs) = (Vec::new(), Vec::new(), Vec::new());
        Ok(side)
    }

    /// Times one create. A VM that started on another rung would distort the comparison, so it is an error.
    fn create(&mut self) -> Result<()> {
        let (made, time) = timed(|| first_answer(self.client.workspace()));
        let began = expect_rung_of(self.host, &made.id, Rung::ImageTemplate);
        made.destroy();
        began?;
        self.creates.push(time);
        Ok(())
    }

    fn fork(&mut self) -> Result<()> {
        let (made, time) = timed(|| first_answer(self.source.fork(SNAPSHOT)));
        let began = mark::expect(&made, true);
        made.destroy();
        began?;
        self.forks.push(time);
        Ok(())
    }

    fn exec(&mut self) {
        self.execs.push(timed(|| self.source.exec("true")).1);
    }
}

fn first_answer(workspace: TestWorkspace<'_>) -> TestWorkspace<'_> {
    workspace.sh("true");
    workspace
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let hosts = [setup.host("[vm]\njail = \"required\"\n"), setup.host("[vm]\njail = \"off\"\n")];
    let clients = hosts.each_ref().map(TestHost::client);
    let [jailed, open] = [0, 1].map(|at: usize| Side::new(&hosts[at], &clients[at]));
    let mut sides = [jailed?, open?];
    for round in 0..setup.runs.jailed {
        // The order alternates.
        for at in [round % 2, (round + 1) % 2] {
            sides[at].create()?;
            sides[at].fork()?;
        }
    }
    for round in 0..setup.runs.round_trips {
        for at in [round % 2, (round + 1) % 2] {
            sides[at].exec();
        }
    }
    let mut figures = Figures::default();
    let keys =
        [[Key::JailCreate, Key::JailFork, Key::JailExec], [Key::OpenCreate, Key::OpenFork, Key::OpenExec]];
    for (side, [create, fork, exec]) in sides.into_iter().zip(keys) {
        side.source.destroy();
        figures.set(create, Measured::times(side.creates));
        figures.set(fork, Measured::times(side.forks));
        figures.set(exec, Measured::times(side.execs));
    }
    Ok(figures)
}
