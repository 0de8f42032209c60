//! The scripts against real git, in directories of the host instead of guests.

mod calls;
mod conflicts;
mod histories;
mod lab;
mod shell;
mod untouched;
