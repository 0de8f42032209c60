//! What the kernel carries by itself, for the log: datagrams to the outside, and everything between machines.
//!
//! ```text
//!   packet that passes ─── counted in its guest's sets (`render/flows.rs`)
//!        │ the first of its kind: opens a flow, ends one, or has another head
//!        ▼
//!      watch ── looks ──▶ counts of the kernel ──▶ ledger of the guest ──▶ opened, closed
//!        ▲                                            │
//!        └── every second while anything is open ◀────┘
//! ```
//!
//! The kernel's own accounting of connections is not used: it is off unless the host wants it for itself, and it is one
//! switch for all of the host. Counting in a table of our own needs no more than the rules do.

mod conntrack;
mod counts;
mod flow;
mod ledger;
mod looks;
mod tally;
mod trial;
mod watch;

pub(super) use counts::Counts;
pub(crate) use ledger::Ledger;
pub use trial::{LogLack, try_flow_log};
pub(super) use watch::{GROUP, serve};
