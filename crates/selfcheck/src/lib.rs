//! Proves on this host that VMs which were restored instead of booted are intact and independent of each other.
//!
//! ```text
//! LadderRun    every way to start a VM, one after the other
//!   └─ examine(Subject)    clock, entropy, identity, network, file system, open files, timers, processes
//!        ├─ Guest      a VM, and the properties it was promised
//!        ├─ Before     its state before the snapshot: files, running processes, its own identity
//!        └─ Seen       every random number that any VM has drawn so far
//! ```
//!
//! The questions to a guest need only a POSIX shell and coreutils. Checks that need more are skipped, with the reason.
//! The answers are judged by pure functions.

mod before;
mod check;
mod clock;
mod entropy;
mod filesystem;
mod guest;
mod identity;
mod ladder;
mod step;
mod suite;
mod verdict;
mod witness;

pub use before::Before;
pub use check::{Check, Origin};
pub use entropy::Seen;
pub use guest::Guest;
pub use ladder::{LadderRun, Plan};
pub use step::{Step, StepResult};
pub use suite::{Parent, Subject, examine};
pub use verdict::{CheckResult, Finding, Verdict, is_sound};
