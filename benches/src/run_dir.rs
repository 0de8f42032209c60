//! The directory of one run, and the cleanup of everything that the run started.
//!
//! Every process that a run starts (daemons, VMs, containers) has this directory in its command line. So at the end of
//! a run, after success, failure or a signal, these processes are ended and the directory is removed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentiso_testkit::{Process, processes_mentioning};
use anyhow::{Context, Result};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The time for processes to end by themselves before they are killed.
const GRACE: Duration = Duration::from_secs(20);

/// The search for processes is repeated until none is found, because one may just be starting another.
const LOOKS: usize = 50;

/// The exit code of an interrupted program.
const INTERRUPTED: i32 = 130;

static DIR: OnceLock<PathBuf> = OnceLock::new();
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Makes the directory in /tmp, regardless of TMPDIR, because socket paths must be short. From here on a signal ends
/// the run.
pub(crate) fn create() -> Result<PathBuf> {
    let dir =
        tempfile::Builder::new().prefix("aisob-").tempdir_in("/tmp").context("a directory in /tmp")?.keep();
    let dir = DIR.get_or_init(|| dir).clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
    // Signals are caught before this returns, so that nothing is started that a signal would leave behind.
    let mut signals = {
        let _inside = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            let [Ok(interrupt), Ok(terminate), Ok(hangup)] = &mut signals else { return };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            STOPPING.store(true, Ordering::SeqCst);
            crate::say("ending what was started");
            clean();
            std::process::exit(INTERRUPTED);
        });
    });
    Ok(dir)
}

/// Blocks after a signal, so that nothing more is started or reported: the thread that cleans up also ends this
/// process.
pub(crate) fn wait_if_stopping() {
    while STOPPING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Ends every process of the run and removes its directory.
pub(crate) fn clean() {
    let Some(dir) = DIR.get() else { return };
    end_processes(dir, Signal::TERM);
    for _ in 0..LOOKS {
        if end_processes(dir, Signal::KILL) == 0 {
            break;
        }
    }
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        crate::say(&format!("{} could not be removed: {error}", dir.display()));
    }
}

/// Signals all processes of the run and waits for their end, for at most [`GRACE`] in total. Returns their number.
fn end_processes(dir: &Path, sig: Signal) -> usize {
    let found: Vec<Process> = processes_mentioning(dir).into_iter().filter_map(Process::open).collect();
    for process in &found {
        process.signal(sig);
    }
    let deadline = Instant::now() + GRACE;
    for process in &found {
        process.ends_within(deadline.saturating_duration_since(Instant::now()));
    }
    found.len()
}
