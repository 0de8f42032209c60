//! Polls the daemon, and goes on polling when it is gone.

use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_daemon::control::ControlError;
use agentiso_daemon::control::wire::{Event, Op};
use agentiso_daemon::{FlowEvent, LogKind, Logs};
use tokio::sync::{mpsc, watch};

use super::state::{Change, Detail, Update};
use super::usage::Sampler;
use crate::client::{Client, control_failure};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// The number of log lines to read: more than a screen has.
const LINES: usize = 200;

/// The number of flow records to search for refusals.
const RECORDS: usize = 500;

/// A daemon that does not answer in this time is treated as gone.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends an update after every poll, until the receiver is dropped.
pub(super) async fn run(
    context: &Context,
    refresh: Duration,
    mut selected: watch::Receiver<Option<WorkspaceId>>,
    changes: mpsc::Sender<Change>,
) {
    let mut client = None;
    let mut sampler = Sampler::default();
    loop {
        let wanted = *selected.borrow_and_update();
        let polled = tokio::time::timeout(DEADLINE, poll(context, &mut client, &mut sampler, wanted)).await;
        let polled = polled.unwrap_or_else(|_| Err(Failure::new("the daemon does not answer")));
        let change = match polled {
            Ok(update) => Change::Update(Box::new(update)),
            Err(failure) => {
                // The daemon of this connection may be gone.
                client = None;
                Change::Gone(failure.to_string())
            }
        };
        if changes.send(change).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(refresh) => {}
            moved = selected.changed() => if moved.is_err() { return },
        }
    }
}

async fn poll(
    context: &Context,
    client: &mut Option<Client>,
    sampler: &mut Sampler,
    selected: Option<WorkspaceId>,
) -> Result<Update, Failure> {
    let client = match client {
        Some(client) => client,
        none => {
            let opened = Client::open_running(context).await?;
            none.insert(opened.ok_or_else(|| Failure::new("no daemon is running"))?)
        }
    };
    let overview = client.overview().await?;
    let usage = sampler.sample(&overview.workspaces);
    let known = |id: &WorkspaceId| overview.workspaces.iter().any(|workspace| workspace.id == *id);
    // At the first poll nothing is selected yet; then the first workspace is taken.
    let selected = selected.filter(known).or(overview.workspaces.first().map(|workspace| workspace.id));
    let detail = match selected {
        Some(id) => detail(client, id).await?,
        None => None,
    };
    Ok(Update { overview, usage, detail, at: jiff::Timestamp::now() })
}

/// The details of a workspace; `None` if it was destroyed meanwhile.
async fn detail(client: &mut Client, id: WorkspaceId) -> Result<Option<Detail>, Failure> {
    match ask(client, &id.to_string()).await {
        Ok(detail) => Ok(Some(detail)),
        Err(ControlError::Daemon(_)) => Ok(None),
        Err(error) => Err(control_failure(error)),
    }
}

async fn ask(client: &mut Client, id: &str) -> Result<Detail, ControlError> {
    let control = client.control();
    let workspace = || id.to_owned();
    let info = control.ask(Op::Info { workspace: workspace() }).await?;
    let logs: Logs =
        control.ask(Op::Logs { workspace: workspace(), kind: LogKind::Console, max_lines: LINES }).await?;
    let mut refusals = Vec::new();
    let keep = |event| match event {
        Event::Flow(record) if record.event == FlowEvent::Refused => {
            refusals.push(output::one_line(&record.to_string()))
        }
        Event::Flow(_)
        | Event::Progress { .. }
        | Event::Started { .. }
        | Event::Output { .. }
        | Event::TaskDone(_)
        | Event::FlowsLost { .. } => {}
    };
    let op = Op::NetLog { workspace: workspace(), max_lines: RECORDS, follow: false };
    let () = control.call(op, keep).await?;
    let console = logs.console.unwrap_or_default();
    // The guest's output is untrusted: its control characters must not reach the terminal.
    let console = console.lines().map(|line| output::printable(line).replace('\t', "    ")).collect();
    Ok(Detail { workspace: info, refusals, console })
}
