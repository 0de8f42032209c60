//! QEMU as a program: its version, the guest kernel's parameters, the RAM of a VM, and its command line.

pub mod argv;
pub mod kernel_args;
pub mod ram;
pub(crate) mod tap;
pub mod version;
