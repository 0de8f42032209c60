//! Measures process starts, as a baseline for the cost of commands.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Instant;

use super::run::ExecError;
use crate::spawn::{Program, ProgramFile, spawn};

/// Largest time that is reported: an hour.
pub const MAX_PROBE_MICROS: u32 = 3_600_000_000;

/// Starts `/bin/sh -c true` `count` times, one after the other, and returns the time of each until it was reaped.
pub fn probe(count: u32) -> Result<Vec<u32>, ExecError> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let args = [c"sh".to_owned(), c"-c".to_owned(), c"true".to_owned()];
    let env = [c"PATH=/usr/bin:/bin".to_owned()];
    (0..count)
        .map(|_| {
            let started = Instant::now();
            let child = spawn(&Program {
                file: ProgramFile::Path(c"/bin/sh"),
                args: &args,
                env: &env,
                workdir: None,
                stdio: [Some(null.as_fd()); 3],
                session: true,
                oom_score: c"0",
                share_root: false,
            })?;
            if child.wait()?.exit_status() != Some(0) {
                return Err(ExecError::System(io::Error::other("true failed")));
            }
            Ok(u32::try_from(started.elapsed().as_micros()).unwrap_or(MAX_PROBE_MICROS))
        })
        .collect()
}
