//! Runs several tasks at once, each in a fork of its own, and merges their commits.
//!
//! ```text
//!  validate ─▶ per task, some at a time: fork ─▶ policy ─▶ context ─▶ command ─▶ merge successful ones ─▶ destroy
//! ```
//!
//! A task of the daemon does all of it: a client that gives up, at whatever moment, only makes it stop early and clean
//! up.

mod knowledge;
mod opencode;
mod request;
mod run;
mod worker;

pub use knowledge::{VaultQuery, VaultQueryKind};
pub use request::{SwarmMerge, SwarmRequest, SwarmTask};
pub use run::{SwarmDone, SwarmMerged, TaskDone, TaskOutcome};
