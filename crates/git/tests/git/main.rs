//! The scripts against real git, in directories of the host instead of guests.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod calls;
mod conflicts;
mod histories;
mod lab;
mod shell;
mod untouched;
