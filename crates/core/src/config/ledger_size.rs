//! How large the ledger may become. What reading refuses is never written, so the largest that a configuration allows must
//! fit: otherwise what some clients fill would keep all others from being saved.

/// A larger file is not a ledger.
pub const MAX_LEDGER_BYTES: u64 = 4 << 30;

/// What one workspace takes at most, apart from its snapshots: most of it is its network policy.
pub const WORKSPACE_BYTES: u64 = 160 << 10;

/// What one snapshot takes at most.
pub const SNAPSHOT_BYTES: u64 = 1 << 10;

/// What a team with one member takes at most. Every member is a workspace.
pub const MEMBER_BYTES: u64 = 64 << 10;

/// The largest ledger with so many workspaces, each with so many snapshots.
pub fn largest_ledger(workspaces: u32, snapshots: u32) -> u64 {
    u64::from(workspaces) * (WORKSPACE_BYTES + MEMBER_BYTES + u64::from(snapshots) * SNAPSHOT_BYTES)
}
