//! Finds the host that the first bytes of a connection name: in TLS the server name of the ClientHello, in HTTP/1 the
//! Host header, in git's own protocol the host of the first packet.
//!
//! The bytes come from the guest, in pieces of any size. Bytes that look like TLS, HTTP or git but cannot be parsed are
//! not opaque: they count as TLS, HTTP or git without a name, because a server may parse more tolerantly.

mod answer;
mod chunks;
mod git;
mod head;
mod http;
mod requests;
mod tls;

#[cfg(test)]
mod tests;

pub use requests::{Broken, Requests};

/// The host that a connection claims to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// TLS, with a server name. Not normalised beyond being ASCII.
    Sni(String),
    /// TLS without a server name, or with one that cannot be read.
    NoSni,
    /// TLS that encrypts the real server name (ECH). The outer name, if there is one, may be a cover.
    Encrypted(Option<String>),
    /// HTTP/1 with a host, given without its port.
    Host(String),
    /// HTTP without a host, with several, or with one that cannot be read.
    NoHost,
    /// Git's own protocol with a host, given without its port.
    GitHost(String),
    /// Git's own protocol without a host, with several, or with one that cannot be read.
    NoGitHost,
    /// Neither TLS nor HTTP nor git.
    Opaque,
}

/// Most bytes that are inspected. A ClientHello with post-quantum keys has some 2 KiB; servers refuse HTTP headers
/// beyond 8 to 16 KiB.
pub const MAX_BYTES: usize = 16 << 10;

/// Reads the first bytes of one connection until its claim is known.
#[derive(Debug, Default)]
pub struct Sniffer {
    bytes: Vec<u8>,
    claim: Option<Claim>,
}

/// The state of a reader after the bytes so far.
enum Reading {
    Unfinished,
    Done(Claim),
}

impl Sniffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. `None`: more are needed. A claim does not change any more.
    pub fn push(&mut self, bytes: &[u8]) -> Option<Claim> {
        if self.claim.is_none() {
            let room = MAX_BYTES - self.bytes.len();
            self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.claim = match read(&self.bytes) {
                Reading::Done(claim) => Some(claim),
                Reading::Unfinished if self.bytes.len() == MAX_BYTES => Some(given_up(&self.bytes)),
                Reading::Unfinished => None,
            };
            if self.claim.is_some() {
                self.bytes = Vec::new();
            }
        }
        self.claim.clone()
    }

    /// The claim of a connection whose guest sends no more bytes: it closed its side, or takes too long.
    pub fn finish(&mut self) -> Claim {
        let claim = self.claim.take().unwrap_or_else(|| given_up(&self.bytes));
        self.bytes = Vec::new();
        self.claim.insert(claim).clone()
    }
}

fn read(bytes: &[u8]) -> Reading {
    match bytes.first() {
        None => Reading::Unfinished,
        Some(&tls::HANDSHAKE) => tls::read(bytes),
        // The beginning of a git packet could also become an HTTP method, and needs more bytes in either case.
        Some(_) => tls::read_sslv2(bytes).or_else(|| git::read(bytes)).unwrap_or_else(|| http::read(bytes)),
    }
}

/// The claim of unfinished bytes.
fn given_up(bytes: &[u8]) -> Claim {
    match bytes.first() {
        None => Claim::Opaque,
        Some(&tls::HANDSHAKE) => Claim::NoSni,
        Some(_) if tls::read_sslv2(bytes).is_some() => Claim::NoSni,
        Some(_) => match git::read(bytes) {
            Some(Reading::Done(claim)) => claim,
            Some(Reading::Unfinished) => Claim::NoGitHost,
            None => http::given_up(bytes),
        },
    }
}
