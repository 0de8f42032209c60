//! What exists and who owns it: values and decisions, no I/O and no clock.
//!
//! The registry is the one place where names, addresses and quota are given out, so doing it under one lock is
//! what makes concurrent creates exact. Quota is never counted up and down: it is the sum over the entries, and
//! an entry is there from the moment it is reserved.

mod entry;
mod forks;
mod quarantine;
mod sessions;
mod snapshots;
mod stored;
mod table;
#[cfg(test)]
mod takeover_tests;
mod teams;
mod view;

pub(crate) use entry::{Lifetime, Status, Workspace};
pub(crate) use forks::WantedForks;
pub use sessions::SessionKind;
pub(crate) use sessions::TAKEOVER_AFTER;
pub(crate) use snapshots::Books;
pub(crate) use stored::{from_ledger, restored, to_ledger};
pub(crate) use table::{Limits, Place, Registry, Wanted};
