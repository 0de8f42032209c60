//! The host's system as the other crates use it: processes and the jails and cgroups they run in, commands, files.
//!
//! * [`command`] runs programs that answer and end; [`process`] starts, finds and watches those that stay
//! * [`jail`] and [`cgroup`] confine them
//! * [`files`], [`seal`] and [`transfer`] read and write so that neither a crash nor a hostile path does harm
//! * [`fault`] lets tests inject errors into all of this
//!
//! This crate knows neither QEMU nor workspaces' disks.

pub mod cgroup;
pub mod command;
pub mod fault;
pub mod files;
mod hex;
pub mod host_memory;
pub mod jail;
pub mod process;
pub mod progress;
pub mod seal;
pub mod transfer;

pub use hex::hex;
pub use progress::Progress;
