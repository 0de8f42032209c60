//! The server of the measurements, at an address of the host. It measures times itself, because a guest's clock is less
//! precise under emulation.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::SMALL;

/// The timeout of a connection, which detects a guest that has ended.
const LIMIT: Duration = Duration::from_secs(60);

/// The buffer size, large enough not to affect the measurement.
const PIECE: usize = 256 * 1024;

pub(super) struct Server {
    address: SocketAddr,
    times: Receiver<Vec<Duration>>,
}

impl Server {
    /// Starts the server, which runs until the program ends.
    pub(super) fn start(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("listening for the guests")?;
        let address = listener.local_addr().context("listening for the guests")?;
        let (send, times) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Connections are served one after the other, because measurements never overlap.
                serve(stream, &send);
            }
        });
        Ok(Self { address, times })
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address.ip()
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The duration of the last measurement.
    pub(super) fn time(&self) -> Result<Duration> {
        self.times()?.pop().context("nothing was measured")
    }

    pub(super) fn times(&self) -> Result<Vec<Duration>> {
        self.times.recv_timeout(LIMIT).context("the guest did not take part")
    }
}

/// Serves one connection. One without a request is only opened, and timed by the guest.
fn serve(stream: TcpStream, times: &Sender<Vec<Duration>>) {
    let mut line = String::new();
    let Ok(reading) = stream.try_clone() else { return };
    let mut reading = BufReader::with_capacity(PIECE, reading);
    if reading.read_line(&mut line).is_err() {
        return;
    }
    let mut words = line.split_whitespace();
    let (what, amount) = (words.next(), words.next().and_then(|amount| amount.parse().ok()).unwrap_or(0));
    let measured = match what {
        Some("down") => down(stream, reading, amount),
        Some("up") => up(stream, reading, amount),
        Some("echo") => echo(stream, reading, amount),
        Some(_) | None => return,
    };
    if let Ok(measured) = measured {
        // The benchmark may have given up.
        let _ = times.send(measured);
    }
}

fn down(
    mut stream: TcpStream,
    mut reading: BufReader<TcpStream>,
    amount: u64,
) -> std::io::Result<Vec<Duration>> {
    let begun = Instant::now();
    let piece = vec![b'x'; PIECE];
    let mut left = amount;
    while left > 0 {
        let count = left.min(PIECE as u64);
        stream.write_all(&piece[..count as usize])?;
        left -= count;
    }
    stream.shutdown(Shutdown::Write)?;
    // The guest sends one byte when it has received everything.
    reading.read_exact(&mut [0])?;
    Ok(vec![begun.elapsed()])
}

fn up(
    mut stream: TcpStream,
    mut reading: BufReader<TcpStream>,
    amount: u64,
) -> std::io::Result<Vec<Duration>> {
    let begun = Instant::now();
    let mut left = amount;
    while left > 0 {
        let count = reading.fill_buf()?.len();
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        reading.consume(count);
        left = left.saturating_sub(count as u64);
    }
    let taken = begun.elapsed();
    stream.write_all(b"k")?;
    Ok(vec![taken])
}

fn echo(
    mut stream: TcpStream,
    mut reading: BufReader<TcpStream>,
    amount: u64,
) -> std::io::Result<Vec<Duration>> {
    stream.set_nodelay(true)?;
    let mut answer = [0; SMALL];
    (0..amount)
        .map(|_| {
            let begun = Instant::now();
            stream.write_all(&[b'x'; SMALL])?;
            reading.read_exact(&mut answer)?;
            Ok::<_, std::io::Error>(begun.elapsed())
        })
        .collect()
}
