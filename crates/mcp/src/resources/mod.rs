//! Resources that clients can read without calling a tool: workspaces, their files and jobs, and the notes on the host.
//!
//! ```text
//!  uri (parses addresses) ── offer (what a profile allows) ─┬─ list, read ── agentiso_daemon::Session
//!                                                           ├─ complete (partial names, paths and ids)
//!                                                           └─ follow (notifies of changes)
//! ```
//!
//! A resource is refused to a client that would be refused the tool that shows the same.

mod complete;
pub(crate) mod follow;
mod list;
mod offer;
mod read;
mod uri;

pub(crate) use complete::{complete, snapshots, workspaces};
pub(crate) use list::list;
pub(crate) use offer::{KINDS, find, offered, parse};
pub(crate) use read::read;
