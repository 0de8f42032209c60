//! Settings of a bridge.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::dns::Names;
use crate::flow::limits::CONNECT_DEADLINE;
use crate::flow::{Dialer, HostSockets, Limits, Service};

#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// The bridge's name, at most 15 characters.
    pub name: String,
    /// Our address on the bridge.
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

impl BridgeSettings {
    pub fn new(name: &str, names: Arc<dyn Names>) -> Self {
        Self {
            name: name.to_owned(),
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
}
