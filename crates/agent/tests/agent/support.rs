//! Starts an agent in this process and waits for things with a deadline.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentiso_agent::AgentClient;
use agentiso_guest::server::serve;
use agentiso_guest::system::NoSystem;
use agentiso_vm::{ExecOutcome, ExecSpec};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Long enough for a busy host, short enough to notice a hang.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// An agent and a client of it.
pub(crate) struct TestAgent {
    pub(crate) client: AgentClient,
    pub(crate) server: AbortOnDropHandle<()>,
}

impl TestAgent {
    pub(crate) async fn start() -> Self {
        let (host, guest) = UnixStream::pair().expect("a pair of sockets");
        let server = tokio::spawn(async move {
            serve(guest, Arc::new(NoSystem)).await.expect("it serves until the client hangs up");
        });
        let client = AgentClient::over(host, Instant::now() + SOON).await.expect("the agent answers");
        Self { client, server: AbortOnDropHandle::new(server) }
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, spec: ExecSpec) -> ExecOutcome {
        let stream = self.client.exec(spec).await.expect("the command is sent");
        stream.outcome().await.expect("the command ends")
    }

    pub(crate) async fn sh(&self, shell: &str) -> ExecOutcome {
        self.run(ExecSpec::shell(shell).within(SOON)).await
    }
}

/// Waits for a condition that no event announces.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(SOON, waiting).await.is_ok(), "{what}");
}

/// Whether a process runs; a zombie does not.
pub(crate) fn runs(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}
