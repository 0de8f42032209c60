//! What changed between two disks, found on the host from the disks alone.
//!
//! ```text
//!  disk.qcow2 ─▶ layer1.qcow2 ─┐
//!                              ├─▶ base.qcow2          Chain: the bytes that a guest sees
//!  snapshot.qcow2 ─────────────┘
//!        │
//!        └─▶ Difference, changed_bytes: which of them may differ, from the tables alone
//! ```

mod cache;
mod difference;
pub mod qcow2;
mod ranges;
mod read_at;

pub use difference::{Difference, changed_bytes};
pub use ranges::Ranges;
pub use read_at::ReadAt;
