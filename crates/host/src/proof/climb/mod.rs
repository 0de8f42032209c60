//! Every way to bring a machine up, tried one after the other, and the suite after each.
//!
//! ```text
//! cold boot ─▶ bare template ─▶ image template (two) ─▶ pool ─▶ disk snapshot, restore ─▶ memory snapshot, restore
//!                                                                     │                        │
//!                                                                 disk fork               two memory forks ─▶ fork of a fork
//! ```
//!
//! A step that fails does not end the climb: what comes after it is tried with what there is.
//!
//! [`state`] is what a climb has and the order of its steps; [`boots`], [`snapshots`] and [`forks`] take them.

mod boots;
mod done;
mod forks;
mod snapshots;
mod state;

pub use state::{Climb, Plan};
