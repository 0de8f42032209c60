//! Git in guests: runs the scripts of `agentiso-git` and reports their failures.

mod error;
mod guest;
mod merge_guest;

pub use error::GitError;
pub(crate) use merge_guest::MergeGuest;
