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
pub use exec::ExecStream;
pub use files::{FileInfo, FileReader};
pub use local::LocalListener;
pub use system::{AttachRoot, Attached, Identity, InitMode, MemoryInfo, Stage};
pub use trees::TreeReader;
pub use upload::WriteOptions;

pub use agentiso_protocol::{ErrorCode, limits};
