//! `./x deny`: the policy of deny.toml over the dependency tree.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{shell, tools};

/// The advisory database is a git clone; a network that swallows packets must not hold the chore for ever.
const ADVISORIES_LIMIT: Duration = Duration::from_secs(120);

/// What cargo-deny says when it could not get the database at all, as against finding something in it.
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
        return skipped("the advisory database did not arrive in time");
    };
    if output.status.success() {
        eprintln!("advisories ok");
        return Ok(());
    }
    if String::from_utf8_lossy(&output.stderr).contains(NO_DATABASE) {
        return skipped("the advisory database cannot be reached from here");
    }
    std::io::stderr().write_all(&output.stderr)?;
    bail!("an advisory concerns one of the dependencies");
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
