//! Settings that all VMs of one gateway share, and the sizes of its queues.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::frame::{MAX_FRAME, PREFIX, READ_BUFFER};
use super::pool::KEPT;
use super::track;
use crate::dns::Names;
use crate::flow::budget::Budget;
use crate::flow::limits::{CONNECT_DEADLINE, QUERIES};
use crate::flow::{Dialer, HostSockets, Limits, Service};
use crate::policy::sniff::MAX_BYTES;

/// Most frames that wait for QEMU to read them. More would only add delay.
pub(crate) const FRAMES_DOWN: usize = 64;

/// Most packets that wait for their flow's task. A window full of large packets is a handful; small ones are bounded by
/// [`QUEUED_UP`] as well.
pub(crate) const PACKETS_PER_FLOW: usize = 128;

/// Most bytes of packets of one VM that wait for its flows.
pub(crate) const QUEUED_UP: usize = 8 << 20;

/// Most datagrams that wait for their association's task.
pub(crate) const DATAGRAMS: usize = 32;

/// The most memory that a VM with these limits can make us use, in bytes.
const fn most_memory(limits: &Limits) -> usize {
    // The first bytes of a connection may be held three times besides: by the gate, by the sniffer, and of the
    // answer.
    let flows = Budget::most(limits.flows) + limits.flows * 3 * MAX_BYTES;
    let frames = (2 * FRAMES_DOWN + KEPT) * (PREFIX + MAX_FRAME);
    let tracks = track::LIMIT * track::TRACK;
    flows + frames + tracks + QUEUED_UP + READ_BUFFER + QUERIES * 128 * 1024
}

const _: () = assert!(most_memory(&Limits::DEFAULT) < 128 << 20);

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Our address on every VM's wire.
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

impl GatewaySettings {
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
