//! Serves the machine of one member, whenever it runs.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_protocol::limits;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::PORT;
use super::letterbox::Letterbox;
use crate::machines::{AgentFailure, GuestAgent, LocalConnections};
use crate::runner::Live;
use crate::session::teams::tasks;
use crate::shared::Shared;

/// Between two attempts to listen: another program of the machine may have the port, and does not tell when it goes.
const AGAIN: Duration = Duration::from_secs(2);

/// Until the member's machine is gone, or the daemon ends.
pub(in crate::session::teams) fn attend(shared: &Arc<Shared>, id: WorkspaceId) {
    let live = shared.state().runners.get(&id).map(|handle| handle.live.clone());
    let Some(mut live) = live else { return };
    let letterbox = Letterbox::new(shared, id);
    tasks::spawn(shared, async move {
        loop {
            let machine = match &*live.borrow_and_update() {
                Live::Up(machine) => Some(Arc::clone(machine)),
                Live::Down | Live::Attaching => None,
            };
            let serving = async {
                match machine {
                    Some(machine) => serve(&*machine.agent(), &letterbox).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // A machine that goes down must not be kept up by our connection to it.
                biased;
                changed = live.changed() => if changed.is_err() { return },
                () = serving => {}
            }
        }
    });
}

/// Serves one run of a machine. Does not return.
async fn serve(agent: &dyn GuestAgent, letterbox: &Letterbox) {
    let mut told = false;
    loop {
        match agent.listen(PORT).await {
            Ok(connections) => {
                told = false;
                answer(connections, letterbox).await;
            }
            Err(AgentFailure::Unsupported { .. }) => return std::future::pending().await,
            Err(error) if !told => {
                told = true;
                tracing::info!(workspace = %letterbox.workspace(), %error, "no messages at port {PORT} yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Answers programs until the guest listens no more.
async fn answer(mut connections: LocalConnections, letterbox: &Letterbox) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Whoever has been answered makes room.
            biased;
            Some(()) = open.next() => {}
            accepted = connections.next(), if open.len() < limits::MAX_LOCAL_CONNECTIONS => match accepted {
                Some(Ok(connection)) => open.push(letterbox.serve(connection)),
                Some(Err(error)) => {
                    tracing::debug!(workspace = %letterbox.workspace(), %error, "the guest listens no more");
                    return;
                }
                None => return,
            },
        }
    }
}
