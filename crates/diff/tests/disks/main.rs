//! Disks made by hand, by QEMU and by e2fsprogs, and what this crate makes of them.

mod chains;
mod ext4_image;
mod filesystems;
mod hostile;
mod journals;
mod machines;
mod qcow2_file;
mod qemu;
mod tools;
mod trees;
