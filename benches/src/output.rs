//! A command that prints 1 GiB: it has to end, quickly, with an answer of bounded size.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::figures::{Figures, Key, Measured};
use crate::setup::Setup;

pub(crate) const BYTES: u64 = 1 << 30;

/// What an emulated machine may need on a busy host.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);

/// The command, here and in the container.
pub(crate) fn command() -> String {
    format!("yes | head -c {BYTES}")
}

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    workspace.sh("true");
    let arguments = workspace.with_id(json!({"command": command(), "timeout_secs": LIMIT.as_secs()}));
    let start = Instant::now();
    let call = client.start_tool("exec", arguments);
    let reply = call.wait_for(LIMIT).context("no answer in time")?;
    let time = start.elapsed();
    let text = format!("{reply:?}");
    anyhow::ensure!(text.contains(&BYTES.to_string()), "the answer does not say how much there was");
    workspace.destroy();
    let mut figures = Figures::default();
    figures.set(Key::Output, Measured::transfer(BYTES, time));
    Ok(figures)
}
