//! A network namespace, entered by a thread that runs closures in it.

use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// The namespace ends with its thread, which ends when this is dropped. Threads that are started in it are in it too.
pub(crate) struct Namespace {
    pub(crate) thread: String,
    work: mpsc::Sender<Work>,
}

impl Namespace {
    pub(crate) fn new() -> io::Result<Self> {
        let (work, orders) = mpsc::channel::<Work>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let made = enter().map(|()| rustix::thread::gettid().as_raw_nonzero().to_string());
            let is_made = made.is_ok();
            tell.send(made).unwrap();
            if is_made {
                orders.iter().for_each(|work| work());
            }
        });
        Ok(Self { thread: told.recv().unwrap()?, work })
    }

    /// Runs a closure, which may block, in the namespace.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = oneshot::channel();
        let work = Box::new(move || {
            let _ = tell.send(work());
        });
        self.work.send(work).unwrap();
        told.await.unwrap()
    }
}

/// Moves the calling thread into a namespace of its own, with a loopback.
pub(crate) fn enter() -> io::Result<()> {
    // SAFETY: only the network namespace of this thread changes; no file descriptor depends on it.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    sh("ip link set lo up");
    Ok(())
}

/// Runs a shell command in the namespace of the calling thread.
pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
    String::from_utf8(output.stdout).unwrap()
}
