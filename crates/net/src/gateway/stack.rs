//! The TCP endpoint for one connection of the guest: a network interface with a single socket.
//!
//! There is one stack per connection, so that no packet has to be matched against the sockets of all others, and a
//! connection's state belongs to the one task that runs it.

use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};

use super::link::{Link, Room};
use super::pool::Buffer;
use crate::flow::budget::Buffers;
use crate::flow::limits::{IDLE, KEEP_ALIVE};

pub(crate) struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    wire: Wire,
    began: Instant,
    /// Memory of the socket's buffers. Declared, and so dropped, after the socket.
    buffers: Buffers,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}

/// The error for addresses that a stack cannot be set up for.
fn bad_ends<T>(_: T) -> io::Error {
    io::ErrorKind::AddrNotAvailable.into()
}

impl Stack {
    /// A stack that stands in for `local`, which the guest connects to.
    pub(crate) fn listen(link: Link, mtu: u16, buffers: Buffers, local: SocketAddrV4) -> io::Result<Self> {
        Self::new(link, mtu, buffers, local).listening(local)
    }

    /// Uses the stack for the next connection, when this one is over.
    pub(crate) fn listen_again(mut self, local: SocketAddrV4) -> io::Result<Self> {
        self.stand_in_for(local);
        self.wire.blocked = false;
        self.listening(local)
    }

    /// Whether its connection has nothing more to send, so that the stack can be used for another.
    pub(crate) fn is_over(&mut self) -> bool {
        !self.wire.blocked && !self.socket().is_open()
    }

    /// The size of the buffer for each direction.
    pub(crate) fn buffer(&self) -> usize {
        self.buffers.each()
    }

    /// Gives most of the memory of its last connection back, when that is over.
    pub(crate) fn release(&mut self) {
        self.buffers.release();
    }

    fn listening(mut self, local: SocketAddrV4) -> io::Result<Self> {
        let stack = &mut self;
        let local = IpListenEndpoint { addr: Some(IpAddress::Ipv4(*local.ip())), port: local.port() };
        stack.socket().listen(local).map_err(bad_ends)?;
        stack.socket().set_keep_alive(Some(KEEP_ALIVE.into()));
        Ok(self)
    }

    fn stand_in_for(&mut self, local: SocketAddrV4) {
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            // It cannot fail: there is room for two.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(*local.ip()), 32));
        });
    }

    /// A stack that opens a connection to the guest.
    pub(crate) fn connect(
        link: Link,
        mtu: u16,
        buffers: Buffers,
        local: SocketAddrV4,
        guest: SocketAddrV4,
    ) -> io::Result<Self> {
        let mut stack = Self::new(link, mtu, buffers, local);
        let socket = stack.sockets.get_mut::<tcp::Socket<'_>>(stack.handle);
        let remote = (IpAddress::Ipv4(*guest.ip()), guest.port());
        let local = (IpAddress::Ipv4(*local.ip()), local.port());
        socket.connect(stack.interface.context(), remote, local).map_err(bad_ends)?;
        Ok(stack)
    }

    fn new(link: Link, mtu: u16, mut buffers: Buffers, local: SocketAddrV4) -> Self {
        let mut wire =
            Wire { link, mtu: usize::from(mtu), arrived: None, room: None, blocked: false, later: false };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed();
        let now = smoltcp::time::Instant::ZERO;
        let interface = Interface::new(config, &mut wire, now);
        // SAFETY: the stack keeps the buffers for as long as the socket, and splits them only here.
        let (receiving, sending) = unsafe { buffers.split_unbounded() };
        let mut socket = tcp::Socket::new(tcp::SocketBuffer::new(receiving), tcp::SocketBuffer::new(sending));
        // The other end's stack has already decided when to send; waiting here would only add delay.
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.set_keep_alive(Some(KEEP_ALIVE.into()));
        socket.set_timeout(Some(IDLE.into()));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let mut stack = Self { interface, sockets, handle, wire, began: Instant::now(), buffers };
        stack.stand_in_for(local);
        stack
    }

    pub(crate) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes a packet of the guest.
    pub(crate) fn push(&mut self, packet: Buffer) {
        self.wire.arrived = Some(packet);
        let now = self.now();
        self.interface.poll_ingress_single(now, &mut self.wire, &mut self.sockets);
    }

    /// Sends what is due, as far as there is room.
    pub(crate) fn flush(&mut self) {
        self.wire.blocked = false;
        let now = self.now();
        while self.interface.poll_egress(now, &mut self.wire, &mut self.sockets) != PollResult::None {}
        // Unused room is left to others.
        self.wire.room = None;
    }

    /// The same for packets that the guest does not wait for.
    pub(crate) fn flush_later(&mut self) {
        self.wire.later = true;
        self.flush();
        self.wire.later = false;
    }

    /// Sends what is due, starting with the room that was waited for.
    pub(crate) fn flush_into(&mut self, room: Room) {
        self.wire.room = Some(room);
        self.flush();
    }

    /// Whether the last [`flush`](Self::flush) could not send everything for lack of room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.wire.blocked
    }

    /// Time until it must be flushed again even if nothing happens.
    pub(crate) fn due(&mut self) -> Option<Duration> {
        let now = self.now();
        self.interface.poll_delay(now, &self.sockets).map(Into::into)
    }

    pub(crate) fn link(&self) -> &Link {
        &self.wire.link
    }

    fn now(&self) -> smoltcp::time::Instant {
        let micros = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        smoltcp::time::Instant::from_micros(micros)
    }
}

/// Random, because other hosts that can reach the guest must not guess its initial sequence numbers.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

struct Wire {
    link: Link,
    mtu: usize,
    arrived: Option<Buffer>,
    /// Room that was waited for.
    room: Option<Room>,
    blocked: bool,
    /// The guest does not wait for what is sent.
    later: bool,
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Departing<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Arrived, Departing<'_>)> {
        let packet = self.arrived.take()?;
        Some((Arrived(packet), Departing { link: &self.link, room: None, later: false }))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Departing<'_>> {
        let room = self.room.take().or_else(|| self.link.room());
        self.blocked = room.is_none();
        Some(Departing { link: &self.link, room: Some(room?), later: self.later })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

struct Arrived(Buffer);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, handle: F) -> R {
        handle(&self.0)
    }
}

/// A packet about to be sent. Immediate answers have no reserved room: they are rare, and the guest repeats its request
/// if one is lost.
struct Departing<'a> {
    link: &'a Link,
    room: Option<Room>,
    later: bool,
}

impl TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = self.link.frame(length);
        let result = fill(frame.packet());
        match self.room {
            Some(room) if self.later => room.send_later(self.link, frame),
            Some(room) => room.send(frame),
            None => drop(self.link.send(frame)),
        }
        result
    }
}
