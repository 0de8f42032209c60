//! `./x deny`: the policy of deny.toml over the dependency tree.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{shell, tools};

/// The advisory database is a git clone; a network that drops packets must not block the chore for ever.
const ADVISORIES_LIMIT: Duration = Duration::from_secs(120);

/// cargo-deny's message when it could not fetch the database at all.
const NO_DATABASE: &str = "failed to fetch advisory database";

pub(crate) fn run() -> Result<()> {
    tools::ensure("deny")?;
    shell::run(shell::cargo().args([
        "deny",
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))?;
    advisories()
}

fn advisories() -> Result<()> {
    let mut command = shell::cargo();
    command.args(["deny", "--log-level", "error", "check", "advisories"]);
    eprintln!("$ {}", shell::shown(&command));
    let Some(output) = shell::collect_within(&mut command, ADVISORIES_LIMIT)? else {
        return skipped("fetching the advisory database timed out");
    };
    if output.status.success() {
        eprintln!("advisories ok");
        return Ok(());
    }
    if String::from_utf8_lossy(&output.stderr).contains(NO_DATABASE) {
        return skipped("the advisory database is not reachable");
    }
    std::io::stderr().write_all(&output.stderr)?;
    bail!("there is an advisory for one of the dependencies; see above");
}

/// An unreachable database says nothing about the dependencies: it is reported and counted, not failed.
fn skipped(reason: &str) -> Result<()> {
    eprintln!("SKIPPED advisories: {reason}");
    if let Some(path) = std::env::var_os("AGENTISO_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(log, "advisories of dependencies: {reason}")?;
    }
    Ok(())
}
