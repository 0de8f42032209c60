//! The daemon's socket: the greeting of connections, the protocol of the command line, and the code that finds or
//! starts the daemon.
//!
//! ```text
//!  client                                daemon
//!    ── {"agentiso":1,"kind":"control"…} ─▶        hello
//!    ◀─ {"agentiso":1,"ok":true…} ──────────       welcome
//!    ── {"id":1,"op":"create"…} ────────────▶
//!    ◀─ {"id":1,"event":{…}} ───────────────       any number
//!    ◀─ {"id":1,"result":{…}} ──────────────       or "error"
//! ```
//!
//! After a hello of the kind `mcp` the connection belongs to the MCP handler.

mod client;
mod connect;
mod failure;
mod hello;
pub mod jobs;
mod listener;
mod ops;
pub mod overview;
mod ready;
mod server;
pub mod swarm;
pub mod wire;

pub use client::{ControlClient, ControlError};
pub use connect::{ConnectError, Connected, DaemonCommand, connect, connect_or_start};
pub use failure::ShellHint;
pub use hello::{Hello, HelloError, Kind, Welcome, read_hello, read_line};
pub use listener::{BindError, Listener};
pub use ready::{Readiness, ReadyReport};
