//! Measurements of snapshots, restores and forks.

pub(crate) mod chain;
pub(crate) mod forks;
mod load;
pub(crate) mod mark;
pub(crate) mod memory;
pub(crate) mod restores;
