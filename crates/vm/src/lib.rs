//! The vocabulary of VMs: their description, the calls on a VM and its guest, and the failures of these calls.
//!
//! ```text
//! Vms ── create, start, restore, branch, attach ──▶ Vm ── snapshot, shutdown, … ──▶ GuestAgent ── exec, files, jobs
//! ```
//!
//! For QEMU, `agentiso-host` implements [`Vm`] and [`GuestAgent`], and `agentiso-daemon` implements [`Vms`]. Fakes of
//! the tests implement all three. The daemon and all implementations use the types of this crate; only the guest's
//! protocol and the files on disk have types of their own.

mod agent;
mod carry;
mod exec;
mod facts;
mod failure;
mod files;
mod jobs;
mod local;
mod snapshot;
mod spec;
mod vm;
mod vms;

pub use agent::GuestAgent;
pub use carry::{About, Arrival, Carried, Exported, Facts, Imported, Target};
pub use exec::{Captured, Command, ExecEvent, ExecEvents, ExecOutcome, ExecSpec, OutputStream};
pub use facts::{HostFacts, Stray, TEMPLATE_BUILD, TemplateInfo};
pub use failure::{
    AgentFailure, AttachFailure, BootFailure, CarryFailure, EraseFailure, GuestCode, ImageFailure,
    SnapshotFailure, Unrecorded,
};
pub use files::{
    Arrived, DirEntry, DirListing, Download, EntryKind, FileContent, ListOptions, Pieces, Upload, WriteFile,
};
pub use jobs::{ExecOrJob, JobQuery, JobState, JobSummary};
pub use local::{LocalConnection, LocalConnections};
pub use snapshot::{
    ChangedPath, ChangedPaths, DiskSnapshot, Origin, SizesOf, SnapshotDiff, SnapshotSizes, SnapshotTaken,
    VolumeSizes,
};
pub use spec::{BaseImage, Card, Identity, ImageRef, NetworkIdentity, OnSpawn, Rung, VmSpec};
pub use vm::Vm;
pub use vms::{Booted, Vms};

pub use agentiso_sys::Progress;
pub use agentiso_sys::process::VmRecord;
