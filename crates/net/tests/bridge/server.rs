//! The test's internet: one address with pages, an echo, and a name server that resolves all names to it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::namespace::{Namespace, sh};

/// Reserved for documentation, so it is not in use, and public to a policy.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// The host's address in the server's network.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

/// The port that sends without end.
pub(crate) const ENDLESS_PORT: u16 = 19;

pub(crate) struct Internet {
    _namespace: Namespace,
    /// Number of datagrams that reached the echo.
    pub(crate) datagrams: Arc<AtomicUsize>,
    /// Addresses of clients that have connected.
    pub(crate) clients: Arc<Mutex<Vec<String>>>,
}

impl Internet {
    /// Connects it to the namespace of the calling thread.
    pub(crate) async fn new() -> Self {
        let namespace = Namespace::new().unwrap();
        sh("ip link add near type veth peer name far");
        sh(&format!("ip link set far netns {}", namespace.thread));
        sh(&format!("ip address add {HOST}/24 dev near; ip link set near up"));
        // Answers to datagrams arrive here.
        sh("echo 1 > /proc/sys/net/ipv4/conf/near/forwarding");
        let (datagrams, clients) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (count, list) = (datagrams.clone(), clients.clone());
        namespace
            .run(move || {
                sh(&format!("ip address add {SERVER}/24 dev far; ip link set far up"));
                let listener = TcpListener::bind((SERVER, 80)).unwrap();
                thread::spawn(move || pages(listener, list));
                let endless = TcpListener::bind((SERVER, ENDLESS_PORT)).unwrap();
                thread::spawn(move || gush(&endless));
                let echo = UdpSocket::bind((SERVER, 7)).unwrap();
                thread::spawn(move || repeat(&echo, &count));
                let names = UdpSocket::bind((SERVER, 53)).unwrap();
                thread::spawn(move || answer(&names));
            })
            .await;
        Self { _namespace: namespace, datagrams, clients }
    }

    pub(crate) fn clients(&self) -> Vec<String> {
        self.clients.lock().unwrap().clone()
    }
}

fn pages(listener: TcpListener, clients: Arc<Mutex<Vec<String>>>) {
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        // A connection that was already reset has no peer address.
        let Ok(client) = stream.peer_addr() else { continue };
        clients.lock().unwrap().push(client.ip().to_string());
        thread::spawn(move || page(stream));
    }
}

/// "GET /n" returns n bytes. "GET /upgrade" turns the connection into an echo.
fn page(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = reader.by_ref().lines();
    let Some(Ok(request)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    if request.contains("/upgrade") {
        let switched = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
        // It echoes until one side ends it.
        let _ = switched.and_then(|()| std::io::copy(&mut reader, &mut stream));
        return;
    }
    let length: usize = request.split([' ', '/']).find_map(|word| word.parse().ok()).unwrap_or(5);
    let mut left = length;
    while left > 0 {
        let piece = left.min(64 << 10);
        if stream.write_all(&vec![b'x'; piece]).is_err() {
            return;
        }
        left -= piece;
    }
}

/// Sends to all clients as much as they accept. One thread and one text serve all of them, so that the memory of this
/// process is that of the tested code.
fn gush(listener: &TcpListener) {
    const TEXT: &[u8] = &[b'x'; 64 << 10];
    listener.set_nonblocking(true).unwrap();
    let mut clients: Vec<TcpStream> = Vec::new();
    loop {
        while let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(true).unwrap();
            clients.push(client);
        }
        let mut wrote = false;
        clients.retain_mut(|client| match client.write(TEXT) {
            Ok(_) => {
                wrote = true;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        if !wrote {
            wait(Duration::from_millis(5));
        }
    }
}

/// Echoes every datagram, and keeps sending to clients that ask for a stream.
fn repeat(socket: &UdpSocket, count: &Arc<AtomicUsize>) {
    let mut space = [0; 2048];
    loop {
        let (length, client) = socket.recv_from(&mut space).unwrap();
        count.fetch_add(1, Ordering::SeqCst);
        socket.send_to(&space[..length], client).unwrap();
        if space.starts_with(b"stream") {
            let socket = socket.try_clone().unwrap();
            thread::spawn(move || {
                for _ in 0..1000 {
                    let _ = socket.send_to(b"more", client);
                    wait(Duration::from_millis(10));
                }
            });
        }
    }
}

fn wait(time: Duration) {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}

/// A name server that answers every name with the server's address.
fn answer(socket: &UdpSocket) {
    let mut query = [0; 512];
    loop {
        let (_, client) = socket.recv_from(&mut query).unwrap();
        let mut end = 12;
        while query[end] != 0 {
            end += 1 + usize::from(query[end]);
        }
        let mut answer = query[..2].to_vec();
        answer.extend(b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00");
        answer.extend(&query[12..end + 5]);
        answer.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04");
        answer.extend(SERVER.octets());
        socket.send_to(&answer, client).unwrap();
    }
}
