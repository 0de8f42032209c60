//! Settings that all VMs of one gateway share, and limits for each VM.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::dialer::{Dialer, HostSockets};
use super::frame::{MAX_FRAME, PREFIX, READ_BUFFER};
use super::names::Names;
use super::pool::KEPT;
use super::service::Service;
use super::track;
use crate::budget::Budget;
use crate::sniff::MAX_BYTES;

/// Locally administered; "agiso" in its last five bytes.
pub const GATEWAY_MAC: [u8; 6] = [0x02, 0x61, 0x67, 0x69, 0x73, 0x6f];

/// Most frames that wait for QEMU to read them. More would only add delay.
pub(crate) const FRAMES_DOWN: usize = 64;

/// Most packets that wait for their flow's task. A window full of large packets is a handful; small ones are bounded by
/// [`QUEUED_UP`] as well.
pub(crate) const PACKETS_PER_FLOW: usize = 128;

/// Most bytes of packets of one VM that wait for its flows.
pub(crate) const QUEUED_UP: usize = 8 << 20;

/// Most datagrams that wait for their association's task.
pub(crate) const DATAGRAMS: usize = 32;

/// Most queries of one VM that are answered at once.
pub(crate) const QUERIES: usize = 64;

/// Most forwards of one VM.
pub(crate) const FORWARDS: usize = 64;

/// Timeout for opening a connection.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Interval of keep-alive probes to a quiet guest.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10 * 60);

/// The same for a guest that has closed its side while its server is silent. A guest that is gone for good, and not
/// only listening, forgets the connection after a minute and answers the probe with a reset.
pub(crate) const ASKED_AT_THE_END: Duration = Duration::from_secs(15);

/// Timeout for a guest that sends nothing, not even an answer to keep-alive probes. Long, because a VM may be paused.
pub(crate) const IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// Idle time of an association, as in home routers. A program that needs more sends something.
pub(crate) const UDP_IDLE: Duration = Duration::from_secs(60);

/// Open files for the rest of the daemon: the ledger, images, clients, questions of the resolver.
const OTHER_FILES: usize = 1024;

/// Open files of a VM besides its connections: its sockets and pipes, and its forwards.
const FILES_PER_VM: usize = 32 + FORWARDS;

/// Sockets that a VM gets even if there are too few for all: few VMs use all of theirs.
const LEAST_SOCKETS: usize = 40;

/// Limits on what one VM may have open at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// TCP connections, inbound and outbound.
    pub flows: usize,
    /// TCP connections whose server has not answered yet.
    pub connecting: usize,
    /// Size of each buffer of a connection, while there are few connections. Many get smaller ones; see [`Budget`].
    pub buffer: usize,
    pub associations: usize,
    /// Frames of the guest per second, however small. A guest that sends more has to wait.
    pub frames: u32,
}

impl Limits {
    pub const DEFAULT: Self =
        Self { flows: 1024, connecting: 128, buffer: 256 * 1024, associations: 256, frames: 50_000 };

    /// The most memory that a VM can make us use, in bytes.
    pub const fn most_memory(&self) -> usize {
        // The first bytes of a connection may be held three times besides: by the gate, by the sniffer, and of the
        // answer.
        let flows = Budget::most(self.flows) + self.flows * 3 * MAX_BYTES;
        let frames = (2 * FRAMES_DOWN + KEPT) * (PREFIX + MAX_FRAME);
        let tracks = track::LIMIT * track::TRACK;
        flows + frames + tracks + QUEUED_UP + READ_BUFFER + QUERIES * 128 * 1024
    }

    /// These limits, or lower ones if the process may open too few files for so many VMs: each connection and
    /// association has a socket, and one VM must not use up those of another, nor of anything else.
    #[must_use]
    pub fn within(self, open_files: usize, vms: usize) -> Self {
        let share = open_files.saturating_sub(OTHER_FILES) / vms.max(1);
        let sockets = share.saturating_sub(FILES_PER_VM).max(LEAST_SOCKETS);
        // One in five is an association, as in the default limits.
        let associations = self.associations.min(sockets / 5);
        Self { flows: self.flows.min(sockets - associations), associations, ..self }
    }
}

const _: () = assert!(Limits::DEFAULT.most_memory() < 128 << 20);
const _: () = assert!(KEEP_ALIVE.as_secs() * 2 < IDLE.as_secs());

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_share_the_open_file_limit() {
        let within = |files, vms| {
            let limits = Limits::DEFAULT.within(files, vms);
            (limits.flows, limits.associations)
        };
        let all = (Limits::DEFAULT.flows, Limits::DEFAULT.associations);
        assert_eq!(within(1 << 20, 100), all);
        assert_eq!(within(20_000, 10), all);
        let (flows, associations) = within(20_000, 20);
        assert!(flows >= 512 && 20 * (flows + associations) < 20_000);
        assert_eq!(within(1024, 20), (32, 8));
        assert_eq!(within(0, 0), (32, 8));
    }
}
