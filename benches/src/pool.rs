//! `workspace_create` when machines stand ready, and the first `exec` in one of them.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::process_memory::wait;
use crate::samples::timed;
use crate::setup::{Setup, WARM_UP};

/// How many machines stand ready unless the configuration says otherwise.
const READY: usize = 2;

/// How long the pool gets to fill, and how often it is looked at. Nothing outside tells when it is full.
const FILL_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A machine's process is there before the machine is ready.
const RISE: Duration = Duration::from_secs(5);

/// Warm calls in each machine.
const WARM: usize = 5;

#[derive(Default)]
struct Times {
    create: Vec<Duration>,
    first_exec: Vec<Duration>,
    warm_exec: Vec<Duration>,
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.pooled_host();
    let client = host.client();
    let mut times = Times::default();
    // One that is not from the pool fails the figures, so there is no use in going on.
    let all_pooled = (0..setup.runs.pooled).all(|_| {
        fill(&host);
        create(&client, &mut times)
    });
    let measured = |values: Vec<Duration>| match all_pooled {
        true => Measured::times(values),
        false => Measured::Failed("not from the pool".to_owned()),
    };
    let mut figures = Figures::default();
    figures.set(Key::PooledCreate, measured(times.create));
    figures.set(Key::PooledFirstExec, measured(times.first_exec));
    figures.set(Key::PooledExec, measured(times.warm_exec));
    Ok(figures)
}

/// Lets the pool fill. One that does not shows in what is created next.
fn fill(host: &TestHost) {
    let looks = FILL_LIMIT.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        if host.machines().len() >= READY {
            break;
        }
        wait(LOOK_EVERY);
    }
    wait(RISE);
}

/// Whether it was from the pool, and only then timed.
fn create(client: &Client, times: &mut Times) -> bool {
    let (workspace, create) = timed(|| client.workspace());
    let is_pooled = workspace.created["from_pool"] == true;
    if is_pooled {
        times.create.push(create);
        times.first_exec.push(timed(|| workspace.sh("true")).1);
        for _ in 0..WARM_UP {
            workspace.sh("true");
        }
        times.warm_exec.extend((0..WARM).map(|_| timed(|| workspace.sh("true")).1));
    }
    workspace.destroy();
    is_pooled
}
