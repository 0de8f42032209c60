//! Git in guests: running the scripts of `agentiso-git`, and what goes wrong with them.

mod error;
mod guest;
mod place;

pub use error::GitError;
pub(crate) use place::GuestPlace;
