//! `agentiso team-status`: shows a team from the ledger, without the daemon.

use std::path::Path;
use std::process::ExitCode;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::{Member, Team, TeamName};
use agentiso_daemon::ledger::{self, LedgerDocument};
use agentiso_daemon::mail::{self, MailCounts};
use jiff::Timestamp;
use serde::Serialize;

use crate::commands::status::state_word;
use crate::context::Context;
use crate::failure::{Failure, chain};
use crate::output;

/// Show a team and its members, without the daemon
///
/// Reads the state file and changes nothing.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso team-status web
  agentiso team-status web --json | jq -r '.members[].ip'")]
pub(crate) struct Arguments {
    /// Name of the team
    team: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TeamView {
    name: TeamName,
    state: &'static str,
    created_at: Timestamp,
    parent_team: Option<TeamName>,
    max_vms: u32,
    members: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    workspace: String,
    workspace_id: Option<WorkspaceId>,
    ip: Option<String>,
    state: &'static str,
    agent: &'static str,
    /// Messages that were not received yet.
    messages: usize,
    /// Tasks that wait or run.
    tasks: usize,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = &context.config.paths.state_file;
    let document = ledger::read(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {}", path.display(), chain(&error))))?;
    let document = document
        .into_document()
        .ok_or_else(|| Failure::new(format!("no state file yet at {}", path.display())))?;
    let (name, team) = document.teams.find(&arguments.team).map_err(|refusal| {
        let known: Vec<&str> = document.teams.iter().map(|(name, _)| name.as_str()).collect();
        let failure = Failure::new(refusal.to_string());
        if known.is_empty() { failure } else { failure.hint(format!("known teams: {}", known.join(", "))) }
    })?;
    let shown = show(&document, &context.config.paths.mail, name, team)?;
    if arguments.json {
        output::json(&shown)?;
    } else {
        print(&shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(document: &LedgerDocument, mail: &Path, name: &TeamName, team: &Team) -> Result<TeamView, Failure> {
    let mut team = team.clone();
    let mut members = Vec::with_capacity(team.members.len());
    for member in &mut team.members {
        let waiting = mail::count(mail, name, team.created_at, &member.name)
            .map_err(|error| Failure::new(format!("cannot read the inbox of {}: {error}", member.name)))?;
        // The inbox is newer than the ledger: it is written for every task.
        if waiting.tasks > 0 {
            member.found_tasks(waiting.tasks, None);
        }
        members.push(row(document, member, waiting));
    }
    Ok(TeamView {
        name: name.clone(),
        state: team.shown_state().as_str(),
        created_at: team.created_at,
        parent_team: team.parent.clone(),
        max_vms: team.max_vms,
        members,
    })
}

fn row(document: &LedgerDocument, member: &Member, waiting: MailCounts) -> Row {
    let vm = member.workspace_id.and_then(|id| document.workspaces.get(&id));
    Row {
        name: member.name.to_string(),
        workspace: member.workspace.to_string(),
        workspace_id: member.workspace_id,
        ip: vm.map(|vm| vm.ip.to_string()),
        state: vm.map_or("destroyed", |vm| state_word(vm.phase.public())),
        agent: member.status.as_str(),
        // Messages in a ledger of an earlier version are moved to inboxes at the next start of a daemon.
        messages: waiting.messages + member.stored_messages.len(),
        tasks: waiting.tasks + member.stored_tasks.pending.len(),
    }
}

fn print(team: &TeamView) -> Result<(), Failure> {
    let parent =
        team.parent_team.as_ref().map(|parent| format!(", sub-team of {parent}")).unwrap_or_default();
    output::line(&format!(
        "team {}: {}, {} of at most {} members, created {}{parent}",
        team.name,
        team.state,
        team.members.len(),
        team.max_vms,
        output::age(team.created_at, Timestamp::now()),
    ))?;
    let rows = team.members.iter().map(|row| {
        [
            row.name.clone(),
            row.workspace.clone(),
            row.ip.clone().unwrap_or_else(|| "-".to_owned()),
            row.state.to_owned(),
            row.agent.to_owned(),
        ]
    });
    output::line(&output::table(["NAME", "WORKSPACE", "IP", "STATE", "AGENT"], rows.collect()))
}
