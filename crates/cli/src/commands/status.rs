//! `agentiso status`: shows the content of the ledger, without the daemon.
//!
//! It is meant for times when something is wrong, so it never fails: problems of reading are part of its output.

use std::path::Path;
use std::process::ExitCode;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::lifecycle::{Phase, PublicState};
use agentiso_daemon::ledger::{self, Found, LedgerDocument, Mended, StoredWorkspace};
use agentiso_daemon::{FoundDaemon, find_daemon};
use jiff::Timestamp;
use serde::Serialize;

use crate::context::Context;
use crate::failure::{Failure, chain};
use crate::other_daemon;
use crate::output;
use crate::processes;
use crate::quarantine::{self, Quarantined};

/// Show the contents of the state file, without the daemon
///
/// Always exits with 0. A workspace that should be running but whose process is gone is marked as dead. Repairs made when the
/// daemon started and the contents of the quarantine are shown too; see `agentiso recover`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso status
  agentiso status --json | jq '.workspaces[] | select(.dead)'")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Status {
    state_file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    saved_at: Option<Timestamp>,
    daemon_pid: Option<u32>,
    /// The daemon of another state file that keeps the daemon of this state file from running or from being reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_daemon: Option<String>,
    /// The network backend.
    network: &'static str,
    workspaces: Vec<Row>,
    /// The repairs of the last start that had to mend something.
    #[serde(skip_serializing_if = "Option::is_none")]
    mended: Option<Mended>,
    /// The items that `agentiso recover` can recover or delete.
    quarantine: Vec<Quarantined>,
}

#[derive(Serialize)]
struct Row {
    workspace_id: WorkspaceId,
    name: String,
    state: PublicState,
    phase: Phase,
    ip: String,
    image: String,
    created_at: Timestamp,
    snapshots: usize,
    pid: Option<i32>,
    /// Whether it runs according to the ledger but its process is gone.
    dead: bool,
    stop_reason: Option<String>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = &context.config.paths.state_file;
    let (document, problem) = match ledger::read(path) {
        Ok(Found::Absent) => (None, None),
        Ok(Found::Whole(document)) => (Some(*document), None),
        Ok(Found::Damaged { document, problems }) => {
            let problem = format!(
                "{}; the daemon rebuilds it from the directories at its next start",
                problems.join("; ")
            );
            (document.map(|document| *document), Some(problem))
        }
        Err(error) => (None, Some(chain(&error))),
    };
    let exists = document.is_some();
    let paths = &context.config.paths;
    let (daemon_pid, other_daemon) = match find_daemon(paths) {
        Some(FoundDaemon::Ours { pid }) => (Some(pid), None),
        Some(FoundDaemon::Other { owner, .. }) => (None, Some(other_daemon::sentence(paths, &owner))),
        None => (None, None),
    };
    let status = Status {
        state_file: path.display().to_string(),
        problem,
        saved_at: document.as_ref().map(|document| document.saved_at),
        daemon_pid,
        other_daemon,
        network: context.config.network.backend.chosen().as_str(),
        mended: document.as_ref().and_then(|document| document.mended.clone()),
        quarantine: quarantine::found(paths),
        workspaces: document.map(rows).unwrap_or_default(),
    };
    if arguments.json {
        output::json(&status)?;
    } else {
        print(&status, path, exists)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(document: LedgerDocument) -> Vec<Row> {
    let mut rows: Vec<Row> = document.workspaces.into_iter().map(|(id, stored)| row(id, stored)).collect();
    rows.sort_by_key(|row| row.created_at);
    rows
}

fn row(id: WorkspaceId, stored: StoredWorkspace) -> Row {
    let state = stored.phase.public();
    let alive = stored.vm.as_ref().is_some_and(processes::is_alive);
    Row {
        workspace_id: id,
        name: stored.name.to_string(),
        state,
        phase: stored.phase,
        ip: stored.ip.to_string(),
        image: stored.image.name.to_string(),
        created_at: stored.created_at,
        snapshots: stored.snapshots.len(),
        pid: stored.vm.as_ref().map(|vm| vm.pid),
        dead: state == PublicState::Running && !alive,
        stop_reason: stored.stop_reason,
    }
}

fn print(status: &Status, path: &Path, exists: bool) -> Result<(), Failure> {
    let now = Timestamp::now();
    match (status.daemon_pid, &status.other_daemon) {
        (_, Some(other)) => output::line(&format!("daemon: {other}; see agentiso check"))?,
        (Some(pid), None) => output::line(&format!("daemon: running, pid {pid}"))?,
        (None, None) => output::line("daemon: not running")?,
    }
    output::line(&format!("network: {}", status.network))?;
    match (&status.problem, status.saved_at) {
        (Some(problem), _) => output::line(&format!("state: unreadable: {problem}"))?,
        (None, Some(saved)) => {
            output::line(&format!("state: {}, saved {}", path.display(), output::age(saved, now)))?;
        }
        (None, None) => output::line(&format!("state: none yet at {}", path.display()))?,
    }
    if let Some(mended) = &status.mended {
        output::line(&format!("repaired {}:", output::age(mended.at, now)))?;
        for line in &mended.lines {
            output::line(&format!("  {line}"))?;
        }
    }
    if !status.quarantine.is_empty() {
        output::line(&format!("quarantine: {}; see agentiso recover", status.quarantine.len()))?;
        for item in &status.quarantine {
            output::line(&format!("  {}: {}", item.what, item.reason))?;
        }
    }
    if status.workspaces.is_empty() {
        return if exists { output::line("no workspaces") } else { Ok(()) };
    }
    let rows = status
        .workspaces
        .iter()
        .map(|row| {
            [
                row.name.clone(),
                if row.dead {
                    format!("{} (dead)", state_word(row.state))
                } else {
                    state_word(row.state).to_owned()
                },
                row.ip.clone(),
                row.image.clone(),
                output::age(row.created_at, now),
                row.snapshots.to_string(),
            ]
        })
        .collect();
    output::line(&output::table(["NAME", "STATE", "IP", "IMAGE", "CREATED", "SNAPSHOTS"], rows))?;
    for row in status.workspaces.iter().filter(|row| row.dead) {
        let pid = row.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        output::line(&format!(
            "{}: should be running, but its process{pid} is gone; the daemon will mark it as stopped when it starts",
            row.name
        ))?;
    }
    for row in &status.workspaces {
        if let Some(reason) = &row.stop_reason {
            output::line(&format!("{}: stopped because {reason}", row.name))?;
        }
    }
    Ok(())
}

pub(crate) fn state_word(state: PublicState) -> &'static str {
    match state {
        PublicState::Running => "running",
        PublicState::Stopped => "stopped",
        PublicState::Suspended => "suspended",
    }
}
