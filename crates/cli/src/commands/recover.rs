//! `agentiso recover`: what the daemon found and does not use.

use std::process::ExitCode;

use agentiso_daemon::{QuarantineItem, QuarantineKind};
use jiff::Timestamp;
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// List what is in quarantine, bring it back, or delete it
///
/// The daemon never deletes what it does not understand. A workspace that it cannot place stays where it is on disk, with
/// its snapshots, and is listed here with the reason: the state file was removed or server.state_file was renamed, a
/// description cannot be read, two workspaces claim the same name. A machine that runs on it goes on running.
///
/// Without arguments, everything in quarantine is listed. With names or ids, these are brought back: a running machine is
/// taken up again with its processes, a workspace whose name is taken gets another, and what had to change is said. What
/// nothing describes any more is brought back from its disk, under a new name.
///
/// With --discard, the machine is ended and the files are deleted. There is no way back from that.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso recover                    list what is in quarantine
  agentiso recover dev                bring the workspace dev back
  agentiso recover 7e0b1c2d team:web  by the first digits of an id, and a team
  agentiso recover --all              everything that can be brought back
  agentiso recover --discard 7e0b1c2d delete it for good")]
pub(crate) struct Arguments {
    /// Names, ids, eight or more digits of an id, or team:NAME
    #[arg(value_name = "WORKSPACE")]
    wanted: Vec<String>,
    /// Bring back all there is
    #[arg(long, conflicts_with_all = ["wanted", "discard"])]
    all: bool,
    /// Delete what is named instead of bringing it back
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
            items.filter(|item| item.kind != QuarantineKind::Machine).map(|item| item.id).collect()
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
        output::line(&output::table(["ID", "NAME", "SIZE", "SINCE", "MACHINE", "REASON"], rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(item: &QuarantineItem, now: Timestamp) -> [String; 6] {
    [
        item.id.clone(),
        item.name.clone().unwrap_or_else(|| "-".to_owned()),
        output::size(item.bytes),
        output::age(item.since, now),
        item.pid.map_or_else(|| "-".to_owned(), |pid| format!("runs, pid {pid}")),
        item.reason.clone(),
    ]
}

/// Goes on after one that cannot be brought back; the first failure is what the command ends with.
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
