//! Connections of programs in a guest to a port of its loopback, which are served on the host.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::DuplexStream;

use super::AgentFailure;

/// Dropped before its end, the program is cut off.
pub struct LocalConnection {
    pub stream: DuplexStream,
    /// How long the guest says it has been running.
    pub uptime: Duration,
    /// Resolves when the program has closed the connection; an error if it went without reading everything.
    pub delivered: BoxFuture<'static, Result<(), AgentFailure>>,
}

impl fmt::Debug for LocalConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalConnection").field("uptime", &self.uptime).finish_non_exhaustive()
    }
}

/// Ends when the guest does not listen any more. Dropped, the port is closed.
pub type LocalConnections = BoxStream<'static, Result<LocalConnection, AgentFailure>>;
