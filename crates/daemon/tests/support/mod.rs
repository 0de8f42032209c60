//! A fake host for tests: processes and disks are files, so that they outlive a daemon as real ones do, and every
//! step can be made to fail or to hang.
#![allow(dead_code, unused_imports, reason = "each test program uses its own part of it")]

mod carry;
mod guest;
mod host;
mod vm;
mod volume;

use std::path::Path;
use std::sync::Arc;

use agentiso_core::config::{Config, UserDirs};
use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_daemon::{CreateRequest, Daemon, ExecSpec, OpError, Session};

pub(crate) use host::{FakeHost, FakeVms, Fault};
pub(crate) use volume::Volume;

/// A configuration with every path below `root`, without a pool unless `more` asks for one.
pub(crate) fn config(root: &Path, more: &str) -> Config {
    let dirs = UserDirs { uid: 1000, home: root.into(), state_home: None, runtime_dir: None };
    let pool = if more.contains("[pool]") { "" } else { "[pool]\nenabled = false\n" };
    let text = format!("[server]\nstate_file = \"{}/state.json\"\n{pool}{more}", root.display());
    Config::parse(&text, &dirs).expect("a valid configuration")
}

pub(crate) async fn open(root: &Path, host: &Arc<FakeHost>) -> Daemon {
    Daemon::open_with(config(root, ""), Arc::new(FakeVms(Arc::clone(host)))).await.expect("the daemon opens")
}

pub(crate) fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(WorkspaceName::parse(name).expect("a valid name")), ..small() }
}

/// Small enough that ten of them fit a session's quota.
pub(crate) fn small() -> CreateRequest {
    CreateRequest { memory_mb: Some(128), disk_gb: Some(2), ..CreateRequest::default() }
}

pub(crate) fn by_name(name: &str) -> WorkspaceRef {
    WorkspaceRef::parse(name)
}

pub(crate) fn snap(name: &str) -> SnapshotName {
    SnapshotName::parse(name).expect("a valid name")
}

/// Runs a command in a workspace and returns its output.
pub(crate) async fn run_command(
    session: &Session,
    workspace: &str,
    command: &str,
) -> Result<String, OpError> {
    let outcome = session.guest(&by_name(workspace)).await?.exec(ExecSpec::shell(command)).await?;
    assert_eq!(outcome.exit_code, Some(0), "{command}");
    Ok(String::from_utf8(outcome.stdout.head.to_vec()).expect("text"))
}

/// Waits for a condition that another task is about to fulfil.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
