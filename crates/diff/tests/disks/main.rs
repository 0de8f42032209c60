//! Tests of this crate with disks made by hand, by QEMU and by e2fsprogs.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod chains;
mod ext4_image;
mod filesystems;
mod hostile;
mod journals;
mod qcow2_file;
mod qemu;
mod tools;
mod trees;
mod vms;
