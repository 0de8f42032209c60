//! A socket to one of the kernel's subsystems, for confirmed requests, lists, and batches that apply as a whole.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size_force, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, sendto,
    socket_with,
};

use super::message::Message;
use super::read::Received;

/// `NLM_F_ACK`: confirm when done.
const ACK: u16 = 4;

/// `NLM_F_ROOT | NLM_F_MATCH`: the whole list.
const DUMP: u16 = 0x300;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// Longest wait for an answer. The kernel normally answers within the call.
const PATIENCE: Duration = Duration::from_secs(10);

/// A batch is one datagram: the rules of some thousand VMs.
const BATCH_ROOM: usize = 64 << 20;

/// The kernel's messages are never larger than this.
const ROOM: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subsystem {
    /// Links, addresses, neighbours, queues.
    Route,
    /// Packet rules and their log.
    Netfilter,
}

#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open(subsystem: Subsystem) -> io::Result<Self> {
        let protocol: Option<Protocol> = match subsystem {
            Subsystem::Route => None,
            Subsystem::Netfilter => Some(netlink::NETFILTER),
        };
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        if set_socket_send_buffer_size_force(&socket, BATCH_ROOM).is_err() {
            tracing::debug!(
                "cannot enlarge the send buffer; the rules of very many VMs may not fit into one message"
            );
        }
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and waits for its confirmation.
    pub(crate) fn request(&mut self, message: Message) -> io::Result<()> {
        let sequence = self.next();
        self.send(&message.finish(sequence, ACK))?;
        self.confirmed(sequence)
    }

    /// Requests one list.
    pub(crate) fn list(&mut self, message: Message) -> io::Result<Vec<Received>> {
        let sequence = self.next();
        self.send(&message.finish(sequence, DUMP))?;
        let mut list = Vec::new();
        loop {
            for message in self.receive()? {
                match message.kind {
                    DONE if message.sequence == sequence => return Ok(list),
                    ERROR if message.sequence == sequence => {
                        outcome(&message)?;
                        return Ok(list);
                    }
                    _ if message.sequence == sequence => list.push(message),
                    _ => {}
                }
            }
        }
    }

    /// Sends many requests of which either all apply or none. `begin` and `end` delimit them.
    pub(crate) fn batch(&mut self, begin: Message, messages: Vec<Message>, end: Message) -> io::Result<()> {
        self.send_batch(begin, messages, Some(end))
    }

    /// The same without an end, so that the kernel checks all of it and applies nothing.
    pub(crate) fn try_out(&mut self, begin: Message, messages: Vec<Message>) -> io::Result<()> {
        self.send_batch(begin, messages, None)
    }

    fn send_batch(&mut self, begin: Message, messages: Vec<Message>, end: Option<Message>) -> io::Result<()> {
        let mut bytes = begin.finish(self.next(), 0);
        let count = messages.len();
        let mut last = self.sequence;
        for (index, message) in messages.into_iter().enumerate() {
            last = self.next();
            bytes.extend(message.finish(last, if index + 1 == count { ACK } else { 0 }));
        }
        if let Some(end) = end {
            bytes.extend(end.finish(self.next(), 0));
        }
        self.send(&bytes)?;
        self.confirmed(last)
    }

    /// Waits for the confirmation of one message. An error of an earlier message counts as its error.
    fn confirmed(&mut self, sequence: u32) -> io::Result<()> {
        loop {
            for message in self.receive()? {
                if message.kind == ERROR {
                    outcome(&message)?;
                    if message.sequence == sequence {
                        return Ok(());
                    }
                }
            }
        }
    }

    pub(crate) fn receive(&self) -> io::Result<Vec<Received>> {
        let mut space = vec![0; ROOM];
        let (_, count) = recv(&self.socket, &mut space[..], RecvFlags::empty())?;
        Ok(Received::all(&space[..count.min(ROOM)]))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Answers left over from an earlier request that failed must not be taken for the answer to this one.
        let mut space = [0; 64];
        while recv(&self.socket, &mut space[..], RecvFlags::DONTWAIT).is_ok() {}
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, bytes, SendFlags::empty(), &kernel)?;
        Ok(())
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Netlink {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The result in an `NLMSG_ERROR`; number zero is the confirmation.
fn outcome(message: &Received) -> io::Result<()> {
    let number = message.body.first_chunk::<4>().map_or(0, |number| i32::from_ne_bytes(*number));
    match number {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number.saturating_neg())),
    }
}
