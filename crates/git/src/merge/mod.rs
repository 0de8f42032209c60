//! Brings the commits of several machines together in one.
//!
//! ```text
//!  source guest                        host                      target guest
//!  /workspace ─ pack ─▶ bundle ── in pieces, bounded ──▶ bench: a clone that shares the target's objects
//!                                                          apply (am, or pick, or a merge commit)
//!                                                          land: the target moves forward to what fitted
//! ```
//!
//! What a source contributes are its commits after the merge base with the target or, where their histories share nothing,
//! after its first commit. All of it is tried out on the bench; the target's branch, index and files are touched only
//! by the fast-forward at the end, so a source that does not fit leaves the target as it was.
//!
//! The engine speaks to machines through [`Place`]: guests in the daemon, directories of the host in the tests.

mod carry;
mod engine;
mod error;
mod place;
mod scripts;
mod strategy;

pub use engine::{Merge, Outcome, Source, merge};
pub use error::MergeError;
pub use place::Place;
pub use strategy::Strategy;
