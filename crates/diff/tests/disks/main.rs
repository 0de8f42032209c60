//! Disks made by hand and by QEMU, and what this crate makes of them.

mod chains;
mod qcow2_file;
mod qemu;
mod tools;
