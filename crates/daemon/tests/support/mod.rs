//! A world of machines for tests: processes and disks are files, so that they outlive a daemon as real ones do,
//! and every step can be told to fail or to hang.
#![allow(dead_code, unused_imports, reason = "each test program uses its own part of it")]

mod guest;
mod machine;
mod world;

use std::path::Path;
use std::sync::Arc;

use agentiso_core::config::{Config, UserDirs};
use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_daemon::{CreateRequest, Daemon};

pub(crate) use world::{Fault, Handle, World};

/// A configuration whose every path is below `root`.
pub(crate) fn config(root: &Path, more: &str) -> Config {
    let dirs = UserDirs { uid: 1000, home: root.into(), state_home: None, runtime_dir: None };
    let text = format!("[server]\nstate_file = \"{}/state.json\"\n{more}", root.display());
    Config::parse(&text, &dirs).expect("a valid configuration")
}

pub(crate) async fn open(root: &Path, world: &Arc<World>) -> Daemon {
    Daemon::open_with(config(root, ""), Arc::new(Handle(Arc::clone(world)))).await.expect("the daemon opens")
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

/// Waits for something that another task is about to bring about.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
