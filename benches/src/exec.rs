//! Time of `exec` with `true` over MCP, and of its parts in the same VM.
//!
//! The channel to a VM's agent has one peer. So after the calls over MCP the daemon is killed, which VMs survive by
//! design, and the agent is called directly. A new daemon takes the VM over and destroys it.

use std::path::Path;
use std::time::{Duration, Instant};

use agentiso_agent::AgentClient;
use agentiso_testkit::LONG;
use agentiso_vm::ExecSpec;
use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::json;

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, WARM_UP, agent_socket};

const PING: &[u8] = &[b'x'; 64];

/// A limit that `true` never reaches.
const TRUE_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    let mut figures = Figures::default();
    for _ in 0..WARM_UP {
        workspace.sh("true");
    }
    let times = (0..setup.runs.round_trips).map(|_| timed(|| workspace.exec("true")).1);
    figures.set(Key::Exec, Measured::times(times.collect::<Vec<_>>()));

    let id = workspace.id.clone();
    let socket = agent_socket(&host, &id);
    host.kill_daemon();
    client.kill();
    let runtime = tokio::runtime::Runtime::new().context("a runtime")?;
    let direct = runtime.block_on(at_the_agent(&socket, setup.runs.round_trips));
    // Destroyed before any failure is reported, so that the VM ends in order.
    host.client().tool("workspace_destroy", json!({ "workspace_id": id }));
    figures.merge(direct?);
    Ok(figures)
}

async fn at_the_agent(socket: &Path, runs: usize) -> Result<Figures> {
    let agent =
        AgentClient::connect(socket, (Instant::now() + LONG).into()).await.context("the agent answers")?;
    let mut figures = Figures::default();
    let ping = || async { Ok(agent.ping(Bytes::from_static(PING)).await?) };
    figures.set(Key::AgentPing, repeated(runs, ping).await?);
    let exec = || async {
        let outcome = agent.exec(ExecSpec::shell("true").within(TRUE_LIMIT)).await?.outcome().await?;
        anyhow::ensure!(outcome.exit_code == Some(0), "true failed: {outcome:?}");
        Ok(())
    };
    figures.set(Key::AgentExec, repeated(runs, exec).await?);
    agent.spawn_probe(WARM_UP as u32).await.context("spawning in the guest")?;
    let spawns = agent.spawn_probe(runs as u32).await.context("spawning in the guest")?;
    figures.set(Key::GuestSpawn, Measured::times(spawns));
    Ok(figures)
}

async fn repeated<F: Future<Output = Result<()>>>(
    runs: usize,
    mut call: impl FnMut() -> F,
) -> Result<Measured> {
    let mut times = Vec::new();
    for _ in 0..WARM_UP + runs {
        let start = Instant::now();
        call().await?;
        times.push(start.elapsed());
    }
    Ok(Measured::times(times.into_iter().skip(WARM_UP)))
}
