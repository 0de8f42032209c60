//! Whom do the first bytes of a connection name? TLS says it in the ClientHello, HTTP/1 in the Host header, git's own
//! protocol in its first packet.
//!
//! The bytes are the guest's and arrive in any pieces. What looks like TLS, HTTP or git but cannot be read is not opaque:
//! it is TLS, HTTP or git that names nobody, because a server may read more tolerantly than this does.

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

/// What a connection says about where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// TLS, with a server name. Not normalised beyond being ASCII.
    Sni(String),
    /// TLS without a server name, or with one that cannot be read.
    NoSni,
    /// TLS that encrypts the real server name (ECH). The name outside, if there is one, may be a cover.
    Encrypted(Option<String>),
    /// HTTP/1, with a host. Without its port.
    Host(String),
    /// HTTP without a host, with several, or with one that cannot be read.
    NoHost,
    /// Git's own protocol, with a host. Without its port.
    GitHost(String),
    /// The same without a host, with several, or with one that cannot be read.
    NoGitHost,
    /// Neither TLS nor HTTP nor git.
    Opaque,
}

/// Bytes that are looked at. A ClientHello with post-quantum keys has some 2 KiB; servers refuse HTTP headers beyond
/// 8 to 16 KiB.
pub const MAX_BYTES: usize = 16 << 10;

/// Reads the first bytes of one connection until it is clear whom they name.
#[derive(Debug, Default)]
pub struct Sniffer {
    bytes: Vec<u8>,
    claim: Option<Claim>,
}

/// What a reader makes of the bytes so far.
enum Reading {
    Unfinished,
    Done(Claim),
}

impl Sniffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. `None`: more are needed. Once there is a claim it stays.
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

    /// The claim of a connection whose guest sends no more: it closed its side, or waits too long.
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
        // The beginning of a packet of git's could become a method of HTTP's, and needs more bytes in either case.
        Some(_) => tls::read_sslv2(bytes).or_else(|| git::read(bytes)).unwrap_or_else(|| http::read(bytes)),
    }
}

/// What unfinished bytes are taken for.
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
