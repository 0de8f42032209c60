//! A test guest: a TCP/IP stack with an Ethernet card at QEMU's end of the socket.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentiso_net::flow::NetIdentity;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{self, State};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::world::GATEWAY;

const MTU: usize = 65_000 + 14;

pub(crate) struct Guest {
    inner: Arc<Inner>,
    tasks: [JoinHandle<()>; 2],
}

struct Inner {
    state: Mutex<Stack>,
    /// Something is to be sent.
    work: Notify,
    /// Something has happened.
    epoch: watch::Sender<u64>,
}

struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    card: Card,
    began: Instant,
    next_port: u16,
}

#[derive(Default)]
struct Card {
    arrived: VecDeque<Vec<u8>>,
    departing: Vec<u8>,
    /// Packets other than TCP, which the stack ignores.
    others: Vec<Vec<u8>>,
}

impl Guest {
    pub(crate) async fn connect(socket: &Path, identity: &NetIdentity) -> Self {
        let (reading, writing) = UnixStream::connect(socket).await.unwrap().into_split();
        let mut card = Card::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(identity.mac)));
        // Another seed for each boot of a guest.
        let seed = RandomState::new().hash_one(identity.address);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut card, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv4(identity.address), 16)).unwrap();
        });
        interface.routes_mut().add_default_ipv4_route(GATEWAY).unwrap();
        let sockets = SocketSet::new(Vec::new());
        let stack = Stack {
            interface,
            sockets,
            card,
            began: Instant::now(),
            next_port: 10_000 + (seed % 20_000) as u16,
        };
        let inner =
            Arc::new(Inner { state: Mutex::new(stack), work: Notify::new(), epoch: watch::Sender::new(0) });
        let tasks = [tokio::spawn(read(inner.clone(), reading)), tokio::spawn(write(inner.clone(), writing))];
        Self { inner, tasks }
    }

    /// Begins to connect, with buffers of this size.
    pub(crate) fn begin(&self, to: SocketAddrV4, buffer: usize) -> Stream {
        let stack = &mut *self.inner.state.lock().unwrap();
        stack.next_port += 1;
        let remote = (IpAddress::Ipv4(*to.ip()), to.port());
        let mut socket = socket(buffer);
        socket.connect(stack.interface.context(), remote, stack.next_port).unwrap();
        let handle = stack.sockets.add(socket);
        self.inner.work.notify_one();
        Stream { inner: self.inner.clone(), handle }
    }

    pub(crate) async fn open(&self, to: SocketAddrV4) -> io::Result<Stream> {
        let stream = self.begin(to, 1 << 20);
        stream.opened().await?;
        Ok(stream)
    }

    /// Waits for one connection to a port.
    pub(crate) fn listen(&self, port: u16) -> Stream {
        let mut socket = socket(256 * 1024);
        socket.listen(port).unwrap();
        let handle = self.inner.state.lock().unwrap().sockets.add(socket);
        Stream { inner: self.inner.clone(), handle }
    }

    /// Sends a frame as it is.
    pub(crate) fn send_frame(&self, frame: &[u8]) {
        let card = &mut self.inner.state.lock().unwrap().card;
        card.departing.extend((frame.len() as u32).to_be_bytes());
        card.departing.extend(frame);
        self.inner.work.notify_one();
    }

    /// Sends raw bytes, which need not be a frame.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        self.inner.state.lock().unwrap().card.departing.extend(bytes);
        self.inner.work.notify_one();
    }

    /// Packets other than TCP that have arrived so far.
    pub(crate) fn others(&self) -> Vec<Vec<u8>> {
        self.inner.state.lock().unwrap().card.others.clone()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn socket(buffer: usize) -> tcp::Socket<'static> {
    let space = || tcp::SocketBuffer::new(vec![0; buffer]);
    let mut socket = tcp::Socket::new(space(), space());
    socket.set_ack_delay(None);
    socket.set_nagle_enabled(false);
    socket
}

async fn read(inner: Arc<Inner>, mut socket: OwnedReadHalf) {
    let (mut bytes, mut space) = (Vec::new(), vec![0; 256 * 1024]);
    loop {
        let Ok(count @ 1..) = socket.read(&mut space).await else { return };
        bytes.extend_from_slice(&space[..count]);
        let mut rest = &bytes[..];
        let mut stack = inner.state.lock().unwrap();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(frame) = behind.get(..length) else { break };
            if frame[12..14] == [8, 0] && frame[23] != 6 {
                stack.card.others.push(frame[14..].to_vec());
            }
            stack.card.arrived.push_back(frame.to_vec());
            rest = &behind[length..];
        }
        let consumed = bytes.len() - rest.len();
        drop(stack);
        bytes.drain(..consumed);
        inner.work.notify_one();
    }
}

async fn write(inner: Arc<Inner>, mut socket: OwnedWriteHalf) {
    loop {
        let (frames, due, changed) = {
            let stack = &mut *inner.state.lock().unwrap();
            let now = smoltcp::time::Instant::from_micros(stack.began.elapsed().as_micros() as i64);
            let changed = stack.interface.poll(now, &mut stack.card, &mut stack.sockets);
            let due = stack.interface.poll_delay(now, &stack.sockets);
            (std::mem::take(&mut stack.card.departing), due, changed)
        };
        if changed == PollResult::SocketStateChanged {
            inner.epoch.send_modify(|epoch| *epoch += 1);
        }
        if socket.write_all(&frames).await.is_err() {
            return;
        }
        let due = due.map_or(Duration::from_secs(1), Into::into);
        let _ = tokio::time::timeout(due, inner.work.notified()).await;
    }
}

impl Device for Card {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Departing<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Arrived, Departing<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Departing(&mut self.departing)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Departing<'_>> {
        Some(Departing(&mut self.departing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

pub(crate) struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, handle: F) -> R {
        handle(&self.0)
    }
}

pub(crate) struct Departing<'a>(&'a mut Vec<u8>);

impl TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        self.0.extend((length as u32).to_be_bytes());
        let begin = self.0.len();
        self.0.resize(begin + length, 0);
        fill(&mut self.0[begin..])
    }
}

/// A connection of the guest.
pub(crate) struct Stream {
    inner: Arc<Inner>,
    handle: SocketHandle,
}

impl Stream {
    /// Polls the socket until `ask` returns something, for half a minute.
    async fn when<T>(&self, mut ask: impl FnMut(&mut tcp::Socket<'static>) -> Option<T>) -> T {
        let mut epoch = self.inner.epoch.subscribe();
        let asking = async {
            loop {
                epoch.borrow_and_update();
                let answer = ask(self.inner.state.lock().unwrap().sockets.get_mut(self.handle));
                if let Some(answer) = answer {
                    self.inner.work.notify_one();
                    return answer;
                }
                epoch.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), asking).await.expect("the connection stands still")
    }

    pub(crate) async fn opened(&self) -> io::Result<()> {
        self.when(|socket| match socket.state() {
            State::Listen | State::SynSent | State::SynReceived => None,
            State::Closed => Some(Err(io::ErrorKind::ConnectionRefused.into())),
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => Some(Ok(())),
        })
        .await
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.when(|socket| match socket.send_slice(bytes) {
                Ok(0) => None,
                Ok(count) => Some(Ok(count)),
                Err(_) => Some(Err(io::Error::from(io::ErrorKind::ConnectionReset))),
            });
            bytes = &bytes[sent.await?..];
        }
        Ok(())
    }

    /// Returns zero at the end, and an error if the connection was reset.
    pub(crate) async fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        self.when(|socket| match socket.recv_slice(space) {
            Ok(0) => None,
            Ok(count) => Some(Ok(count)),
            Err(tcp::RecvError::Finished) => Some(Ok(0)),
            Err(tcp::RecvError::InvalidState) => Some(Err(io::ErrorKind::ConnectionReset.into())),
        })
        .await
    }

    pub(crate) async fn read_to_end(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut space) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            match self.read(&mut space).await? {
                0 => return Ok(bytes),
                count => bytes.extend_from_slice(&space[..count]),
            }
        }
    }

    pub(crate) async fn read_exact(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut at = 0;
        while at < length {
            match self.read(&mut bytes[at..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => at += count,
            }
        }
        Ok(bytes)
    }

    /// Nothing more will be written.
    pub(crate) fn end_writing(&self) {
        self.inner.state.lock().unwrap().sockets.get_mut::<tcp::Socket<'_>>(self.handle).close();
        self.inner.work.notify_one();
    }

    pub(crate) fn reset(&self) {
        self.inner.state.lock().unwrap().sockets.get_mut::<tcp::Socket<'_>>(self.handle).abort();
        self.inner.work.notify_one();
    }
}
