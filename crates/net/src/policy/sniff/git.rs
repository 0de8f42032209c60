//! The host in the first packet of git's own protocol.
//!
//! ```text
//!  0032 git-upload-pack /project.git NUL host=example.com NUL [NUL version=2 NUL]
//! ```
//!
//! The client sends the whole packet before the server sends anything, and nothing else until the answer.

use super::http::host_of;
use super::{Claim, Reading};

/// The services of a git server.
const SERVICES: [&[u8]; 3] = [b"git-upload-pack ", b"git-receive-pack ", b"git-upload-archive "];

/// Hexadecimal digits of a packet's length, which counts them too.
const LENGTH: usize = 4;

const HOST: &[u8] = b"host=";

/// `None`: this is no git request, or not yet recognizable as one.
pub(super) fn read(bytes: &[u8]) -> Option<Reading> {
    let (length, rest) = bytes.split_at_checked(LENGTH)?;
    let length = std::str::from_utf8(length).ok()?;
    let is_hex = length.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || !SERVICES.iter().any(|service| rest.starts_with(service)) {
        return None;
    }
    let length = usize::from_str_radix(length, 16).ok()?;
    let Some(packet) = bytes.get(LENGTH..length) else {
        // A packet shorter than its own length field stays invalid with more bytes.
        let is_short = length < bytes.len();
        return Some(if is_short { Reading::Done(Claim::NoGitHost) } else { Reading::Unfinished });
    };
    Some(Reading::Done(host(packet).map_or(Claim::NoGitHost, Claim::GitHost)))
}

/// `None` for several hosts, because servers may take either.
fn host(packet: &[u8]) -> Option<String> {
    let mut hosts = packet.split(|byte| *byte == 0).skip(1).filter_map(|part| part.strip_prefix(HOST));
    let host = hosts.next().filter(|_| hosts.next().is_none())?;
    host_of(host)
}
