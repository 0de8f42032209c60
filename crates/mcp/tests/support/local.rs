//! A loopback port of fake guests, and programs that connect to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_daemon::AgentFailure;
use agentiso_daemon::vms::{LocalConnection, LocalConnections};
use futures::{FutureExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

type Accepting = mpsc::UnboundedSender<LocalConnection>;

/// The listener of each VM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<HashMap<WorkspaceId, Accepting>>>);

/// The behaviour of a program after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Reads,
    /// Dies before it has read the answer.
    Dies,
}

impl Ports {
    pub(crate) fn listen(&self, id: WorkspaceId) -> LocalConnections {
        let (accepting, accepted) = mpsc::unbounded_channel();
        self.0.lock().expect("no panic").insert(id, accepting);
        let next = |mut accepted: mpsc::UnboundedReceiver<_>| async move {
            accepted.recv().await.map(|connection| (Ok(connection), accepted))
        };
        futures::stream::unfold(accepted, next).boxed()
    }

    pub(crate) fn is_open(&self, id: WorkspaceId) -> bool {
        self.0.lock().expect("no panic").get(&id).is_some_and(|accepting| !accepting.is_closed())
    }

    /// The answer to a program in a VM.
    pub(crate) async fn ask(&self, id: WorkspaceId, program: Program, request: &str) -> String {
        let (mut ours, stream) = tokio::io::duplex(1 << 20);
        let (tell, told) = oneshot::channel();
        let broken = || AgentFailure::Broken { reason: "it died".to_owned() };
        let delivered = async move { told.await.unwrap_or(Err(broken())) }.boxed();
        let connection = LocalConnection { stream, uptime: Duration::from_secs(5), delivered };
        let accepting = self.0.lock().expect("no panic").get(&id).cloned().expect("somebody listens");
        accepting.send(connection).expect("somebody listens");
        ours.write_all(request.as_bytes()).await.expect("it is read");
        let mut answer = String::new();
        ours.read_to_string(&mut answer).await.expect("an answer");
        let _nobody_asks = match program {
            Program::Reads => tell.send(Ok(())),
            Program::Dies => tell.send(Err(broken())),
        };
        answer
    }
}
