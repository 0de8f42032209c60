//! Merge strategies.

/// The way in which commits of a source become commits of the target. A source is always merged as a whole or not at
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// As a series of patches, one source after the other.
    Sequential,
    /// The same on a branch of its own, which is then merged with a merge commit.
    BranchPerSource,
    /// One commit after the other, with a three-way merge each.
    CherryPick,
}

impl Strategy {
    pub const ALL: [Self; 3] = [Self::Sequential, Self::BranchPerSource, Self::CherryPick];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::BranchPerSource => "branch-per-source",
            Self::CherryPick => "cherry-pick",
        }
    }

    pub(super) fn needs_branch(self) -> bool {
        match self {
            Self::BranchPerSource => true,
            Self::Sequential | Self::CherryPick => false,
        }
    }
}
