//! QEMU as a program: which version it is, the guest kernel's parameters, and the command line of a machine.

pub mod argv;
pub mod kernel_args;
pub mod version;
