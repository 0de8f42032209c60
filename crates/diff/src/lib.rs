//! Finds the changes between two disks, on the host and from the disks alone.
//!
//! ```text
//!  disk.qcow2 ─▶ layer1.qcow2 ─┐
//!                              ├─▶ base.qcow2          Chain: the bytes that a guest sees
//!  snapshot.qcow2 ─────────────┘
//!        │                │
//!        │                └─▶ Difference, changed_bytes: which of them may differ, from the tables alone
//!        ▼
//!  ext4 (superblock, journal, inodes, directories)
//!        │
//!        └─▶ diff_paths: added, modified and removed paths
//! ```
//!
//! ```no_run
//! use std::path::Path;
//!
//! use agentiso_diff::qcow2::Chain;
//! use agentiso_diff::{DiffOptions, Difference, Watch, diff_paths};
//!
//! let old = Chain::open(Path::new("snapshot.qcow2"))?;
//! let new = Chain::open(Path::new("disk.qcow2"))?;
//! let difference = Difference::between(&old, &new, Watch::default())?;
//! let is_shared = |range| difference.is_shared(range);
//! let paths = diff_paths(&old, &new, &DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() })?;
//! assert!(paths.counts.added >= paths.added.len() as u64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing is written, mounted or started, and no privilege is needed. Guests control every byte that is read here, so
//! a disk can be damaged in any way. The result is then an error that names the damage, after a bounded amount of work
//! and memory. All calls block, so they must run on a thread where that is allowed.

mod cache;
mod difference;
pub mod ext4;
mod paths;
pub mod qcow2;
mod ranges;
mod read_at;
mod watch;

pub use difference::{Difference, changed_bytes};
pub use paths::{ChangedPath, Counts, DiffError, DiffOptions, PathDiff, diff_paths};
pub use ranges::Ranges;
pub use read_at::ReadAt;
pub use watch::{Ended, Watch};
