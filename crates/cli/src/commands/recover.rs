//! `agentiso recover`: lists, recovers or deletes what is in quarantine.

use std::process::ExitCode;

use agentiso_daemon::{QuarantineItem, QuarantineKind};
use jiff::Timestamp;
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// List, recover or delete workspaces and teams in quarantine
///
/// The daemon never deletes data that it does not understand. A workspace that does not fit the state file stays on disk with
/// its snapshots and is listed here with the reason: the state file was removed or server.state_file was renamed, a
/// description cannot be read, or two workspaces have the same name. If its VM is running, it keeps running.
///
/// Without arguments, everything in quarantine is listed. With names or ids, these are recovered: a running VM is kept with
/// its processes, a workspace whose name is taken gets a new one, and all changes are printed. A workspace without a
/// readable description is recovered from its disk, under a new name.
///
/// With --discard, the VM is killed and the files are deleted. This cannot be undone.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso recover                    list what is in quarantine
  agentiso recover dev                recover the workspace dev
  agentiso recover 7e0b1c2d team:web  recover a workspace by the start of its id, and a team
  agentiso recover --all              recover everything that can be recovered
  agentiso recover --discard 7e0b1c2d delete it permanently")]
pub(crate) struct Arguments {
    /// Names, ids, eight or more digits of an id, or team:NAME
    #[arg(value_name = "WORKSPACE")]
    wanted: Vec<String>,
    /// Recover everything in quarantine
    #[arg(long, conflicts_with_all = ["wanted", "discard"])]
    all: bool,
    /// Delete the named items instead of recovering them
    #[arg(long, requires = "wanted")]
    discard: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        if arguments.wanted.is_empty() && !arguments.all {
            return list(&mut client, arguments.json).await;
        }
        if arguments.discard {
            return discard(&mut client, arguments).await;
        }
        let wanted = if arguments.all {
            let items = client.quarantine().await?.into_iter();
            items.filter(|item| item.kind != QuarantineKind::Vm).map(|item| item.id).collect()
        } else {
            arguments.wanted.clone()
        };
        recover(&mut client, &wanted, arguments).await
    })?
}

async fn list(client: &mut Client, json: bool) -> Result<ExitCode, Failure> {
    let items = client.quarantine().await?;
    if json {
        output::json(&json!({ "quarantine": items }))?;
    } else if items.is_empty() {
        output::line("nothing is in quarantine")?;
    } else {
        let now = Timestamp::now();
        let rows = items.iter().map(|item| row(item, now)).collect();
        output::line(&output::table(["ID", "NAME", "SIZE", "SINCE", "VM", "REASON"], rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(item: &QuarantineItem, now: Timestamp) -> [String; 6] {
    [
        item.id.clone(),
        item.name.clone().unwrap_or_else(|| "-".to_owned()),
        output::size(item.bytes),
        output::age(item.since, now),
        item.pid.map_or_else(|| "-".to_owned(), |pid| format!("running, pid {pid}")),
        item.reason.clone(),
    ]
}

/// Recovers all that are named. It goes on after a failure; the command ends with the first one.
async fn recover(client: &mut Client, wanted: &[String], arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (mut recovered, mut first) = (Vec::new(), None);
    for wanted in wanted {
        match client.recover(wanted).await {
            Ok(one) => {
                if !arguments.json {
                    output::line(&format!("{} recovered", one.name))?;
                    for change in &one.changes {
                        output::line(&format!("  {change}"))?;
                    }
                }
                recovered.push(one);
            }
            Err(failure) if first.is_none() => first = Some(failure),
            Err(failure) => output::line(&format!("{wanted}: {failure}"))?,
        }
    }
    if arguments.json {
        output::json(&json!({ "recovered": recovered }))?;
    } else if wanted.is_empty() {
        output::line("nothing is in quarantine")?;
    }
    first.map_or(Ok(ExitCode::SUCCESS), Err)
}

async fn discard(client: &mut Client, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut discarded = Vec::new();
    for wanted in &arguments.wanted {
        let id = client.discard(wanted).await?;
        if !arguments.json {
            output::line(&format!("{id} deleted"))?;
        }
        discarded.push(id);
    }
    if arguments.json {
        output::json(&json!({ "discarded": discarded }))?;
    }
    Ok(ExitCode::SUCCESS)
}
