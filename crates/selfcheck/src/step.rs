//! The steps of a run over the boot ladder, and their results.

use std::fmt;
use std::time::Duration;

use super::verdict::{CheckResult, Verdict};

/// The steps, in the order in which they are taken. Each needs results of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Finds QEMU and chooses an accelerator.
    Accelerator,
    ColdBoot,
    MakeBareTemplate,
    BareTemplate,
    MakeImageTemplate,
    ImageTemplate,
    /// Hands over a VM of the warm pool.
    Pool,
    DiskSnapshot,
    DiskRestore,
    MemorySnapshot,
    MemoryRestore,
    MemoryForks,
    DiskFork,
    ForkOfFork,
}

impl Step {
    pub const ALL: [Self; 14] = [
        Self::Accelerator,
        Self::ColdBoot,
        Self::MakeBareTemplate,
        Self::BareTemplate,
        Self::MakeImageTemplate,
        Self::ImageTemplate,
        Self::Pool,
        Self::DiskSnapshot,
        Self::DiskRestore,
        Self::MemorySnapshot,
        Self::MemoryRestore,
        Self::MemoryForks,
        Self::DiskFork,
        Self::ForkOfFork,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accelerator => "accelerator",
            Self::ColdBoot => "cold boot",
            Self::MakeBareTemplate => "make bare template",
            Self::BareTemplate => "bare template",
            Self::MakeImageTemplate => "make image template",
            Self::ImageTemplate => "image template",
            Self::Pool => "warm pool",
            Self::DiskSnapshot => "disk snapshot",
            Self::DiskRestore => "disk restore",
            Self::MemorySnapshot => "memory snapshot",
            Self::MemoryRestore => "memory restore",
            Self::MemoryForks => "two memory forks",
            Self::DiskFork => "disk fork",
            Self::ForkOfFork => "fork of a fork",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct StepResult {
    pub step: Step,
    /// Skipped if an earlier step that it depends on failed.
    pub verdict: Verdict,
    /// The duration of the step itself, without the checks after it.
    pub time: Duration,
    /// Further details, for people.
    pub detail: String,
    pub checks: Vec<CheckResult>,
}

impl StepResult {
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}
