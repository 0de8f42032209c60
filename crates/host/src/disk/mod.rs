//! Disks of workspaces.
//!
//! [`Storage`] says what a backend can do, in plain types; [`Qcow2Storage`] keeps each disk as an overlay file
//! on an image that never changes. [`qcow2_header`] reads and writes the format's first clusters itself,
//! because starting `qemu-img` takes longer than everything else a restore does on the host.

mod qcow2;
pub mod qcow2_header;
mod storage;

pub use qcow2::{DISK_FILE, Qcow2Storage};
pub use storage::{Backing, DiskError, DiskSizes, Storage};
