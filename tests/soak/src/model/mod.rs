//! What must be there, as values: no clock, no process, no connection.
//!
//! An operation that was acknowledged changes the model for certain. One that was cut off adds an alternative: it may have
//! happened or not. What is seen later decides, and the model learns it.

mod contents;
mod workspace;

pub(crate) use contents::{Contents, Memory, Seen, digest};
pub(crate) use workspace::{Forward, Info, Policy, Snapshot, Workspace};
