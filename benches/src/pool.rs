//! Time of `workspace_create` from the warm pool, and of the first `exec`.

use std::time::Duration;

use agentiso_testkit::{Client, TestHost};
use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::process_memory::wait;
use crate::samples::timed;
use crate::setup::{Setup, WARM_UP};

/// The default size of the warm pool.
const READY: usize = 2;

/// The time for the pool to fill, and the interval of checks. There is no event when it is full.
const FILL_LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time between the start of a VM's process and its being ready.
const RISE: Duration = Duration::from_secs(5);

/// The number of warm calls in each VM.
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
    // A workspace that is not from the pool fails the figures, so the loop stops.
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

/// Waits for the pool to fill. If it does not, the next create shows it.
fn fill(host: &TestHost) {
    let looks = FILL_LIMIT.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        if host.vms().len() >= READY {
            break;
        }
        wait(LOOK_EVERY);
    }
    wait(RISE);
}

/// Creates a workspace. Returns whether it was from the pool; only then is its time recorded.
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
