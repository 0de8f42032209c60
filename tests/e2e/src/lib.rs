//! End-to-end tests live in `tests/`. What several of them share is here: the internet that they reach, and the
//! programs that they run in a guest to try it.

pub mod guest;
pub mod internet;
mod namespace;
