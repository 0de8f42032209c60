//! `./x lint`: clippy over all targets of the workspace, warnings denied.

use anyhow::Result;

use crate::shell;

pub(crate) fn run() -> Result<()> {
    shell::run(shell::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}
