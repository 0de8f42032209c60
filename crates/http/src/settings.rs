//! Limits and timeouts of one front.

use std::time::Duration;

/// Time from the beginning of a connection, or the end of an answer, to the end of the next request's head. It is short
/// because the client has not shown a token yet.
pub(crate) const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Time for the whole body. A file of 32 MiB comes through in this time on any usable link.
pub(crate) const BODY_DEADLINE: Duration = Duration::from_secs(120);

/// Bytes of request line and headers. MCP clients send well below 2 KiB.
pub(crate) const MAX_HEAD: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 64;

/// Permits for messages that need no answer, for use while all request permits are taken, and the largest body of such
/// a message: a cancellation names a request and perhaps a reason.
pub(crate) const SPARE_PERMITS: usize = 4;
pub(crate) const SPARE_BODY: usize = 16 * 1024;

/// A client that reads nothing for this long is considered gone.
pub(crate) const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// An answer that takes longer becomes a stream of events, in which keep-alives can be sent.
pub(crate) const STREAM_AFTER: Duration = Duration::from_secs(3);

/// Interval between keep-alives, below what proxies and clients take for a dead connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Time for which the remaining input of a refused client is read and discarded.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Connections beyond the limit that are sent a refusal at the same time. Each takes a moment, and the connection limit
/// does not bound them.
pub(crate) const MAX_DISMISSALS: usize = 8;

/// Time for which calls may continue after the front begins to close.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

const _: () = assert!(STREAM_AFTER.as_secs() < KEEP_ALIVE.as_secs());
const _: () = assert!(KEEP_ALIVE.as_secs() < WRITE_DEADLINE.as_secs());

/// Limits of one front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of one request's body.
    pub max_body: usize,
    pub max_connections: usize,
    /// Requests at once; each may hold a body and a command.
    pub max_requests: usize,
    pub max_sessions: usize,
    /// A session without requests for this long ends.
    pub session_idle: Duration,
}

impl Settings {
    /// Limits for clients that have the token of this server: the same as over standard input.
    pub const CLIENTS: Self = Self {
        max_body: 64 << 20,
        max_connections: 128,
        max_requests: 64,
        max_sessions: 64,
        session_idle: Duration::from_secs(30 * 60),
    };

    /// Limits for one workspace. Programs in it may be hostile and must not fill the daemon's memory.
    pub const WORKSPACE: Self = Self {
        max_body: 4 << 20,
        max_connections: 16,
        max_requests: 4,
        max_sessions: 4,
        session_idle: Duration::from_secs(10 * 60),
    };
}

const _: () = assert!(Settings::WORKSPACE.max_body * Settings::WORKSPACE.max_requests <= 16 << 20);
