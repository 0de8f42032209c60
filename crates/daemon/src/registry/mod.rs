//! The table of workspaces, sessions and teams: values and decisions, no I/O and no clock.
//!
//! Names, addresses and quota are given out only here and under one lock, so concurrent creates cannot exceed a
//! limit. Quota is never counted up and down: it is the sum over the entries, and an entry exists from the moment
//! it is reserved.

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
pub use sessions::TAKEOVER_AFTER;
pub(crate) use snapshots::Listing;
pub(crate) use stored::{from_ledger, restored, to_ledger};
pub(crate) use table::{Limits, Registry, Wanted};
