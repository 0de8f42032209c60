//! Looks at the daemon again and again, and goes on when it is gone.

use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_daemon::control::ControlError;
use agentiso_daemon::control::wire::Event;
use agentiso_daemon::{FlowEvent, LogKind};
use tokio::sync::{mpsc, watch};

use super::state::{Change, Detail, News};
use super::usage::Sampler;
use crate::client::{Client, refused};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// Lines of a log that are asked for: more than a screen has.
const LINES: usize = 200;

/// Records of the network that are looked through for refusals.
const RECORDS: usize = 500;

/// A daemon that does not answer is as good as gone.
const DEADLINE: Duration = Duration::from_secs(10);

/// Tells of every look until nobody listens.
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
        let looked = tokio::time::timeout(DEADLINE, look(context, &mut client, &mut sampler, wanted)).await;
        let looked = looked.unwrap_or_else(|_| Err(Failure::new("the daemon does not answer")));
        let change = match looked {
            Ok(news) => Change::News(Box::new(news)),
            Err(failure) => {
                // The connection may be of a daemon that is gone.
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

async fn look(
    context: &Context,
    client: &mut Option<Client>,
    sampler: &mut Sampler,
    selected: Option<WorkspaceId>,
) -> Result<News, Failure> {
    let client = match client {
        Some(client) => client,
        none => {
            let opened = Client::open_running(context).await?;
            none.insert(opened.ok_or_else(|| Failure::new("no daemon is running"))?)
        }
    };
    let overview = client.control().overview().await.map_err(refused)?;
    let usage = sampler.look(&overview.workspaces);
    let known = |id: &WorkspaceId| overview.workspaces.iter().any(|workspace| workspace.id == *id);
    // At the first look nobody has selected anything; then it is the first.
    let selected = selected.filter(known).or(overview.workspaces.first().map(|workspace| workspace.id));
    let detail = match selected {
        Some(id) => detail(client, id).await?,
        None => None,
    };
    Ok(News { overview, usage, detail, at: jiff::Timestamp::now() })
}

/// `None` if it was destroyed meanwhile.
async fn detail(client: &mut Client, id: WorkspaceId) -> Result<Option<Detail>, Failure> {
    match ask(client, &id.to_string()).await {
        Ok(detail) => Ok(Some(detail)),
        Err(ControlError::Daemon(_)) => Ok(None),
        Err(error) => Err(refused(error)),
    }
}

async fn ask(client: &mut Client, id: &str) -> Result<Detail, ControlError> {
    let control = client.control();
    let workspace = control.info(id).await?;
    let logs = control.logs(id, LogKind::Console, LINES).await?;
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
    control.net_log(id, RECORDS, false, keep).await?;
    let console = logs.console.unwrap_or_default();
    // A guest writes what it likes; no control character of it may reach the terminal.
    let console = console.lines().map(|line| output::printable(line).replace('\t', "    ")).collect();
    Ok(Detail { workspace, refusals, console })
}
