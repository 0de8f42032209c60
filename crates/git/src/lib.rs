//! Git in workspaces: validated arguments, the scripts that run inside a guest, and parsers for their output.
//!
//! ```text
//!  words (url, refs) ─▶ calls (one per operation: a Script, and the reading of what it printed) ─▶ trouble, redact
//!                         └─▶ merge (an engine over two workspaces that can run scripts)
//! ```
//!
//! This crate does no I/O: its user runs the scripts in a guest or, in tests, in a directory of the host. It is a
//! separate crate so that the rest of agentiso need not know git's options, quirks and error messages.

pub mod calls;
pub mod merge;
mod quote;
mod redact;
mod refs;
mod script;
mod status;
mod trouble;
mod url;

pub use quote::quote;
pub use redact::redact;
pub use refs::{BranchName, RefError, Remote, RepoFile};
pub use script::{Ran, Script};
pub use status::{Status, StatusError};
pub use trouble::Trouble;
pub use url::{GitUrl, UrlError};
