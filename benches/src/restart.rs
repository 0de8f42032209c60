//! Time of `workspace_start` of a stopped workspace to the first answer of `exec`.

use anyhow::Result;

use crate::figures::{Figures, Key, Measured};
use crate::samples::timed;
use crate::setup::{Setup, expect_rung};
use crate::vm_line::Rung;

pub(crate) fn measure(setup: &Setup) -> Result<Figures> {
    let host = setup.host("");
    let client = host.client();
    let workspace = client.workspace();
    let mut times = Vec::new();
    // One more than counted: the first run reads the disk.
    for _ in 0..=setup.runs.restarts {
        workspace.stop();
        let ((), time) = timed(|| {
            workspace.start();
            workspace.sh("true");
        });
        expect_rung(&host, Rung::BareTemplate)?;
        times.push(time);
    }
    workspace.destroy();
    let mut figures = Figures::default();
    figures.set(Key::StartAfterStop, Measured::times(times.into_iter().skip(1)));
    Ok(figures)
}
