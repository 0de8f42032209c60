//! Time to send a file of 100 MiB to the guest and back, through the agent. Over MCP a file has at most 32 MiB, so the
//! agent is called directly, as in [`crate::exec`].

use std::path::Path;
use std::time::Instant;

use agentiso_agent::{AgentClient, WriteOptions};
use agentiso_testkit::LONG;
use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::figures::{Figures, Key, Measured};
use crate::setup::{Setup, agent_socket};

const BYTES: u64 = 100 << 20;
const FILE: &str = "/root/large";

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    workspace.sh("true");
    let id = workspace.id.clone();
    let socket = agent_socket(&host, &id);
    host.kill_daemon();
    client.kill();
    let runtime = tokio::runtime::Runtime::new().context("a runtime")?;
    let figures = runtime.block_on(transfer(&socket));
    host.client().tool("workspace_destroy", json!({ "workspace_id": id }));
    figures
}

async fn transfer(socket: &Path) -> Result<Figures> {
    let agent =
        AgentClient::connect(socket, (Instant::now() + LONG).into()).await.context("the agent answers")?;
    let mut figures = Figures::default();

    let start = Instant::now();
    let content = tokio::io::repeat(b'x').take(BYTES);
    let written = agent.write_file(FILE, WriteOptions::default(), content).await.context("writing")?;
    figures.set(Key::FileWrite, Measured::transfer(written, start.elapsed()));
    anyhow::ensure!(written == BYTES, "{written} bytes were written");

    let start = Instant::now();
    let mut reader = agent.read_file(FILE, 0, None).await.context("reading")?;
    let mut read = 0;
    while let Some(piece) = reader.next().await.context("reading")? {
        read += piece.len() as u64;
    }
    figures.set(Key::FileRead, Measured::transfer(read, start.elapsed()));
    anyhow::ensure!(read == BYTES, "{read} bytes were read");
    Ok(figures)
}
