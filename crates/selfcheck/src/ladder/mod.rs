//! Tries every way to start a VM, one after the other, and runs the suite after each.
//!
//! ```text
//! cold boot ─▶ bare template ─▶ image template (two) ─▶ pool ─▶ disk snapshot, restore ─▶ memory snapshot, restore
//!                                                                     │                        │
//!                                                                 disk fork               two memory forks ─▶ fork of a fork
//! ```
//!
//! A failed step does not end the run: later steps use whatever is available.
//!
//! [`state`] holds the state of a run and the order of its steps. [`boots`], [`snapshots`] and [`forks`] perform
//! them.

mod boots;
mod forks;
mod outcome;
mod snapshots;
mod state;

pub use state::{LadderRun, Plan};
