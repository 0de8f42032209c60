//! The largest size of the ledger.
//!
//! A ledger that reading would refuse is never written. So the largest ledger that a configuration allows must fit:
//! otherwise a few clients could fill it and keep the workspaces of all others from being saved.

/// A larger file is refused as a ledger.
pub const MAX_LEDGER_BYTES: u64 = 4 << 30;

/// The most bytes of one workspace without its snapshots. Most of them are its network policy.
pub const WORKSPACE_BYTES: u64 = 160 << 10;

/// The most bytes of one snapshot.
pub const SNAPSHOT_BYTES: u64 = 1 << 10;

/// The most bytes of a team with one member. Every member is a workspace.
pub const MEMBER_BYTES: u64 = 64 << 10;

/// The size of the largest ledger with this many workspaces, each with this many snapshots.
pub fn largest_ledger(workspaces: u32, snapshots: u32) -> u64 {
    u64::from(workspaces) * (WORKSPACE_BYTES + MEMBER_BYTES + u64::from(snapshots) * SNAPSHOT_BYTES)
}
