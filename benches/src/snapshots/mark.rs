//! A mark in a guest's memory, which proves that the memory was restored: a file in a file system in memory.

use agentiso_testkit::TestWorkspace;
use anyhow::Result;

/// The path of the mark. It is checked that this is a file system in memory.
const MARK: &str = "/run/mark";

pub(crate) fn leave(workspace: &TestWorkspace<'_>) {
    workspace.sh("grep -q ' /run tmpfs ' /proc/mounts");
    workspace.sh(&format!("touch {MARK}"));
}

pub(crate) fn expect(workspace: &TestWorkspace<'_>, wanted: bool) -> Result<()> {
    let found = workspace.exec(&format!("test -e {MARK}")).exit_code == 0;
    anyhow::ensure!(found == wanted, "the VM began {} memory", if found { "with" } else { "without" });
    Ok(())
}
