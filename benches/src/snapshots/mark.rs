//! Proof that a machine's memory came back: a file that is nowhere else.

use agentiso_testkit::TestWorkspace;
use anyhow::Result;

/// On a file system in memory, which is checked.
const MARK: &str = "/run/mark";

pub(crate) fn leave(workspace: &TestWorkspace<'_>) {
    workspace.sh("grep -q ' /run tmpfs ' /proc/mounts");
    workspace.sh(&format!("touch {MARK}"));
}

pub(crate) fn expect(workspace: &TestWorkspace<'_>, wanted: bool) -> Result<()> {
    let found = workspace.exec(&format!("test -e {MARK}")).exit_code == 0;
    anyhow::ensure!(found == wanted, "the machine began {} memory", if found { "with" } else { "without" });
    Ok(())
}
