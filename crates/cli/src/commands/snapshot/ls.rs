//! `agentiso snapshot ls`: lists the snapshots of a workspace.

use std::process::ExitCode;

use agentiso_daemon::control::wire::Snapshot;
use jiff::Timestamp;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// List the snapshots of a workspace, oldest first
///
/// FREES is the space that removing the snapshot would free, HOLDS all the space it refers to, including shared space. A star
/// marks the snapshot that the workspace's current state is based on.
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  agentiso snapshot ls dev
  agentiso snapshot ls dev --json | jq -r '.[] | select(.has_memory) | .name'"
)]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let workspace = &arguments.workspace;
    let snapshots = runtime::block_on(async { Client::open(context).await?.snapshots(workspace).await })??;
    if arguments.json {
        output::json(&snapshots)?;
    } else if snapshots.is_empty() {
        output::line(&format!("no snapshots; take one with `agentiso snapshot create {workspace} NAME`"))?;
    } else {
        output::line(&render(&snapshots, Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(snapshots: &[Snapshot], now: Timestamp) -> String {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), output::size);
    let rows = snapshots
        .iter()
        .map(|snapshot| {
            [
                format!("{}{}", snapshot.name, if snapshot.current { " *" } else { "" }),
                if snapshot.has_memory { "yes" } else { "no" }.to_owned(),
                snapshot.parent.clone().unwrap_or_else(|| "-".to_owned()),
                size(snapshot.used_bytes),
                size(snapshot.referenced_bytes),
                output::age(snapshot.created_at, now),
                snapshot.forks.join(" "),
            ]
        })
        .collect();
    output::table(["NAME", "MEMORY", "PARENT", "FREES", "HOLDS", "CREATED", "FORKS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::ids::SnapshotId;

    #[test]
    fn snapshot_table_shows_sizes_parents_and_forks() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let first = Snapshot {
            id: SnapshotId::random(),
            name: "clean".to_owned(),
            has_memory: false,
            parent: None,
            created_at: Timestamp::from_second(1_000_000 - 7_200).unwrap(),
            used_bytes: Some(2 << 20),
            referenced_bytes: Some(3 << 20),
            current: false,
            forks: vec!["try-1".to_owned(), "try-2".to_owned()],
        };
        let second = Snapshot {
            name: "up".to_owned(),
            has_memory: true,
            parent: Some("clean".to_owned()),
            created_at: now,
            used_bytes: None,
            referenced_bytes: None,
            current: true,
            forks: Vec::new(),
            ..first.clone()
        };
        let expected = "\
NAME   MEMORY  PARENT  FREES    HOLDS    CREATED        FORKS
clean  no      -       2.0 MiB  3.0 MiB  2 hours ago    try-1 try-2
up *   yes     clean   ?        ?        0 seconds ago";
        assert_eq!(render(&[first, second], now), expected);
    }
}
