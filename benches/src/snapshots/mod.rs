//! States to come back to, and machines that begin with them.

pub(crate) mod chain;
pub(crate) mod forks;
mod load;
pub(crate) mod mark;
pub(crate) mod memory;
pub(crate) mod restores;
