//! Reasons why a VM did not come up.

use std::path::PathBuf;

use agentiso_agent::AgentError;
use agentiso_core::names::ImageName;
use agentiso_disk::DiskError;
use agentiso_sys::files::FileError;
use agentiso_sys::process::SpawnError;
use agentiso_vm::{BootFailure, Rung, Unrecorded};
use thiserror::Error;

use super::init::IMAGE_INIT;
use crate::qmp::QmpError;
use crate::vm::ExitReason;

#[derive(Debug, Error)]
pub enum BootError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the socket path {} is too long ({len} bytes, at most {max}); set vm.run_dir to a shorter path", path.display())]
    SocketPath { path: PathBuf, len: usize, max: usize },
    #[error("the host provided no random numbers: {0}")]
    Entropy(getrandom::Error),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{0}")]
    Qmp(#[from] QmpError),
    #[error("the VM ended while starting: {reason}{}", quoted(console_tail))]
    Died { reason: ExitReason, console_tail: String },
    #[error("{error}{}", quoted(console_tail))]
    Agent { error: AgentError, console_tail: String },
    #[error(
        "the VM did not start within {seconds} s (vm.boot_timeout_secs sets the limit){}",
        quoted(console_tail)
    )]
    TimedOut { seconds: u64, console_tail: String },
    #[error(
        "QEMU (pid {pid}) failed and did not end within {seconds} s of being killed; its disk is still in use"
    )]
    NotGone { pid: i32, seconds: u64 },
    #[error("the guest's file system has {actual} bytes on a disk of {expected} bytes")]
    RootSize { actual: u64, expected: u64 },
    #[error("the template contains no root file system")]
    NotRooted,
    #[error(
        "the image {image} has no {IMAGE_INIT}, which vm.init_mode = \"system\" (or \"openrc\") needs; use an image with \
         an init, such as debian-system, or set vm.init_mode to \"fast\""
    )]
    NoInit { image: ImageName },
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
    #[error("the {rung} failed: {source}")]
    Rung { rung: Rung, source: Box<BootError> },
}

impl BootError {
    /// Whether a slower rung might succeed after this failure.
    pub(crate) fn is_worth_another_try(&self) -> bool {
        match self {
            Self::Disk(_)
            | Self::File(_)
            | Self::SocketPath { .. }
            | Self::Entropy(_)
            | Self::Spawn(_)
            | Self::NoInit { .. }
            | Self::NotGone { .. }
            | Self::Unrecorded(_) => false,
            Self::Qmp(_)
            | Self::Died { .. }
            | Self::Agent { .. }
            | Self::TimedOut { .. }
            | Self::RootSize { .. }
            | Self::NotRooted => true,
            Self::Rung { source, .. } => source.is_worth_another_try(),
        }
    }

    /// Whether the template itself is certainly at fault: QEMU refused its state, or its files do not match its
    /// manifest. A guest that did not answer may just as well have met a busy host.
    pub(crate) fn condemns_template(&self) -> bool {
        match self {
            Self::Qmp(error) => match error {
                QmpError::Migration { .. } | QmpError::Refused { .. } | QmpError::Closed => true,
                QmpError::Connect { .. }
                | QmpError::NoAnswer { .. }
                | QmpError::Unexpected { .. }
                | QmpError::File(_)
                | QmpError::Merge { .. }
                | QmpError::MigrationDeadline { .. }
                | QmpError::PauseLimit { .. } => false,
            },
            Self::Died { .. } | Self::NotRooted | Self::RootSize { .. } => true,
            Self::Rung { source, .. } => source.condemns_template(),
            Self::Disk(_)
            | Self::File(_)
            | Self::SocketPath { .. }
            | Self::Entropy(_)
            | Self::Spawn(_)
            | Self::Agent { .. }
            | Self::TimedOut { .. }
            | Self::NoInit { .. }
            | Self::NotGone { .. }
            | Self::Unrecorded(_) => false,
        }
    }

    /// Whether the failure is only a timeout.
    pub(crate) fn is_late(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Agent { error: AgentError::NotReady { .. } | AgentError::TimedOut { .. }, .. } => true,
            Self::Rung { source, .. } => source.is_late(),
            Self::Disk(_)
            | Self::File(_)
            | Self::SocketPath { .. }
            | Self::Entropy(_)
            | Self::Spawn(_)
            | Self::Qmp(_)
            | Self::Died { .. }
            | Self::Agent { .. }
            | Self::RootSize { .. }
            | Self::NotRooted
            | Self::NoInit { .. }
            | Self::NotGone { .. }
            | Self::Unrecorded(_) => false,
        }
    }

    /// Whether another attempt would fail in the same way.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Disk(error) => !error.is_passing(),
            Self::SocketPath { .. } | Self::NoInit { .. } => true,
            Self::Rung { source, .. } => source.is_lasting(),
            Self::File(_)
            | Self::Entropy(_)
            | Self::Spawn(_)
            | Self::Qmp(_)
            | Self::Died { .. }
            | Self::Agent { .. }
            | Self::TimedOut { .. }
            | Self::RootSize { .. }
            | Self::NotRooted
            | Self::NotGone { .. }
            | Self::Unrecorded(_) => false,
        }
    }

    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Disk(error) => error.is_out_of_space(),
            Self::File(error) | Self::Spawn(SpawnError::Log(error)) => error.is_out_of_space(),
            Self::Rung { source, .. } => source.is_out_of_space(),
            Self::SocketPath { .. }
            | Self::Entropy(_)
            | Self::Spawn(SpawnError::Exec { .. } | SpawnError::Jail { .. } | SpawnError::Process(_))
            | Self::Qmp(_)
            | Self::Died { .. }
            | Self::Agent { .. }
            | Self::TimedOut { .. }
            | Self::RootSize { .. }
            | Self::NotRooted
            | Self::NoInit { .. }
            | Self::NotGone { .. }
            | Self::Unrecorded(_) => false,
        }
    }
}

/// The failure of a boot as the daemon and its clients tell it apart.
impl From<BootError> for BootFailure {
    fn from(error: BootError) -> Self {
        if let BootError::Unrecorded(unrecorded) = error {
            return Self::Unrecorded(unrecorded);
        }
        let reason = error.to_string();
        if error.is_out_of_space() {
            Self::NoSpace { what: reason }
        } else if error.is_lasting() {
            Self::Lasting { reason }
        } else {
            Self::Failed { reason }
        }
    }
}

fn quoted(console_tail: &str) -> String {
    match console_tail.trim() {
        "" => String::new(),
        tail => format!("; the console ends with:\n{tail}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(source: BootError) -> Box<BootError> {
        Box::new(source)
    }

    #[test]
    fn failures_that_need_a_person_are_lasting() {
        let image = ImageName::parse("debian-minimal").unwrap();
        let small = DiskError::TooSmall { image: "debian-dev".to_owned(), wanted_gib: 1, needed_gib: 2 };
        for error in [BootError::NoInit { image }, small.into()] {
            let text = error.to_string();
            let wrapped = BootError::Rung { rung: Rung::ColdBoot, source: boxed(error) };
            assert!(matches!(wrapped.into(), BootFailure::Lasting { reason } if reason.contains(&text)));
        }
    }

    #[test]
    fn unreadable_disk_may_be_readable_another_time() {
        let source = agentiso_disk::qcow2_header::HeaderError::Read(std::io::Error::other("busy"));
        let disk = DiskError::Format { path: "/disk.qcow2".into(), source };
        assert!(matches!(BootError::from(disk).into(), BootFailure::Failed { .. }));
    }

    #[test]
    fn late_guest_may_answer_another_time() {
        let late = BootError::TimedOut { seconds: 60, console_tail: String::new() };
        assert!(matches!(late.into(), BootFailure::Failed { .. }));
    }

    #[test]
    fn refused_record_keeps_its_own_cause() {
        let cause = std::io::Error::other("the ledger is read-only");
        let failure = BootFailure::from(BootError::from(Unrecorded(cause.into())));
        let BootFailure::Unrecorded(Unrecorded(kept)) = failure else { panic!("{failure}") };
        assert!(kept.downcast::<std::io::Error>().is_ok());
    }
}
