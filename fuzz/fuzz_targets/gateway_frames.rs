//! Arbitrary frames from a guest: the gateway must continue to serve this guest and its neighbour.
//!
//! The input is a list of frames, each with one byte for the way it is sent and one for its length. Some are sent
//! unchanged; others get valid headers to reach deeper code: Ethernet, and IPv4 with the right checksum.

#![no_main]

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as UnixAddress;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::dns::Names;
use agentiso_net::dns::{Neighbours, Reply};
use agentiso_net::flow::log::FlowLog;
use agentiso_net::flow::{Dialer, GATEWAY_MAC, Limits, NetIdentity, Settings};
use agentiso_net::gateway::{Attachment, Gateway};
use agentiso_net::policy::{Guard, HostAddresses, Transport};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

/// The number of inputs for one gateway before it is replaced by a new one.
const INPUTS: u32 = 512;

const QUESTION: &[u8] = b"still there?";

/// Servers on the loopback: some answer, some refuse, some stay silent.
#[derive(Debug)]
struct Servers(SocketAddr);

impl Dialer for Servers {
    fn connect(&self, to: SocketAddrV4) -> Boxed<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            match to.port() % 4 {
                0 | 1 => TcpStream::connect(self.0).await,
                2 => Err(io::ErrorKind::ConnectionRefused.into()),
                _ => std::future::pending().await,
            }
        })
    }

    fn datagrams(&self, _: SocketAddrV4) -> Boxed<'_, io::Result<UdpSocket>> {
        Box::pin(async move {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            socket.connect(socket.local_addr()?).await?;
            Ok(socket)
        })
    }
}

/// A resolver that echoes every query.
#[derive(Debug)]
struct Echo;

impl Names for Echo {
    fn answer<'a>(
        &'a self,
        _: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        _: Transport,
    ) -> Boxed<'a, Option<Reply>> {
        let _ = std::str::from_utf8(query).ok().and_then(|name| neighbours.address_of(name));
        Box::pin(std::future::ready(Some(Reply { bytes: query.to_vec(), refused: None })))
    }
}

struct World {
    runtime: Runtime,
    attachments: Vec<(Attachment, UnixAddress)>,
    inputs: u32,
}

impl World {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let attachments = runtime.block_on(async {
            // SIGPIPE must not end the program: unlike Rust's runtime, libFuzzer does not ignore it.
            drop(signal(SignalKind::pipe()).expect("a handler"));
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
            let servers = Servers(listener.local_addr().expect("its address"));
            tokio::spawn(serve(listener));
            let mut settings = Settings::new(Arc::new(Echo));
            settings.dialer = Arc::new(servers);
            settings.limits = Limits { flows: 64, connecting: 16, associations: 16, ..Limits::DEFAULT };
            settings.connect_deadline = Duration::from_millis(200);
            let gateway = Gateway::new(settings);
            [GUEST, NEIGHBOUR].map(|address| attach(&gateway, address)).into()
        });
        Self { runtime, attachments, inputs: 0 }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for (attachment, _) in self.attachments.drain(..) {
            self.runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(5), attachment.detach())
                    .await
                    .expect("everything of it ends");
            });
        }
    }
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let (mut reading, mut writing) = stream.split();
            let _ = tokio::io::copy(&mut reading, &mut writing).await;
        });
    }
}

fn mac(address: Ipv4Addr) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, address.octets()[3]]
}

fn attach(gateway: &Gateway, address: Ipv4Addr) -> (Attachment, UnixAddress) {
    let name = format!("gateway-frames-{}-{}", std::process::id(), address.octets()[3]);
    // An abstract socket disappears with the process.
    let socket_address = UnixAddress::from_abstract_name(name).expect("a short name");
    let listener = std::os::unix::net::UnixListener::bind_addr(&socket_address).expect("a socket");
    listener.set_nonblocking(true).expect("a socket that does not block");
    let listener = UnixListener::from_std(listener).expect("a socket");
    let policy = NetworkPolicy { allow_internet: true, allow_inter_vm: true, ..NetworkPolicy::default() };
    let guard = Guard::new(policy, HostAddresses::fixed([]), GATEWAY);
    let identity = NetIdentity { name: format!("vm{}", address.octets()[3]), mac: mac(address), address };
    let attachment = gateway.attach(identity, guard, FlowLog::new(), listener).expect("an identity");
    (attachment, socket_address)
}

fn connect(socket_address: &UnixAddress) -> UnixStream {
    let stream = std::os::unix::net::UnixStream::connect_addr(socket_address).expect("the gateway listens");
    stream.set_nonblocking(true).expect("a socket that does not block");
    UnixStream::from_std(stream).expect("a socket")
}

/// Not dropped at the end of the process, because the runtime cannot be shut down then.
static WORLD: Mutex<Option<World>> = Mutex::new(None);

fuzz_target!(|data: &[u8]| {
    let mut world = WORLD.lock().expect("nobody failed");
    if world.as_ref().is_some_and(|world| world.inputs >= INPUTS) {
        *world = None;
    }
    let world = world.get_or_insert_with(World::new);
    world.inputs += 1;
    let World { runtime, attachments, .. } = world;
    runtime.block_on(async {
        let deadline = Duration::from_secs(5);
        tokio::time::timeout(deadline, one_input(attachments, data)).await.expect("the gateway answers");
    });
});

async fn one_input(attachments: &[(Attachment, UnixAddress)], data: &[u8]) {
    let mut wire = connect(&attachments[0].1);
    wire.write_all(&frames(data)).await.expect("the gateway reads");
    is_served(&mut wire, GUEST).await;
    let mut wire = connect(&attachments[1].1);
    is_served(&mut wire, NEIGHBOUR).await;
}

/// The frames of an input, each after its length.
fn frames(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((&[how, length], rest)) = data.split_first_chunk::<2>() {
        let (body, rest) = rest.split_at(usize::from(length).min(rest.len()));
        data = rest;
        let target = [GATEWAY, NEIGHBOUR, OUTSIDE, GUEST][usize::from(how >> 2) % 4];
        let protocol = [1, 6, 17, how][usize::from(how >> 4) % 4];
        let frame = match how % 4 {
            // Padded, because a shorter frame would end the connection.
            0 => [body, &[0; 14]].concat(),
            1 => ethernet(&[8, 6], body),
            2 => ethernet(&[8, 0], body),
            _ => ethernet(&[8, 0], &ipv4(GUEST, target, protocol, body)),
        };
        bytes.extend((frame.len() as u32).to_be_bytes());
        bytes.extend(frame);
    }
    bytes
}

fn ethernet(kind: &[u8], body: &[u8]) -> Vec<u8> {
    [&GATEWAY_MAC[..], &mac(GUEST), kind, body].concat()
}

fn ipv4(source: Ipv4Addr, target: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(target.octets());
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet.extend(body);
    packet
}

/// Queries the name service until it answers: a query may be dropped after many others.
async fn is_served(wire: &mut UnixStream, guest: Ipv4Addr) {
    let length = (8 + QUESTION.len()) as u16;
    let query = [&[0x12, 0x34, 0, 53][..], &length.to_be_bytes(), &[0, 0], QUESTION].concat();
    let packet = ipv4(guest, GATEWAY, 17, &query);
    let frame = [&GATEWAY_MAC[..], &mac(guest), &[8, 0], &packet].concat();
    let question = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
    let (mut received, mut space) = (Vec::new(), vec![0; 65_536]);
    loop {
        wire.write_all(&question).await.expect("the gateway reads");
        let patience = Duration::from_millis(50);
        while let Ok(read) = tokio::time::timeout(patience, wire.read(&mut space)).await {
            let count = read.expect("the gateway writes");
            assert_ne!(count, 0, "the gateway hangs up");
            received.extend_from_slice(&space[..count]);
            if is_among(&mut received, guest) {
                return;
            }
        }
    }
}

/// Removes the complete frames from the received bytes, and returns whether the answer is among them.
fn is_among(received: &mut Vec<u8>, guest: Ipv4Addr) -> bool {
    let mut answered = false;
    while let Some(prefix) = received.first_chunk::<4>() {
        let length = u32::from_be_bytes(*prefix) as usize;
        assert!((14..=69_632).contains(&length), "a frame of {length} bytes");
        let Some(frame) = received.get(4..4 + length) else { break };
        assert_eq!((&frame[..6], &frame[6..12]), (&mac(guest)[..], &GATEWAY_MAC[..]));
        answered |= frame.ends_with(QUESTION) && length == 14 + 20 + 8 + QUESTION.len();
        received.drain(..4 + length);
    }
    answered
}
