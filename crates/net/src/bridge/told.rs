//! What our rules log to a group: packets, or as much of each as we read.

use std::io;

use tokio::io::unix::AsyncFd;

use crate::netlink::{Message, Netlink, Received, Subsystem};

/// The subsystem, in the high byte of every message's kind.
const LOG: u16 = 4 << 8;
const PACKET: u16 = LOG;
const CONFIGURE: u16 = LOG | 1;

/// The longest IP header, and the first bytes behind it, which a refusal repeats.
const ENOUGH: u32 = 68;

/// Listens to one group.
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
    // The packet itself, and each at once.
    let mode = [&ENOUGH.to_be_bytes()[..], &[2, 0]].concat();
    configure.bytes(2, &mode).be32(5, 1);
    log.request(configure)?;
    rustix::io::ioctl_fionbio(&log, true)?;
    // SAFETY: the socket is the log's own, from its making to its end.
    let log = unsafe { AsyncFd::register(log) };
    Ok(log?)
}

/// The length of `struct nfgenmsg`.
const HEAD: usize = 4;

/// Whether the packet was on its way through the host, and not only coming in.
pub(super) fn was_forwarded(message: &Received) -> bool {
    /// The attribute with its protocol in two bytes and the hook in one, and that hook.
    const PACKET_HEAD: u16 = 1;
    const FORWARD: u8 = 2;
    message.attributes(HEAD).get(PACKET_HEAD).and_then(|head| head.get(2)) == Some(&FORWARD)
}

/// The packet that a message is about.
pub(super) fn packet_in(message: &Received) -> Option<&[u8]> {
    const PAYLOAD: u16 = 9;
    message.attributes(HEAD).get(PAYLOAD).filter(|_| message.kind == PACKET)
}
