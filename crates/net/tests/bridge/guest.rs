//! A test VM at the bridge: a network stack in a namespace of its own, whose card is connected to the TAP device as
//! QEMU would connect it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agentiso_core::address::format_mac;
use agentiso_net::flow::NetIdentity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::ioctl::{Setter, ioctl};

use crate::namespace::{Namespace, sh};
use crate::world::GATEWAY;

/// Timeout that neither a refusal nor an allowed flow reaches.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) struct Guest {
    namespace: Namespace,
    card: Arc<File>,
    /// Frames from the bridge, recorded while `listens` is set.
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    listens: Arc<AtomicBool>,
    unplugged: Arc<AtomicBool>,
    cables: Vec<JoinHandle<()>>,
}

impl Guest {
    /// Connects a VM to the device in the namespace of the calling thread.
    pub(crate) async fn plug(tap: &str, identity: &NetIdentity) -> Self {
        let card = Arc::new(open_tap(tap).unwrap());
        let namespace = Namespace::new().unwrap();
        let (mac, address) = (format_mac(identity.mac), identity.address);
        let inside = namespace.run(move || {
            let inside = open_tap("eth0").unwrap();
            sh(&format!(
                "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6 2>/dev/null || true; \
                 ip link set eth0 address {mac} mtu 65000 up; ip address add {address}/16 dev eth0; \
                 ip route add default via {GATEWAY}"
            ));
            inside
        });
        let inside = Arc::new(inside.await);
        let heard = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let unplugged = Arc::<AtomicBool>::default();
        let listens = Arc::new(AtomicBool::new(true));
        let (list, notes, ear) = (heard.clone(), listens.clone(), unplugged.clone());
        let down = (card.clone(), inside.clone());
        let mouth = unplugged.clone();
        let up = (inside, card.clone());
        let cables = vec![
            thread::spawn(move || {
                carry(&down.0, &down.1, &ear, |frame| {
                    if notes.load(Ordering::Relaxed) {
                        list.lock().unwrap().push(frame.to_vec());
                    }
                })
            }),
            thread::spawn(move || carry(&up.0, &up.1, &mouth, |_| {})),
        ];
        Self { namespace, card, heard, listens, unplugged, cables }
    }

    /// Runs a closure in the VM's namespace.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.namespace.run(work).await
    }

    pub(crate) async fn connect(&self, to: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
        self.run(move || {
            let stream = TcpStream::connect_timeout(&SocketAddrV4::new(to, port).into(), SOON)?;
            stream.set_read_timeout(Some(SOON))?;
            Ok(stream)
        })
        .await
    }

    /// The error of a connection that must fail.
    pub(crate) async fn refusal(&self, to: Ipv4Addr, port: u16) -> io::ErrorKind {
        match self.connect(to, port).await {
            Ok(_) => panic!("{to}:{port} can be reached"),
            Err(error) => error.kind(),
        }
    }

    /// The server's page for this host name, or the error as text.
    pub(crate) async fn page(&self, at: Ipv4Addr, host: &str) -> String {
        let Ok(mut stream) = self.connect(at, 80).await else { return "refused".to_owned() };
        let request = format!("GET /5 HTTP/1.0\r\nHost: {host}\r\n\r\n");
        self.run(move || {
            let mut page = String::new();
            let asked = stream.write_all(request.as_bytes());
            match asked.and_then(|()| stream.read_to_string(&mut page)) {
                Ok(_) => page,
                Err(error) => error.kind().to_string(),
            }
        })
        .await
    }

    /// A UDP socket that is connected to one destination.
    pub(crate) async fn datagrams(&self, to: Ipv4Addr, port: u16) -> UdpSocket {
        self.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((to, port)).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            socket
        })
        .await
    }

    /// Sends one datagram and returns the answer.
    pub(crate) async fn echo(&self, socket: &UdpSocket, text: &'static [u8]) -> io::Result<Vec<u8>> {
        let socket = socket.try_clone().unwrap();
        self.run(move || {
            socket.send(text)?;
            let mut space = [0; 100];
            let length = socket.recv(&mut space)?;
            Ok(space[..length].to_vec())
        })
        .await
    }

    /// Asks the gateway for a name's address.
    pub(crate) async fn ask(&self, name: &str) -> Option<Ipv4Addr> {
        let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        query.extend(b"\0\0\x01\0\x01");
        let socket = self.datagrams(GATEWAY, 53).await;
        self.run(move || {
            socket.send(&query).unwrap();
            let mut space = [0; 2048];
            let length = socket.recv(&mut space).expect("the gateway answers");
            let answer = &space[..length];
            let record = answer.windows(6).position(|bytes| bytes[2..] == [0, 4, 198, 51])?;
            Some(Ipv4Addr::new(
                answer[record + 4],
                answer[record + 5],
                answer[record + 6],
                answer[record + 7],
            ))
        })
        .await
    }

    pub(crate) async fn listen(&self, port: u16) -> TcpListener {
        self.run(move || TcpListener::bind(("0.0.0.0", port)).unwrap()).await
    }

    /// Sends a frame as it is, past the VM's own stack.
    pub(crate) fn send_frame(&self, frame: &[u8]) {
        (&*self.card).write_all(frame).unwrap();
    }

    /// Number of received frames that contain these bytes.
    pub(crate) fn heard(&self, bytes: &[u8]) -> usize {
        let contains = |frame: &&Vec<u8>| frame.windows(bytes.len()).any(|window| window == bytes);
        self.heard.lock().unwrap().iter().filter(contains).count()
    }

    /// Records no frames from here on, for tests that measure the memory of this process.
    pub(crate) fn stop_listening(&self) {
        self.listens.store(false, Ordering::Relaxed);
    }

    /// Closes the device, as QEMU does when it ends.
    pub(crate) fn unplug(self) {
        self.unplugged.store(true, Ordering::SeqCst);
        for cable in self.cables {
            cable.join().unwrap();
        }
    }
}

/// Opens a TAP device, or creates one that disappears with the file.
fn open_tap(name: &str) -> io::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1002_u16.to_ne_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which is as long as this.
    unsafe { ioctl(device.as_fd(), Setter::<0x4004_54ca, _>::new(request)) }?;
    Ok(device)
}

fn carry(mut from: &File, mut to: &File, stop: &AtomicBool, mut see: impl FnMut(&[u8])) {
    let mut space = vec![0; 70_000];
    let patience = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !stop.load(Ordering::SeqCst) {
        if poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&patience)).unwrap() == 0 {
            continue;
        }
        let Ok(length) = from.read(&mut space) else { return };
        see(&space[..length]);
        // A device that is down accepts nothing.
        let _ = to.write(&space[..length]);
    }
}
