//! The host's end of the connection to the guest agent: one connection with typed calls.
//!
//! ```text
//!   AgentClient --typed calls--> tonic --> HTTP/2 --> link --> unix socket --> QEMU --> guest
//! ```
//!
//! The guest is untrusted input. Every size that it states is checked against a limit, no collection grows beyond a
//! constant, and every wait has a deadline. A client is cheap to clone; the connection ends with its last clone.

mod channel;
mod client;
mod error;
mod exec;
mod files;
mod jobs;
mod local;
mod system;
mod trees;
mod upload;

pub use client::{AgentClient, HandshakeError, Hello};
pub use error::AgentError;
pub use exec::{Captured, ExecEvent, ExecOutcome, ExecSpec, ExecStream, OutputStream};
pub use files::{DirEntry, DirListing, FileInfo, FileKind, FileReader, ListOptions};
pub use jobs::{ExecOrJob, JobQuery, JobSpec, JobState, JobSummary};
pub use local::{Carried, LocalConnection, LocalListener};
pub use system::{AttachRoot, Attached, Identity, InitMode, MemoryInfo, NetworkIdentity, Stage};
pub use trees::TreeReader;
pub use upload::WriteOptions;

pub use agentiso_protocol::{ErrorCode, limits};
