//! Which checks there are, and which of them hold for a machine of which origin.

use std::fmt;

/// How a machine came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It stood ready and was handed over.
    Pool,
    ColdBoot,
    BareTemplate,
    ImageTemplate,
    DiskRestore,
    MemoryRestore,
    DiskFork,
    MemoryFork,
    /// A fork with memory whose source is such a fork itself.
    ForkOfFork,
}

impl Origin {
    /// Whether processes that ran when its snapshot was taken go on in it.
    pub fn keeps_processes(self) -> bool {
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

    /// Whether another machine lives on that must not notice anything.
    pub fn has_parent(self) -> bool {
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
    /// The wall clock is the host's.
    Clock,
    /// No random number of the kernel's comes twice, in whatever machine.
    Entropy,
    /// The same, as programs in Python see it.
    PythonEntropy,
    /// Host name and machine id are its own.
    Identity,
    /// Addresses, route and name servers are its own.
    Network,
    /// The root is whole, of the promised size, as it was left, and nobody else's.
    Filesystem,
    /// A file that was open and deleted can be read on.
    OpenFiles,
    /// What sleeps wakes in time: neither early, in a burst, nor never.
    Timers,
    /// What ran goes on from where it was.
    Processes,
    /// The machine it was forked from has not noticed.
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

    pub fn applies_to(self, origin: Origin) -> bool {
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
    fn processes_are_asked_for_only_where_memory_came_along() {
        assert_eq!(applicable(Origin::MemoryFork), Check::ALL.len());
        assert_eq!(applicable(Origin::MemoryRestore), Check::ALL.len() - 1, "it has no parent");
        for origin in [Origin::Pool, Origin::ColdBoot, Origin::ImageTemplate, Origin::DiskRestore] {
            assert_eq!(applicable(origin), 7, "{origin:?}");
        }
        assert!(Check::Parent.applies_to(Origin::DiskFork) && !Check::Processes.applies_to(Origin::DiskFork));
    }
}
