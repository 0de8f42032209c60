//! Reads the head of one request: the host it names, the length of its body, and what may follow instead of another
//! request.

use super::http::{self, is_token};
use super::requests::Broken;
use super::{Claim, Reading};

/// Most digits of a length: less than an exbibyte.
const MAX_DIGITS: usize = 18;

/// Methods whose requests must have no body, because servers disagree about its meaning.
const BODILESS: [&[u8]; 4] = [b"GET", b"HEAD", b"TRACE", b"CONNECT"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) claim: Claim,
    pub(super) body: Body,
    pub(super) after: Option<After>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Sized(u64),
    Chunked,
}

/// The protocol change that the server may agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Connect,
    /// `hides_names`: the new protocol names hosts of its own.
    Upgrade {
        hides_names: bool,
    },
}

impl Head {
    /// Reads a head that ends with its empty line.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let mut lines =
            bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let (method, version) = first_line(lines.next().unwrap_or_default())?;
        let (mut length, mut coding, mut upgrade) = (None, None, None);
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = field(line)?;
            let (slot, twice) = if name.eq_ignore_ascii_case(b"content-length") {
                (&mut length, Broken("two Content-Length headers"))
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                (&mut coding, Broken("two Transfer-Encoding headers"))
            } else if name.eq_ignore_ascii_case(b"upgrade") {
                (&mut upgrade, Broken("two Upgrade headers"))
            } else {
                continue;
            };
            if slot.replace(value).is_some() {
                return Err(twice);
            }
        }
        let body = match (length, coding) {
            (None, None) => Body::None,
            (Some(length), None) => sized(length)?,
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") && version == b"HTTP/1.1" => {
                Body::Chunked
            }
            (None, Some(_)) => return Err(Broken("a Transfer-Encoding other than chunked")),
            (Some(_), Some(_)) => return Err(Broken("both Content-Length and Transfer-Encoding")),
        };
        if body != Body::None && BODILESS.iter().any(|bodiless| method.eq_ignore_ascii_case(bodiless)) {
            return Err(Broken("a body in a request that must not have one"));
        }
        let after = match (method.eq_ignore_ascii_case(b"CONNECT"), upgrade) {
            (true, _) => Some(After::Connect),
            (false, Some(to)) => Some(After::Upgrade { hides_names: contains(to, b"h2c") }),
            (false, None) => None,
        };
        let claim = match http::read(bytes) {
            Reading::Done(claim) => claim,
            Reading::Unfinished => Claim::NoHost,
        };
        Ok(Self { claim, body, after })
    }
}

fn first_line(line: &[u8]) -> Result<(&[u8], &[u8]), Broken> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    match words[..] {
        [method, target, version @ (b"HTTP/1.0" | b"HTTP/1.1")]
            if is_name(method)
                && !target.is_empty()
                && target.iter().all(|byte| *byte > b' ' && *byte != 0x7f) =>
        {
            Ok((method, version))
        }
        _ => Err(Broken("a malformed request line")),
    }
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Broken> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Broken("a malformed header"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    match is_name(name) && value.iter().all(is_text) {
        true => Ok((name, trimmed(value))),
        false => Err(Broken("a malformed header")),
    }
}

fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(is_token)
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn sized(length: &[u8]) -> Result<Body, Broken> {
    let is_number = (1..=MAX_DIGITS).contains(&length.len()) && length.iter().all(u8::is_ascii_digit);
    let number =
        std::str::from_utf8(length).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
    match number.ok_or(Broken("a malformed Content-Length"))? {
        0 => Ok(Body::None),
        length => Ok(Body::Sized(length)),
    }
}

fn contains(value: &[u8], word: &[u8]) -> bool {
    value.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}
