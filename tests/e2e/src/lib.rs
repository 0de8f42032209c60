//! Helpers that several end-to-end tests of `tests/` share: a simulated internet, and the programs that tests run in a
//! guest to reach it.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

pub mod guest;
pub mod internet;
mod namespace;
