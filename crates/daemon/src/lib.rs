//! The long-lived part of agentiso: workspaces as tasks, who owns them, and what is remembered across restarts.
//!
//! ```text
//!  socket ─▶ Session ─▶ Registry (names, addresses, quota, ownership; one lock, no I/O)
//!                 │           │
//!                 │           └─▶ Ledger (state.json)
//!                 └─▶ Runner, one task per workspace ─▶ Machines (QEMU through agentiso-host)
//! ```
//!
//! [`Daemon`] is opened on a configuration, [`Session`] is what a connection can do, [`Guest`] what can be done
//! inside a running workspace.

mod daemon;
mod error;
pub mod fault;
mod guest;
mod info;
pub mod ledger;
mod lock;
mod logs;
pub mod machines;
mod mcp;
mod progress;
mod registry;
mod runner;
mod session;
mod shared;
mod sweep;
mod templates;

pub use daemon::{Daemon, OpenError};
pub use error::OpError;
pub use guest::{ExecStream, Guest};
pub use info::{
    Adopted, BulkAdopted, CreateRequest, Created, LogKind, Logs, NetworkInfo, PortForward, Rung,
    SnapshotInfo, WorkspaceInfo,
};
pub use lock::{LockError, running_daemon};
pub use machines::{
    AgentFailure, Captured, DirEntry, EntryKind, ExecEvent, ExecOutcome, ExecSpec, FileContent, GuestCode,
    HostFacts, OutputStream, TemplateInfo, WriteFile,
};
pub use mcp::{McpHandler, McpOptions};
pub use progress::Progress;
pub use registry::SessionKind;
pub use session::Session;
