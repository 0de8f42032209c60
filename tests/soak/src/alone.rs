//! Namespaces for one run of the soak. They keep other programs of the host apart from the run in both directions, and
//! when the run ends, in whatever way, the kernel kills all its processes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The variable that tells the program that it runs inside the namespaces.
pub(crate) const INSIDE: &str = "AGENTISO_SOAK_INSIDE";

/// The shell is the first process of the namespace: it reaps orphaned processes, as init does on a host.
const FIRST: &str = "ip link set lo up && \"$0\" \"$@\"; exit $?";

/// Executes `unshare`, which makes the namespaces and runs this program in them with the same arguments. Killing it
/// ends everything in them. Returns only on failure.
pub(crate) fn run_again(seed: u64) -> Result<Infallible> {
    if !rustix::process::geteuid().is_root() {
        bail!("the soak needs root: it has namespaces of processes, networks and mounts of its own");
    }
    let program = std::env::current_exe().context("the path of this program")?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let error = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", FIRST])
        .arg(program)
        .args(arguments)
        .env(INSIDE, seed.to_string())
        .exec();
    Err(error).context("unshare could not be started")
}
