//! Helpers that several end-to-end tests of `tests/` share: a simulated internet, and the programs that tests run in a
//! guest to reach it.

pub mod guest;
pub mod internet;
mod namespace;
