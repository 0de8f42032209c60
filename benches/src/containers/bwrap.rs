//! Measurements of bubblewrap: a command in namespaces, without a container.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::{Options, repeated};
use crate::figures::{Figures, Key};
use crate::program;
use crate::setup::Runs;

const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn measure(bwrap: &Path, options: &Options, runs: Runs) -> Result<Figures> {
    let times = repeated(runs.container_starts, |_| {
        let mut command = Command::new(bwrap);
        command.arg("--bind").arg(&options.rootfs).args(["/", "--proc", "/proc", "--dev", "/dev"]);
        command.args(["--unshare-all", "--die-with-parent", "true"]);
        program::run(&mut command, LIMIT)
    });
    let mut figures = Figures::default();
    figures.set(Key::BwrapRun, times?);
    Ok(figures)
}
