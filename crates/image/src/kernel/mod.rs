//! The guest's kernel: a vmlinuz and the few modules that the agent loads itself.

mod ensure;
mod modules;
mod packages;

pub use ensure::{Kernel, KernelError, ensure, installed};
pub use modules::ModuleError;
pub(crate) use modules::depends_of;
