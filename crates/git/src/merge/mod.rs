//! Merging of commits from several workspaces into one.
//!
//! ```text
//!  source guest                        host                      target guest
//!  /workspace ─ pack ─▶ bundle ── in pieces, bounded ──▶ bench: a clone that shares the target's objects
//!                                                          apply (am, or pick, or a merge commit)
//!                                                          land: the target moves forward to what fitted
//! ```
//!
//! A source contributes its commits after the merge base with the target or, if their histories share nothing, after
//! its first commit. They are first applied on the bench. Only the fast-forward at the end changes the target's branch,
//! index and files, so a source that conflicts leaves the target unchanged.
//!
//! The engine accesses workspaces through [`GitGuest`]: guests in the daemon, directories of the host in the tests.

mod carry;
mod engine;
mod error;
mod guest;
mod scripts;
mod strategy;

pub use engine::{Merge, Outcome, Source, merge};
pub use error::MergeError;
pub use guest::GitGuest;
pub use strategy::Strategy;
