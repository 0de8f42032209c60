//! Changes to the guest as a whole: its disk, its identity, its shutdown.
//!
//! Everything that changes more than files and processes is behind the trait [`System`]. [`Vm`] implements it in a VM;
//! [`NoSystem`] refuses everything, for tests that run the agent on an ordinary host.

mod error;
mod identity;
mod memory;
mod modules;
mod names;
mod network;
mod power;
mod root;
mod uevent;
mod vm;

use std::fmt::Debug;

use agentiso_protocol::schema::v1;

pub use error::SystemError;
pub use memory::memory_info;
pub use uevent::wait_for;
pub use vm::Vm;

pub(crate) use modules::load_first as load_first_modules;
pub(crate) use network::loopback_up;

/// Operations that only an agent in a VM may do. All of them block, except `stir`.
pub trait System: Debug + Send + Sync + 'static {
    /// Whether the disk is attached.
    fn stage(&self) -> v1::Stage;
    /// The init that runs as process 1.
    fn init_mode(&self) -> v1::InitMode;
    /// The kernel's boot id.
    fn boot_id(&self) -> String;
    /// Makes a disk the root file system.
    fn attach_root(&self, request: &v1::AttachRootRequest) -> Result<v1::AttachRootResponse, SystemError>;
    /// Grows the root file system to its disk, once that has the expected size.
    fn grow_root(&self, expected_bytes: u64) -> Result<v1::GrowRootResponse, SystemError>;
    /// Gives the guest its own identity.
    fn identify(&self, request: &v1::IdentifyRequest) -> Result<v1::IdentifyResponse, SystemError>;
    /// Mixes random bytes from the host into the guest's random number generator. It does not block.
    fn stir(&self, random: &[u8]);
    /// Brings the clock up to date.
    fn catch_up(&self, request: &v1::CatchUpRequest) -> Result<v1::CatchUpResponse, SystemError>;
    /// Ends all processes and leaves the disk clean.
    fn quiesce(&self, grace_ms: u32) -> Result<v1::ShutdownResponse, SystemError>;
    /// Powers the VM off.
    fn power_off(&self);
}

/// For an agent on an ordinary host: files and commands work, all changes to the system are refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSystem;

impl System for NoSystem {
    fn stage(&self) -> v1::Stage {
        v1::Stage::Rooted
    }

    fn init_mode(&self) -> v1::InitMode {
        v1::InitMode::Fast
    }

    fn boot_id(&self) -> String {
        vm::boot_id()
    }

    fn attach_root(&self, _request: &v1::AttachRootRequest) -> Result<v1::AttachRootResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn grow_root(&self, _expected_bytes: u64) -> Result<v1::GrowRootResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn identify(&self, _request: &v1::IdentifyRequest) -> Result<v1::IdentifyResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn stir(&self, _random: &[u8]) {}

    fn catch_up(&self, _request: &v1::CatchUpRequest) -> Result<v1::CatchUpResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn quiesce(&self, _grace_ms: u32) -> Result<v1::ShutdownResponse, SystemError> {
        Err(SystemError::NotVm)
    }

    fn power_off(&self) {}
}
