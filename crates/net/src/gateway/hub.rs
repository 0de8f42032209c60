//! The gateway of one daemon.

use std::net::Ipv4Addr;
use std::sync::Arc;

use thiserror::Error;
use tokio::net::UnixListener;
use tokio::runtime::Handle;

use super::attachment::Attachment;
use super::switch::{self, Switch};
use super::vm::Vm;
use super::wire;
use crate::flow::log::FlowLog;
use crate::flow::{NetIdentity, Settings};
use crate::policy::Guard;

#[derive(Debug, Error)]
pub enum AttachError {
    #[error("another VM has the address {address}")]
    Taken { address: Ipv4Addr },
    #[error("{address} cannot be a VM's address: it is the gateway's own, or not in its network")]
    Foreign { address: Ipv4Addr },
}

/// All VMs of one daemon. Cheap to clone; all clones are the same gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    settings: Arc<Settings>,
    switch: Switch,
}

impl Gateway {
    pub fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings), switch: Switch::default() }
    }

    /// Serves a VM whose QEMU connects to `listener`, any number of times. Must be called within the runtime.
    pub fn attach(
        &self,
        identity: NetIdentity,
        guard: Guard,
        log: FlowLog,
        listener: UnixListener,
    ) -> Result<Attachment, AttachError> {
        let address = identity.address;
        if address == self.settings.address || !self.settings.is_local(address) {
            return Err(AttachError::Foreign { address });
        }
        let vm = Arc::new(Vm::new(identity, guard, log, self.settings.clone(), self.switch.clone()));
        if !self.switch.add(&vm) {
            return Err(AttachError::Taken { address });
        }
        vm.keep(wire::serve(vm.clone(), listener));
        vm.keep(switch::watch(vm.clone()));
        Ok(Attachment::new(vm, Handle::current()))
    }
}
