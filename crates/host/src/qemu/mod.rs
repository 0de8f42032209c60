//! QEMU as a program: which version it is, the guest kernel's parameters, how much RAM a machine has,
//! and its command line.

pub mod argv;
pub mod kernel_args;
pub mod ram;
pub(crate) mod tap;
pub mod version;
