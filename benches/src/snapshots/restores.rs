//! Time of a restore to the first answer of `exec`, with memory and of the disk alone, in turns.

use std::time::Duration;

use agentiso_testkit::TestWorkspace;
use anyhow::Result;

use super::mark;
use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, expect_rung};
use crate::vm_line::Rung;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    mark::leave(&workspace);
    workspace.snapshot("disk");
    workspace.snapshot_with_memory("memory");
    let (mut with_memory, mut disk_alone) = (Vec::new(), Vec::new());
    // One more than counted: the first run reads the files.
    for _ in 0..=setup.runs.restores {
        with_memory.push(restore(&workspace, "memory"));
        mark::expect(&workspace, true)?;
        disk_alone.push(restore(&workspace, "disk"));
        mark::expect(&workspace, false)?;
        expect_rung(&host, Rung::BareTemplate)?;
    }
    workspace.destroy();
    let mut figures = Figures::default();
    figures.set(Key::MemoryRestore, Measured::times(with_memory.into_iter().skip(1)));
    figures.set(Key::DiskRestore, Measured::times(disk_alone.into_iter().skip(1)));
    Ok(figures)
}

fn restore(workspace: &TestWorkspace<'_>, snapshot: &str) -> Duration {
    let restore = || {
        workspace.restore(snapshot);
        workspace.sh("true");
    };
    timed(restore).1
}
