//! Connections that programs in a guest make to a port of its loopback and that the host serves.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::DuplexStream;

use crate::failure::AgentFailure;

/// One such connection. If it is dropped before its end, the program's connection is cut.
pub struct LocalConnection {
    pub stream: DuplexStream,
    /// The uptime that the guest reports.
    pub uptime: Duration,
    /// Resolves when the program has closed the connection; an error if it closed without reading everything.
    pub delivered: BoxFuture<'static, Result<(), AgentFailure>>,
}

impl fmt::Debug for LocalConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalConnection").field("uptime", &self.uptime).finish_non_exhaustive()
    }
}

/// Ends when the guest no longer listens. Dropping the stream closes the port.
pub type LocalConnections = BoxStream<'static, Result<LocalConnection, AgentFailure>>;
