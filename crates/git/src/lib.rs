//! Git as workspaces use it: what callers may say, the scripts that do it inside a guest, and how their answers are read.
//!
//! ```text
//!  words (url, refs) ─▶ calls (one per operation: a Script, and the reading of what it printed) ─▶ trouble, redact
//!                         └─▶ merge (an engine over two machines that can run scripts)
//! ```
//!
//! There is no I/O here: whoever uses it runs the scripts, in a guest or, in tests, in a directory of the host. A crate of
//! its own, because git is a foreign language with words, quirks and failures of its own, which the rest of agentiso
//! need not know.

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
