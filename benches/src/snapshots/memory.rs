//! Memory snapshots of a VM with a process that constantly writes memory: their duration, and the pause of the VM.

use std::time::Duration;

use agentiso_testkit::ToolResult;
use anyhow::Result;

use super::load::Load;
use crate::figures::{Figures, Key, Measured};
use crate::process_memory::wait;
use crate::samples::timed;
use crate::setup::Setup;

const NAME: &str = "bench";

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    let load = Load::start(&workspace, &setup.dir)?;
    let (mut calls, mut by_qemu) = (Vec::new(), Vec::new());
    let (mut by_ticker, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..setup.runs.snapshots {
        let before = load.ask()?;
        let (answer, call) = timed(|| workspace.snapshot_with_memory(NAME));
        let after = load.ask()?;
        after.ensure_busy_since(&before)?;
        calls.push(call);
        by_qemu.extend(pause(&answer));
        by_ticker.push(after.pause_since(&before));
        lost.push(after.lost_since(&before));
        workspace.delete_snapshot(NAME);
    }
    let typical = calls[calls.len() / 2];
    let alone = (0..setup.runs.snapshots.div_ceil(5)).map(|_| {
        let before = load.ask()?;
        wait(typical);
        Ok(load.ask()?.pause_since(&before))
    });
    let mut figures = Figures::default();
    figures.set(Key::TickerAlone, Measured::times(alone.collect::<Result<Vec<_>>>()?));
    figures.set(Key::MemorySnapshot, Measured::times(calls));
    figures.set(Key::PauseByTicker, Measured::times(by_ticker));
    figures.set(Key::ClockLoss, Measured::times(lost));
    let by_qemu = if by_qemu.is_empty() {
        Measured::Failed("the answer does not tell it".to_owned())
    } else {
        Measured::times(by_qemu)
    };
    figures.set(Key::PauseByQemu, by_qemu);
    workspace.destroy();
    Ok(figures)
}

/// The pause that the answer reports.
fn pause(answer: &ToolResult) -> Option<Duration> {
    Duration::try_from_secs_f64(answer.structured["pause_ms"].as_f64()? / 1e3).ok()
}
