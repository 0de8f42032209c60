//! The checks, and the origins of VMs that each applies to.

use std::fmt;

/// The way a VM was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was taken from the warm pool.
    Pool,
    ColdBoot,
    BareTemplate,
    ImageTemplate,
    DiskRestore,
    MemoryRestore,
    DiskFork,
    MemoryFork,
    /// A fork with memory of such a fork.
    ForkOfFork,
}

impl Origin {
    /// Whether the processes of its snapshot continue in it.
    pub(crate) fn keeps_processes(self) -> bool {
        match self {
            Self::MemoryRestore | Self::MemoryFork | Self::ForkOfFork => true,
            Self::Pool
            | Self::ColdBoot
            | Self::BareTemplate
            | Self::ImageTemplate
            | Self::DiskRestore
            | Self::DiskFork => false,
        }
    }

    /// Whether its source keeps running and must not be affected.
    pub(crate) fn has_parent(self) -> bool {
        match self {
            Self::DiskFork | Self::MemoryFork | Self::ForkOfFork => true,
            Self::Pool
            | Self::ColdBoot
            | Self::BareTemplate
            | Self::ImageTemplate
            | Self::DiskRestore
            | Self::MemoryRestore => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// The wall clock agrees with the host's.
    Clock,
    /// No two random numbers of the kernel are equal, in any VM.
    Entropy,
    /// The same for random numbers in Python.
    PythonEntropy,
    /// Host name and machine id are its own.
    Identity,
    /// Addresses, route and name servers are its own.
    Network,
    /// The root is intact, of the promised size, as it was left, and not shared.
    Filesystem,
    /// A file that was open and deleted can still be read.
    OpenFiles,
    /// Sleeping processes wake in time: not early, in a burst, or never.
    Timers,
    /// Processes continue where they were.
    Processes,
    /// The VM that it was forked from is not affected.
    Parent,
}

impl Check {
    pub const ALL: [Self; 10] = [
        Self::Clock,
        Self::Entropy,
        Self::PythonEntropy,
        Self::Identity,
        Self::Network,
        Self::Filesystem,
        Self::OpenFiles,
        Self::Timers,
        Self::Processes,
        Self::Parent,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Entropy => "entropy",
            Self::PythonEntropy => "python entropy",
            Self::Identity => "identity",
            Self::Network => "network",
            Self::Filesystem => "filesystem",
            Self::OpenFiles => "open files",
            Self::Timers => "timers",
            Self::Processes => "processes",
            Self::Parent => "parent",
        }
    }

    pub(crate) fn applies_to(self, origin: Origin) -> bool {
        match self {
            Self::Clock
            | Self::Entropy
            | Self::PythonEntropy
            | Self::Identity
            | Self::Network
            | Self::Filesystem
            | Self::Timers => true,
            Self::OpenFiles | Self::Processes => origin.keeps_processes(),
            Self::Parent => origin.has_parent(),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applicable(origin: Origin) -> usize {
        Check::ALL.iter().filter(|check| check.applies_to(origin)).count()
    }

    #[test]
    fn process_checks_require_restored_memory() {
        assert_eq!(applicable(Origin::MemoryFork), Check::ALL.len());
        assert_eq!(applicable(Origin::MemoryRestore), Check::ALL.len() - 1, "it has no parent");
        for origin in [Origin::Pool, Origin::ColdBoot, Origin::ImageTemplate, Origin::DiskRestore] {
            assert_eq!(applicable(origin), 7, "{origin:?}");
        }
        assert!(Check::Parent.applies_to(Origin::DiskFork) && !Check::Processes.applies_to(Origin::DiskFork));
    }
}
