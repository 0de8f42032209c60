//! Processes that outlive the daemon: how a QEMU is started, found again, watched and ended.
//!
//! A pid alone identifies nothing, because pids are reused. A process is identified by its [`VmRecord`] (pid,
//! start time, boot of the host), held by a pidfd, and signalled only through that pidfd.

mod child;
mod handle;
mod jailed;
mod record;
mod spawn;

pub use handle::{Exit, Process, ProcessError};
pub use jailed::{Jailed, JailedError};
pub use record::{VmRecord, host_boot_id, start_time_of};
pub use spawn::{Launch, Priority, SpawnError, detach};
