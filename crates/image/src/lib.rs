//! Everything a workspace boots from: kernel, initramfs and root filesystems.
//!
//! ```text
//! packages ──▶ kernel::ensure ──▶ vmlinuz, modules ─┐
//! GUEST_AGENT ──────────────────────────────────────┴▶ initramfs::ensure ──▶ <digest>.cpio.gz
//! packages ──▶ build  ─┐
//! tar, dir ──▶ import ─┴▶ stage ──▶ ext4 ──▶ disk.qcow2 + manifest.json
//! ```
//!
//! Nothing here needs root. Entries appear whole or not at all, and several processes may ask for the same one. Other
//! programs are started only through [`agentiso_sys::command`]. This crate does not read the configuration file and knows nothing about
//! VMs.

mod agent;
mod apt;
mod assemble;
mod blocking;
mod bootstrap;
mod build;
mod decompress;
mod error;
mod ext4;
mod hash;
mod import;
pub mod initramfs;
pub mod kernel;
pub mod manifest;
mod progress;
mod publish;
mod qcow2;
mod recipe;
mod rootfs;
mod source;
mod stage;
mod store;
mod tools;

pub use agent::{GUEST_AGENT, NoGuestAgent, guest_agent};
pub use agentiso_sys::command::CommandError;
pub use apt::AptError;
pub use bootstrap::BootstrapError;
pub use build::{Existing, build};
pub use error::ImageError;
pub use ext4::Ext4Error;
pub use import::import;
pub use kernel::{Kernel, KernelError};
pub use progress::{Phase, Progress, Reporter, silent};
pub use publish::PublishError;
pub use recipe::Recipe;
pub use source::{Dirs, KernelSource, PackageSource};
pub use stage::{StageError, unpack_tar};
pub use store::{Image, get, list, remove};
