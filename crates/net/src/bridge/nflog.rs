//! Reads the packets our nftables rules log.
//!
//! The kernel sends the beginning of each packet over netlink to the socket that is bound to the rule's nflog group.

use std::io;

use tokio::io::unix::AsyncFd;

use crate::netlink::{Message, Netlink, Received, Subsystem};

/// The subsystem, in the high byte of every message's kind.
const LOG: u16 = 4 << 8;
const PACKET: u16 = LOG;
const CONFIGURE: u16 = LOG | 1;

/// Bytes of a packet that are copied: the longest IP header, and the first bytes behind it, which an ICMP error quotes.
const ENOUGH: u32 = 68;

/// Opens a socket that receives the packets of one group.
pub(super) fn listen(group: u16) -> io::Result<AsyncFd<Netlink>> {
    let mut log = Netlink::open(Subsystem::Netfilter)?;
    let message = || {
        let [high, low] = group.to_be_bytes();
        Message::new(CONFIGURE, 0, &[0, 0, high, low])
    };
    let mut bind = message();
    bind.byte(1, 1);
    log.request(bind)?;
    let mut configure = message();
    // Copy the packet itself, and send each one at once.
    let mode = [&ENOUGH.to_be_bytes()[..], &[2, 0]].concat();
    configure.bytes(2, &mode).be32(5, 1);
    log.request(configure)?;
    rustix::io::ioctl_fionbio(&log, true)?;
    // SAFETY: the registered socket is owned by `log` for its whole life.
    let log = unsafe { AsyncFd::register(log) };
    Ok(log?)
}

/// The length of `struct nfgenmsg`.
const HEAD: usize = 4;

/// Whether the packet was logged at the forward hook, and not on its way in.
pub(super) fn was_forwarded(message: &Received) -> bool {
    /// The attribute with the protocol in two bytes and the hook in one, and the number of the forward hook.
    const PACKET_HEAD: u16 = 1;
    const FORWARD: u8 = 2;
    message.attributes(HEAD).get(PACKET_HEAD).and_then(|head| head.get(2)) == Some(&FORWARD)
}

/// The logged packet in a message.
pub(super) fn packet_in(message: &Received) -> Option<&[u8]> {
    const PAYLOAD: u16 = 9;
    message.attributes(HEAD).get(PAYLOAD).filter(|_| message.kind == PACKET)
}
