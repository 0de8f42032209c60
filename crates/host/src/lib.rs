//! Effects on the host: QEMU and its control protocol, disks, the guest agent's connection, memory templates and the
//! boot ladder.
//!
//! [`Hypervisor`] is the entry point. It makes [`Vm`]s from [`VmSpec`]s and finds them again after a restart:
//!
//! ```text
//! Hypervisor ── boot (ladder ▸ bring_up ▸ launch) ──▶ VM ── agent, exited, shutdown, kill
//!     │              │          │
//!  templates       disk     qemu, qmp, process
//! ```
//!
//! Command lines, headers, keys and verdicts are pure functions. Code that touches the host is small and undoes its
//! effects when it is dropped.

pub mod accelerator;
pub mod boot;
pub mod carry;
pub mod hypervisor;
pub mod qemu;
pub mod qmp;
mod running;
pub mod snapshot;
pub mod strays;
pub mod templates;
pub mod vm;

pub use agentiso_diff as diff;
pub use boot::BootError;
pub use hypervisor::{AttachError, HostFacts, Hypervisor, HypervisorError, HypervisorSettings};
pub use qemu::argv::MTU;
pub use running::RunningVm;
pub use snapshot::SnapshotError;
pub use templates::{TemplateError, Templates, templates_dir};
pub use vm::{ExitCause, ExitReason, Vm};

/// A VM that is up, as this crate starts it.
pub type Booted = agentiso_vm::Booted<Vm>;
