//! Logs the flows that the kernel carries by itself: datagrams to the outside, and everything between VMs.
//!
//! ```text
//!   packet that passes ─── counted in its guest's sets (`render/flows.rs`)
//!        │ the first of its kind: opens a flow, ends one, or has another header size
//!        ▼
//!      watch ─ accounting ▶ counts of the kernel ──▶ flows of the guest ──▶ opened, closed
//!        ▲                                            │
//!        └── every second while anything is open ◀────┘
//! ```
//!
//! The kernel's own accounting of connections is not used: it is off unless the host's administrator wants it, and one
//! switch controls all of the host. Counting in a table of our own needs no more than the rules do.

mod accounting;
mod conntrack;
mod counts;
mod flow;
mod flow_table;
mod tally;
mod trial;
mod watch;

pub(super) use counts::Counts;
pub(crate) use flow_table::FlowTable;
pub use trial::{LogLack, try_flow_log};
pub(super) use watch::{GROUP, serve};
