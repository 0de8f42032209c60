//! What the jail costs: creates, forks and calls of machines in it and of machines without, in turns, so that whatever
//! else the host does hits both alike.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost, TestWorkspace};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, WARM_UP};

const SNAPSHOT: &str = "memory";

/// A server whose machines are in the jail, or are not, and its times.
struct Side<'a> {
    client: &'a Client,
    source: TestWorkspace<'a>,
    creates: Vec<Duration>,
    forks: Vec<Duration>,
    execs: Vec<Duration>,
}

impl<'a> Side<'a> {
    fn new(client: &'a Client) -> Self {
        let source = client.workspace();
        source.snapshot_with_memory(SNAPSHOT);
        let mut side = Self { client, source, creates: Vec::new(), forks: Vec::new(), execs: Vec::new() };
        // The first of each reads what the next ones find in memory.
        side.create();
        side.fork();
        (0..WARM_UP).for_each(|_| side.exec());
        (side.creates, side.forks, side.execs) = (Vec::new(), Vec::new(), Vec::new());
        side
    }

    fn create(&mut self) {
        let (made, time) = timed(|| first_answer(self.client.workspace()));
        made.destroy();
        self.creates.push(time);
    }

    fn fork(&mut self) {
        let (made, time) = timed(|| first_answer(self.source.fork(SNAPSHOT)));
        made.destroy();
        self.forks.push(time);
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
    let mut sides = clients.each_ref().map(Side::new);
    for round in 0..setup.runs.jailed {
        // Neither is always the one that comes first.
        for at in [round % 2, (round + 1) % 2] {
            sides[at].create();
            sides[at].fork();
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
