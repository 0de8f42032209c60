//! Several tasks at once, each in a fork of its own, and their commits brought together.
//!
//! ```text
//!  validate ─▶ per task, some at a time: fork ─▶ policy ─▶ context ─▶ command ─▶ merge what succeeded ─▶ destroy
//! ```
//!
//! All of it is done by a task of the daemon: a caller that gives up, at whatever moment, only makes it go to the end
//! at once.

mod knowledge;
mod opencode;
mod request;
mod run;
mod worker;

pub use knowledge::{VaultQuery, VaultQueryKind};
pub use request::{SwarmError, SwarmMerge, SwarmRequest, SwarmTask};
pub use run::{SwarmDone, SwarmMerged, TaskDone, TaskOutcome};
