//! Removes connections of a VM that is gone from the kernel's connection tracking, because their packets must not reach
//! the next VM with the same address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::flow::Flow;
use crate::netlink::{Message, Netlink, Subsystem};
use crate::policy::Transport;

/// `NFNL_SUBSYS_CTNETLINK`, with `IPCTNL_MSG_CT_GET` and `IPCTNL_MSG_CT_DELETE`.
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;

#[derive(Debug)]
pub(super) struct Connections(Netlink);

impl Connections {
    pub(super) fn open() -> io::Result<Self> {
        Netlink::open(Subsystem::Netfilter).map(Self)
    }

    /// Removes a connection that a guest has opened. A missing one is no error.
    pub(super) fn remove(&mut self, opener: Ipv4Addr, flow: &Flow) -> io::Result<()> {
        unless_missing(self.0.request(message(DELETE, opener, flow)))
    }

    /// Whether the table can be reached at all.
    pub(super) fn try_out(&mut self) -> io::Result<()> {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let flow = Flow { transport: Transport::Udp, guest_port: 0, remote: nobody };
        unless_missing(self.0.request(message(GET, Ipv4Addr::UNSPECIFIED, &flow)))
    }
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Identifies a connection by its original addresses and ports, before any translation.
fn message(kind: u16, opener: Ipv4Addr, flow: &Flow) -> Message {
    let protocol = match flow.transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Icmp => 1,
    };
    let mut message = Message::new(kind, 0, &[2, 0, 0, 0]);
    message.nest(1, |tuple| {
        tuple.nest(1, |addresses| {
            addresses.bytes(1, &opener.octets()).bytes(2, &flow.remote.ip().octets());
        });
        tuple.nest(2, |ports| {
            ports.byte(1, protocol).bytes(2, &flow.guest_port.to_be_bytes());
            ports.bytes(3, &flow.remote.port().to_be_bytes());
        });
    });
    message
}
