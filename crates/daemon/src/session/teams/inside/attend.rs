//! Serves the VM of one member whenever it runs.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_protocol::limits;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::PORT;
use super::inbox_server::InboxServer;
use crate::session::teams::tasks;
use crate::shared::Shared;
use crate::vms::{AgentFailure, GuestAgent, LocalConnections};

/// Delay between attempts to listen: another program of the guest may have the port, and nothing tells when it is free.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Serves programs in the member's VM until its workspace is gone or the daemon ends.
pub(in crate::session::teams) fn attend(shared: &Arc<Shared>, id: WorkspaceId) {
    let live = shared.state().runners.get(&id).map(|handle| handle.live.clone());
    let Some(mut live) = live else { return };
    let server = InboxServer::new(shared, id);
    tasks::spawn(shared, async move {
        loop {
            let vm = live.borrow_and_update().vm();
            let serving = async {
                match vm {
                    Some(vm) => serve(&*vm.agent(), &server).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Our connection must not keep a VM up that is going down.
                biased;
                changed = live.changed() => if changed.is_err() { return },
                () = serving => {}
            }
        }
    });
}

/// Serves one run of a VM. Does not return.
async fn serve(agent: &dyn GuestAgent, server: &InboxServer) {
    let mut reported = false;
    loop {
        match agent.listen(PORT).await {
            Ok(connections) => {
                reported = false;
                answer(connections, server).await;
            }
            Err(AgentFailure::Unsupported { .. }) => return std::future::pending().await,
            Err(error) if !reported => {
                reported = true;
                tracing::info!(workspace = %server.workspace(), %error, "cannot serve messages at port {PORT} yet; will retry");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Answers programs until the guest stops listening.
async fn answer(mut connections: LocalConnections, server: &InboxServer) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Finished connections first: they make room for new ones.
            biased;
            Some(()) = open.next() => {}
            accepted = connections.next(), if open.len() < limits::MAX_LOCAL_CONNECTIONS => match accepted {
                Some(Ok(connection)) => open.push(server.serve(connection)),
                Some(Err(error)) => {
                    tracing::debug!(workspace = %server.workspace(), %error, "the guest stopped listening");
                    return;
                }
                None => return,
            },
        }
    }
}
