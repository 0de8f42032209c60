//! Proof that machines that did not boot are machines of their own, given on the host where it is asked for.
//!
//! ```text
//! Climb    every way to bring a machine up, one after the other
//!   └─ examine(Subject)    clock, entropy, identity, network, file system, open files, timers, processes
//!        ├─ Guest      a machine, and what it was promised
//!        ├─ Before     what was left in it before its snapshot: files, running processes, its own view of itself
//!        └─ Seen       every random number that any machine has drawn so far
//! ```
//!
//! What a guest is asked needs nothing but a POSIX shell and coreutils; what needs more is skipped, with the reason.
//! What is made of the answers is pure.

mod before;
mod check;
mod climb;
mod clock;
mod entropy;
mod filesystem;
mod guest;
mod portrait;
mod step;
mod suite;
mod verdict;
mod witness;

pub use before::Before;
pub use check::{Check, Origin};
pub use climb::{Climb, Plan};
pub use entropy::Seen;
pub use guest::Guest;
pub use step::{Step, StepResult};
pub use suite::{Parent, Subject, examine};
pub use verdict::{CheckResult, Finding, Verdict, is_sound};
