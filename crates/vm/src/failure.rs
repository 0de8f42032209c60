//! The failures of calls on VMs, as far as callers distinguish them.

use std::path::PathBuf;

use agentiso_core::names::ImageName;
/// The guest's reasons to refuse a call, stable across versions.
pub use agentiso_protocol::ErrorCode as GuestCode;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SnapshotFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error("{reason}")]
    Failed { reason: String },
}

#[derive(Debug, Error)]
pub enum CarryFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    /// The host is fine; the file cannot be used.
    #[error("{reason}")]
    Unusable { reason: String },
    #[error("{reason}")]
    Failed { reason: String },
}

#[derive(Debug, Error)]
pub enum BootFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    /// The host lacks something that every VM needs.
    #[error("{reason}")]
    HostUnfit { reason: String },
    /// Another attempt fails in the same way until the disk, the image or the configuration is changed.
    #[error("{reason}")]
    Lasting { reason: String },
    /// Another attempt may succeed.
    #[error("{reason}")]
    Failed { reason: String },
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
}

/// The process of a VM was ended because it could not be recorded.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct Unrecorded(pub Box<dyn std::error::Error + Send + Sync>);

#[derive(Debug, Error)]
pub enum AttachFailure {
    #[error("the VM's process is gone")]
    Gone,
    #[error("the VM is running but cannot be reached: {reason}")]
    Unreachable { reason: String },
    /// The recorded process exists, but it is no longer the program that was started.
    #[error("the VM's process is not the program that was started: {reason}")]
    Altered { reason: String },
    /// The VM is fine; the host lacks something that is needed to talk to any VM.
    #[error("this host cannot run VMs: {reason}")]
    HostUnfit { reason: String },
}

#[derive(Debug, Error)]
#[error("{what} could not be removed: {source}")]
pub struct EraseFailure {
    pub what: String,
    #[source]
    pub source: std::io::Error,
}

#[derive(Debug, Error)]
pub enum ImageFailure {
    #[error("there is no image {name}")]
    Missing { name: ImageName, known: Vec<String> },
    #[error("image {name} cannot be used: {reason}")]
    Broken { name: ImageName, reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AgentFailure {
    /// The guest answered with a refusal.
    #[error("{message}")]
    Refused { code: GuestCode, message: String },
    /// The guest's agent is part of a memory snapshot that is older than this call.
    #[error("the agent in the guest is older than this daemon and does not support {call}")]
    Unsupported { call: &'static str },
    #[error("the guest did not answer within {seconds} s")]
    Silent { seconds: u64 },
    #[error("the connection to the guest broke: {reason}")]
    Broken { reason: String },
}
