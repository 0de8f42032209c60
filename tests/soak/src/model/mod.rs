//! The model of the expected state, as plain values without clocks, processes or connections.
//!
//! An acknowledged operation changes the model for certain. An operation without an answer adds an alternative: it may
//! have happened or not. A later observation decides, and the model adopts it.

mod contents;
mod workspace;

pub(crate) use contents::{Contents, Memory, Seen, digest};
pub(crate) use workspace::{Forward, Info, Policy, Snapshot, Workspace};
