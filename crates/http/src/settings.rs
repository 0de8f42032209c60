//! How much one front serves, and how long it waits.

use std::time::Duration;

/// From the beginning of a connection, or the end of an answer, to the end of the next request's head. Whoever has not
/// shown a token yet gets no more.
pub(crate) const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// The whole body. A file of 32 MiB comes through in this time on any link that is worth using.
pub(crate) const BODY_DEADLINE: Duration = Duration::from_secs(120);

/// Request line and headers. Clients of MCP send well below 2 KiB.
pub(crate) const MAX_HEAD: usize = 16 * 1024;
pub(crate) const MAX_HEADERS: usize = 64;

/// Small messages that need no answer and come while as many requests are under way as there may be, and how small they
/// are: a cancellation names a request and perhaps a reason.
pub(crate) const SPARE_TURNS: usize = 4;
pub(crate) const SPARE_BODY: usize = 16 * 1024;

/// A client that takes nothing for so long has gone without saying so.
pub(crate) const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// An answer that takes longer becomes a stream of events, in which signs of life can be sent meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Between signs of life, below what proxies and clients take for silence.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// How long what a refused client still sends is read and thrown away.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Connections beyond the limit that are told of it at the same time. They take a moment each, and have no place that
/// would bound them.
pub(crate) const MAX_DISMISSALS: usize = 8;

/// How long calls may go on when the front closes.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

const _: () = assert!(PATIENCE.as_secs() < SIGN_OF_LIFE.as_secs());
const _: () = assert!(SIGN_OF_LIFE.as_secs() < WRITE_DEADLINE.as_secs());

/// What one front serves at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of one request's body.
    pub max_body: usize,
    pub max_connections: usize,
    /// Requests at once: each may hold a body and a command.
    pub max_requests: usize,
    pub max_sessions: usize,
    /// A session that has been silent for so long ends.
    pub session_idle: Duration,
}

impl Settings {
    /// For clients that have the token of this server: as much as over standard input.
    pub const CLIENTS: Self = Self {
        max_body: 64 << 20,
        max_connections: 128,
        max_requests: 64,
        max_sessions: 64,
        session_idle: Duration::from_secs(30 * 60),
    };

    /// For one workspace. What runs in it may be hostile, and must not fill the daemon's memory.
    pub const WORKSPACE: Self = Self {
        max_body: 4 << 20,
        max_connections: 16,
        max_requests: 4,
        max_sessions: 4,
        session_idle: Duration::from_secs(10 * 60),
    };
}

const _: () = assert!(Settings::WORKSPACE.max_body * Settings::WORKSPACE.max_requests <= 16 << 20);
