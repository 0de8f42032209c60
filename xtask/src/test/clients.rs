//! Real MCP clients: every program in tests/clients is one test.
//!
//! A program exits with 0 on success, and appends `name: reason` to the file named by `AGENTISO_SKIP_LOG` for each
//! skipped part. If its last line is a closing line, its numbers are added to ours.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::prepare::Prepared;
use super::tally::{SkipLog, Tally};
use crate::shell;

/// Time for a script to set up its client's environment and boot a few VMs under emulation.
const LIMIT: Duration = Duration::from_secs(420);

pub(crate) fn run(prepared: &Prepared, skips: &mut SkipLog) -> Result<Tally> {
    let mut tally = Tally::default();
    for program in programs(&shell::root().join("tests/clients"))? {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut command = shell::command(&program);
        prepared.environment(&mut command, skips.path());
        eprintln!("$ tests/clients/{name}");
        tally.add(run_one(&name, &mut command, skips)?);
    }
    Ok(tally)
}

fn run_one(name: &str, command: &mut std::process::Command, skips: &mut SkipLog) -> Result<Tally> {
    let mut tally = Tally::default();
    let Some(output) = shell::collect_within(command, LIMIT)? else {
        tally.fail(format!("client {name}: did not end within {} s", LIMIT.as_secs()));
        return Ok(tally);
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let skipped = skips.new_lines()?;
    match text.lines().last().and_then(Tally::parse) {
        Some((passed, failed, _)) => {
            tally.passed = passed;
            for _ in 0..failed {
                tally.fail(format!("client {name}"));
            }
            tally.skipped = skipped;
        }
        None if output.status.success() && !skipped.is_empty() => tally.skipped = skipped,
        None if output.status.success() => tally.pass(),
        None => {}
    }
    if !output.status.success() && tally.failed == 0 {
        tally.fail(format!("client {name}: {}", output.status));
    }
    if tally.failed > 0 {
        eprintln!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(tally)
}

/// The executable files of a directory, in order of their names; none if there is no directory.
fn programs(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error).with_context(|| format!("reading {}", dir.display())),
    };
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
