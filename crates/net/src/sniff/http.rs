//! The host in the head of an HTTP/1 request.
//!
//! Stricter than servers are: where two of them could read different hosts out of the same bytes (two headers, folded
//! lines, a target that disagrees), the request names nobody.

use super::{Claim, Reading};

/// No method is longer, and much that is not HTTP has no space in its first bytes.
const MAX_METHOD: usize = 64;

pub(super) fn read(bytes: &[u8]) -> Reading {
    // Servers pass over empty lines before a request.
    let bytes = bytes.trim_ascii_start_of_lines();
    let Some(first) = first_line(bytes) else {
        return if may_be_method(bytes) { Reading::Unfinished } else { Reading::Done(Claim::Opaque) };
    };
    let Some(target) = target(first) else {
        return Reading::Done(Claim::Opaque);
    };
    let Target::Names(authority) = target else {
        return Reading::Done(Claim::NoHost);
    };
    match headers(bytes) {
        Headers::Unfinished => Reading::Unfinished,
        Headers::Ambiguous => Reading::Done(Claim::NoHost),
        Headers::Read(host) => Reading::Done(agreed(authority, host)),
    }
}

trait Lines {
    fn trim_ascii_start_of_lines(&self) -> &Self;
}

impl Lines for [u8] {
    fn trim_ascii_start_of_lines(&self) -> &[u8] {
        let start = self.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(self.len());
        &self[start..]
    }
}

fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some(&bytes[..end])
}

/// Whether an unfinished first line can become a request: a method, and text after it.
fn may_be_method(line: &[u8]) -> bool {
    let method = line.split(is_space).next().unwrap_or_default();
    let text = line.iter().all(|byte| *byte >= b' ' || is_space(byte) || *byte == b'\r');
    method.len() <= MAX_METHOD
        && method.iter().all(is_token)
        && (line.is_empty() || !method.is_empty())
        && text
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c)
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

enum Target<'a> {
    /// The authority in the target, if there is one; the headers decide too.
    Names(Option<&'a [u8]>),
    /// A version of HTTP that names nobody, or not in the clear.
    Hidden,
}

/// What the first line asks for. `None`: it is no HTTP.
fn target(line: &[u8]) -> Option<Target<'_>> {
    if !may_be_method(line) {
        return None;
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words: Vec<&[u8]> = line.split(is_space).filter(|word| !word.is_empty()).collect();
    let version = words.last().filter(|_| words.len() > 2).and_then(|word| word.get(..5));
    let is_http = version.is_some_and(|version| version.eq_ignore_ascii_case(b"HTTP/"));
    match words[..] {
        // What came before version 1.0 had neither version nor headers, and some servers still answer it.
        [b"GET", ..] if !is_http => Some(Target::Hidden),
        [method, target, version] if is_http => {
            let is_one = version[5..].starts_with(b"1.");
            let clean = !line.contains(&b'\r');
            Some(if is_one && clean { Target::Names(authority(method, target)) } else { Target::Hidden })
        }
        [..] if is_http => Some(Target::Hidden),
        [..] => None,
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

fn headers(bytes: &[u8]) -> Headers<'_> {
    let mut host = None;
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').skip(1);
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

/// The host in `host:port`. `None`: nothing that a server would take for one.
fn host_of(authority: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(authority).ok()?;
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => text,
    };
    let clean =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"@/,\\".contains(&byte));
    clean.then(|| host.to_owned())
}

/// Bytes that could still have become a request name nobody.
pub(super) fn given_up(bytes: &[u8]) -> Claim {
    match read(bytes) {
        Reading::Done(claim) => claim,
        Reading::Unfinished => Claim::NoHost,
    }
}
