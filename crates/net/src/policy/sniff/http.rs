//! Finds the host in the head of an HTTP/1 request.
//!
//! It is stricter than servers: if two of them could read different hosts out of the same bytes (two headers, folded
//! lines, a target that disagrees), the request names no host. [`requests`](super::requests) handles the requests after
//! the first.

use super::{Claim, Reading};

/// Longest method. Many other protocols have no space within their first bytes.
const MAX_METHOD: usize = 64;

pub(super) fn read(bytes: &[u8]) -> Reading {
    let bytes = without_start(bytes);
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        // The line feed may still come.
        let line = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        return if begins_with_method(line) { Reading::Unfinished } else { Reading::Done(Claim::Opaque) };
    };
    let authority = match request(&bytes[..end]) {
        Request::None => return Reading::Done(Claim::Opaque),
        Request::Hidden => return Reading::Done(Claim::NoHost),
        Request::Plain { authority } => authority,
    };
    match headers(&bytes[end + 1..]) {
        Headers::Unfinished => Reading::Unfinished,
        Headers::Ambiguous => Reading::Done(Claim::NoHost),
        Headers::Read(host) => Reading::Done(agreed(authority, host)),
    }
}

/// Strips the empty lines and spaces that servers ignore before a request.
fn without_start(bytes: &[u8]) -> &[u8] {
    let is_passed_over = |byte: &u8| is_space(byte) || matches!(byte, b'\r' | b'\n');
    let start = bytes.iter().position(|byte| !is_passed_over(byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

/// Whether this is a method, or can become one. Most binary protocols fail at their first byte or soon after.
fn begins_with_method(line: &[u8]) -> bool {
    let method = line.split(is_space).next().unwrap_or_default();
    method.len() <= MAX_METHOD && method.iter().all(is_token)
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c)
}

pub(super) fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// The kind of the first line.
enum Request<'a> {
    None,
    /// HTTP/1, with the authority of its target if there is one; the headers are read too.
    Plain {
        authority: Option<&'a [u8]>,
    },
    /// HTTP that names no host, or not in the clear, or that servers may read differently.
    Hidden,
}

fn request(line: &[u8]) -> Request<'_> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line.split(is_space).filter(|word| !word.is_empty()).collect();
    let is_version = |word: &&[u8]| word.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/"));
    let is_clean = line.iter().all(|byte| is_space(byte) || *byte > b' ');
    match words[..] {
        [first, ..] if !begins_with_method(first) => Request::None,
        [method, target, version] if is_version(&version) && version[5..].starts_with(b"1.") && is_clean => {
            Request::Plain { authority: authority(method, target) }
        }
        // HTTP/0.9 has neither version nor headers, and some servers still answer it.
        [b"GET", ..] => Request::Hidden,
        [_, ref rest @ ..] if rest.iter().any(is_version) => Request::Hidden,
        [..] => Request::None,
    }
}

/// The authority in a target such as `http://example.com/path`, or that of CONNECT.
fn authority<'a>(method: &[u8], target: &'a [u8]) -> Option<&'a [u8]> {
    if method.eq_ignore_ascii_case(b"CONNECT") {
        return Some(target);
    }
    // A path that contains a URL is still a path.
    if target.starts_with(b"/") {
        return None;
    }
    let start = target.windows(3).position(|part| part == b"://")? + 3;
    let rest = &target[start..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\')).unwrap_or(rest.len());
    Some(&rest[..end])
}

enum Headers<'a> {
    Unfinished,
    Ambiguous,
    Read(Option<&'a [u8]>),
}

/// Reads the lines after the first.
fn headers(bytes: &[u8]) -> Headers<'_> {
    let mut host = None;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    loop {
        let Some(line) = lines.next().and_then(|line| line.strip_suffix(b"\n")) else {
            return Headers::Unfinished;
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Headers::Read(host);
        }
        if is_space(&line[0]) || line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Headers::Ambiguous;
        }
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"host") {
            let Some(value) = parts.next().filter(|_| host.is_none()) else {
                return Headers::Ambiguous;
            };
            host = Some(value.trim_ascii());
        }
    }
}

fn agreed(authority: Option<&[u8]>, header: Option<&[u8]>) -> Claim {
    let named = match (authority.map(host_of), header.map(host_of)) {
        (Some(Some(a)), Some(Some(b))) if a.eq_ignore_ascii_case(&b) => Some(a),
        (Some(Some(only)), None) | (None, Some(Some(only))) => Some(only),
        (Some(_), Some(_)) | (Some(None), None) | (None, Some(None) | None) => None,
    };
    named.map_or(Claim::NoHost, Claim::Host)
}

/// The host in `host:port`. `None`: no server would accept it as a host.
pub(super) fn host_of(authority: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(authority).ok()?;
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => text,
    };
    let clean =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"@/,\\".contains(&byte));
    clean.then(|| host.to_owned())
}

/// The claim of bytes that get no continuation. An unfinished request names no host.
pub(super) fn given_up(bytes: &[u8]) -> Claim {
    match read(bytes) {
        Reading::Done(claim) => claim,
        Reading::Unfinished => Claim::NoHost,
    }
}
