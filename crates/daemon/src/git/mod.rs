//! Git in guests: runs the scripts of `agentiso-git` and reports their failures.

mod error;
mod guest;
mod place;

pub use error::GitError;
pub(crate) use place::GuestPlace;
