//! Settings of a network, whichever backend carries it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::limits::CONNECT_DEADLINE;
use super::{Dialer, HostSockets, Limits, Service};
use crate::dns::Names;

/// Settings that all VMs of one network share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our address, as every VM sees it.
    pub address: Ipv4Addr,
    /// Length of the network part of that address.
    pub prefix: u8,
    /// The largest IP packet on the wire.
    pub mtu: u16,
    pub limits: Limits,
    /// Time for a server to accept a connection.
    pub connect_deadline: Duration,
    pub dialer: Arc<dyn Dialer>,
    pub names: Arc<dyn Names>,
    /// Further services at our address, each at its own port.
    pub services: Vec<Arc<dyn Service>>,
}

impl Settings {
    pub fn new(names: Arc<dyn Names>) -> Self {
        Self {
            address: Ipv4Addr::new(10, 42, 0, 1),
            prefix: 16,
            mtu: 65_000,
            limits: Limits::DEFAULT,
            connect_deadline: CONNECT_DEADLINE,
            dialer: Arc::new(HostSockets),
            names,
            services: Vec::new(),
        }
    }

    /// Whether an address is in the VMs' network.
    pub(crate) fn is_local(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
        (u32::from(address) ^ u32::from(self.address)) & mask == 0
    }
}
