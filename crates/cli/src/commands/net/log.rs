//! `agentiso net log`: shows the flow log of a workspace.

use std::process::ExitCode;

use agentiso_daemon::control::wire::Event;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Show the connections of a workspace, and which were refused and why
///
/// The last 2048 entries are kept, also across restarts of the daemon.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso net log dev
  agentiso net log dev -f                follow the log
  agentiso net log dev --json | jq 'select(.event == \"refused\")'")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Number of lines to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Follow the log until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, lines, follow, json } = arguments;
    let mut failed = None;
    let print = |event: Event| {
        let line = match (&event, json) {
            (Event::Flow(record), true) => serde_json::to_string(record).unwrap_or_default(),
            (Event::Flow(record), false) => record.to_string(),
            (Event::FlowsLost { count }, true) => serde_json::json!({ "lost": count }).to_string(),
            (Event::FlowsLost { count }, false) => format!("… {count} lines were lost"),
            (
                Event::Progress { .. } | Event::Started { .. } | Event::Output { .. } | Event::TaskDone(_),
                _,
            ) => return,
        };
        if let Err(error) = output::line(&line) {
            failed.get_or_insert(error);
        }
    };
    runtime::block_on(async {
        Client::open(context).await?.net_log(workspace, *lines, *follow, print).await
    })??;
    match failed {
        Some(error) => Err(error),
        None => Ok(ExitCode::SUCCESS),
    }
}
