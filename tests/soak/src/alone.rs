//! Namespaces of its own for a run: nothing that others do on this machine is taken for the server's, nothing of the run
//! reaches them, and when the run ends, however it ends, the kernel ends every process of it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Says to the program that it is inside.
pub(crate) const INSIDE: &str = "AGENTISO_SOAK_INSIDE";

/// The shell is the first process of the namespace: it collects the processes whose parents ended, as init does on a host.
const FIRST: &str = "ip link set lo up && \"$0\" \"$@\"; exit $?";

/// Becomes the program that makes the namespaces, and that runs this one in them with the same arguments. Whoever kills it
/// ends everything in them. Returns only if that fails.
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
