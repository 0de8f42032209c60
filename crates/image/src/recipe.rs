//! The root filesystems that can be built by name.

use std::fmt;

/// A known recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// The tools that AI agents expect on a developer's computer. The default image.
    DebianDev,
    /// Little more than a shell, git and Python: small and quick, for tests.
    DebianMinimal,
    /// The minimal one with systemd as its init, for `init_mode = "system"`.
    DebianSystem,
}

impl Recipe {
    pub const ALL: [Self; 3] = [Self::DebianDev, Self::DebianMinimal, Self::DebianSystem];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|recipe| recipe.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::DebianDev => "debian-dev",
            Self::DebianMinimal => "debian-minimal",
            Self::DebianSystem => "debian-system",
        }
    }

    /// Packages beyond Debian's minimal base, sorted.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::DebianDev => &[
                "build-essential",
                "ca-certificates",
                "curl",
                "git",
                "iproute2",
                "jq",
                "less",
                "netbase",
                "procps",
                "python3",
                "python3-pip",
                "python3-venv",
                "ripgrep",
            ],
            Self::DebianMinimal => &["git", "python3"],
            Self::DebianSystem => &["git", "python3", "systemd-sysv"],
        }
    }

    /// Free space that a build needs: chroot, tar, staged tree, raw and final disk, which exist together for a moment.
    pub(crate) fn needed_bytes(self) -> u64 {
        match self {
            Self::DebianDev => 5 << 30,
            Self::DebianMinimal | Self::DebianSystem => 2 << 30,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipe_names_parse_back() {
        for recipe in Recipe::ALL {
            assert_eq!(Recipe::parse(recipe.name()), Some(recipe));
            assert!(recipe.packages().is_sorted());
        }
        assert_eq!(Recipe::parse("arch"), None);
    }
}
