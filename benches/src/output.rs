//! A command that prints 1 GiB: it must end quickly, with an answer of bounded size.

use std::time::{Duration, Instant};

use agentiso_testkit::{Client, TestWorkspace};
use anyhow::{Context, Result};
use serde_json::json;

use crate::figures::{Figures, Key, Measured};
use crate::setup::Setup;

pub(crate) const BYTES: u64 = 1 << 30;

/// The time limit for an emulated VM on a busy host.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);

/// The command for the workspace and the container.
pub(crate) fn command() -> String {
    format!("yes | head -c {BYTES}")
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    workspace.sh("true");
    let mut figures = Figures::default();
    let (reply, time) = run(&client, &workspace, &command())?;
    anyhow::ensure!(reply.contains(&BYTES.to_string()), "the answer does not say how much there was");
    figures.set(Key::Output, Measured::transfer(BYTES, time));
    // The same number of pipes, with a program instead of the agent as the last reader.
    let (_, time) = run(&client, &workspace, &format!("{} | cat > /dev/null", command()))?;
    figures.set(Key::GuestOutput, Measured::transfer(BYTES, time));
    workspace.destroy();
    Ok(figures)
}

/// Runs a long command and returns the whole answer as text.
fn run(client: &Client, workspace: &TestWorkspace<'_>, command: &str) -> Result<(String, Duration)> {
    let arguments = workspace.with_id(json!({"command": command, "timeout_secs": LIMIT.as_secs()}));
    let start = Instant::now();
    let reply = client.start_tool("exec", arguments).wait_for(LIMIT).context("no answer in time")?;
    let time = start.elapsed();
    let text = format!("{reply:?}");
    anyhow::ensure!(text.contains("exit_code"), "the command did not run: {text:.300}");
    Ok((text, time))
}
