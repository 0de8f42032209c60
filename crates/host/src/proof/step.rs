//! The steps of a climb, and what became of each.

use std::fmt;
use std::time::Duration;

use super::verdict::{CheckResult, Verdict};

/// In the order in which they are taken: each needs what some of those before it have made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// QEMU is found and an accelerator settled.
    Accelerator,
    ColdBoot,
    MakeBareTemplate,
    BareTemplate,
    MakeImageTemplate,
    ImageTemplate,
    /// A machine that stood ready is handed over.
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
    /// Skipped: what it needs is not there, because an earlier step failed.
    pub verdict: Verdict,
    /// What the step itself took, without the checks that followed it.
    pub time: Duration,
    /// What else there is to know, in words.
    pub detail: String,
    pub checks: Vec<CheckResult>,
}

impl StepResult {
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}
