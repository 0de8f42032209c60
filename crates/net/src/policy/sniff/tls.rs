//! Finds the server name in a TLS ClientHello (RFC 8446 §4.1.2, RFC 6066 §3), which may be spread over several records.
//!
//! An encrypted ClientHello (ECH) hides the real name and shows a cover. Clients also send the extension with random
//! content (GREASE), which only the server can tell apart, so both are [`Claim::Encrypted`].

use super::{Claim, MAX_BYTES, Reading};

/// The record type at the start of every TLS connection.
pub(super) const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// `encrypted_client_hello` (RFC 9849), and `encrypted_server_name`, the draft before it.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// Most bytes of a plain-text record.
const MAX_RECORD: usize = 1 << 14;

pub(super) fn read(bytes: &[u8]) -> Reading {
    let mut hello = Vec::new();
    let mut rest = Bytes(bytes);
    loop {
        if let Some(needed) = hello_len(&hello) {
            let Some(needed) = needed else { return Reading::Done(Claim::NoSni) };
            if hello.len() >= needed {
                return Reading::Done(server_name(&hello[4..needed]));
            }
        }
        let Some(record) = rest.array::<5>() else {
            // An incomplete header is already wrong if its first bytes are: most other protocols fail here.
            let wrong = rest.0.iter().zip([HANDSHAKE, 3]).any(|(byte, right)| *byte != right);
            return if wrong { Reading::Done(Claim::NoSni) } else { Reading::Unfinished };
        };
        let [kind, major, _, high, low] = record;
        let len = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 || len == 0 || len > MAX_RECORD {
            return Reading::Done(Claim::NoSni);
        }
        let part = rest.up_to(len);
        hello.extend_from_slice(part);
        if part.len() < len && hello_len(&hello).flatten().is_none_or(|needed| hello.len() < needed) {
            return match hello_len(&hello) {
                Some(None) => Reading::Done(Claim::NoSni),
                Some(Some(_)) | None => Reading::Unfinished,
            };
        }
    }
}

/// Recognizes a ClientHello in the format of SSL 2, which old servers still accept and which cannot carry a name.
///
/// ```text
///  length with its highest bit set (2) | message type 1 | version 0.2 or 3.x (2) | ...
/// ```
///
/// `None`: these bytes are not the beginning of one.
pub(super) fn read_sslv2(bytes: &[u8]) -> Option<Reading> {
    const LONG_RECORD: u8 = 0x80;
    let fits = |at: usize, right: &dyn Fn(u8) -> bool| bytes.get(at).is_none_or(|byte| right(*byte));
    let is_hello = fits(0, &|byte| byte & LONG_RECORD != 0)
        && fits(2, &|kind| kind == CLIENT_HELLO)
        && fits(3, &|major| matches!(major, 0 | 3))
        && (bytes.get(3) != Some(&0) || fits(4, &|minor| minor == 2));
    is_hello.then_some(if bytes.len() < 5 { Reading::Unfinished } else { Reading::Done(Claim::NoSni) })
}

/// The length of the handshake message with its header. `None`: not known yet. `Some(None)`: no ClientHello, or one
/// that is longer than the inspected bytes.
fn hello_len(hello: &[u8]) -> Option<Option<usize>> {
    if hello.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Some(None);
    }
    let [_, a, b, c] = *hello.first_chunk::<4>()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize + 4;
    Some((len < MAX_BYTES).then_some(len))
}

fn server_name(body: &[u8]) -> Claim {
    match extensions(body).and_then(find_names) {
        None => Claim::NoSni,
        Some(Names { shown, is_encrypted: true }) => Claim::Encrypted(shown),
        Some(Names { shown, is_encrypted: false }) => shown.map_or(Claim::NoSni, Claim::Sni),
    }
}

/// Names in the extensions of a ClientHello.
struct Names {
    shown: Option<String>,
    is_encrypted: bool,
}

/// The extensions of a ClientHello, which follow version, random, session, ciphers and compression.
fn extensions(body: &[u8]) -> Option<Bytes<'_>> {
    let mut rest = Bytes(body);
    rest.array::<34>()?;
    rest.short_vector()?;
    rest.vector()?;
    rest.short_vector()?;
    rest.vector().map(Bytes)
}

/// The host name of the server-name extension, and whether the real one is encrypted. Two host names or extensions are
/// forbidden, and servers differ in which they take, so such a hello has no name.
fn find_names(mut extensions: Bytes<'_>) -> Option<Names> {
    let mut found = None;
    let mut is_encrypted = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector()?;
        is_encrypted |= ENCRYPTED.contains(&kind);
        if kind == SERVER_NAME {
            if found.is_some() {
                return None;
            }
            let mut content = Bytes(content);
            let mut names = Bytes(content.vector()?);
            let [name_kind] = names.array()?;
            let name = names.vector()?;
            if name_kind != HOST_NAME || !names.0.is_empty() || !content.0.is_empty() {
                return None;
            }
            found = Some(name);
        }
    }
    let readable = found.filter(|name| !name.is_empty() && name.iter().all(u8::is_ascii_graphic));
    let shown = readable.and_then(|name| String::from_utf8(name.to_vec()).ok());
    Some(Names { shown, is_encrypted })
}

/// A reader that takes bytes from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn up_to(&mut self, len: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        first
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        (self.0.len() >= len).then(|| self.up_to(len))
    }

    fn number(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// A vector with a length of one byte.
    fn short_vector(&mut self) -> Option<&'a [u8]> {
        let [len] = self.array()?;
        self.take(usize::from(len))
    }

    /// A vector with a length of two bytes.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::from(len))
    }
}
