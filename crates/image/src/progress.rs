//! Progress reports of a running build.

/// The step a build is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another process builds the same entry; its result will be used.
    Waiting,
    Indexes,
    Kernel,
    Bootstrap,
    Unpack,
    Filesystem,
    Disk,
    Checksums,
    Publish,
}

impl Phase {
    /// Words for a progress display.
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting for another build of the same files",
            Self::Indexes => "reading package indexes",
            Self::Kernel => "fetching the kernel",
            Self::Bootstrap => "installing packages",
            Self::Unpack => "unpacking the root filesystem",
            Self::Filesystem => "writing the filesystem",
            Self::Disk => "writing the disk image",
            Self::Checksums => "computing checksums",
            Self::Publish => "publishing",
        }
    }
}

/// One report. `percent` is of the phase, if known; `detail` is the tool's latest line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub percent: Option<u8>,
    pub detail: Option<String>,
}

/// Receives reports; called from the task that builds, so it must not block.
pub type Reporter<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A reporter for callers that show nothing.
pub fn silent(_: Progress) {}

pub(crate) fn enter(report: Reporter<'_>, phase: Phase) {
    report(Progress { phase, percent: None, detail: None });
}
