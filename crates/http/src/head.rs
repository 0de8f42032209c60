//! The head of a request, from bytes. Pure; whatever is unusual is refused rather than interpreted, so that no two
//! readers of one connection can take it for different requests.

use thiserror::Error;

/// Request line and headers. Clients of MCP send well below 2 KiB.
pub(crate) const MAX_HEAD: usize = 16 * 1024;

const MAX_HEADERS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) framing: Framing,
    /// The client wants to send another request on this connection.
    pub(crate) keep_alive: bool,
    /// HTTP/1.0 knows no chunks.
    pub(crate) knows_chunks: bool,
    /// The client waits for a word before it sends the body.
    pub(crate) expects_continue: bool,
    headers: Vec<(String, String)>,
}

/// How the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
}

impl Framing {
    /// Whether it may be as short as this.
    pub(crate) fn may_fit(self, max: usize) -> bool {
        match self {
            Self::Length(length) => length <= max as u64,
            Self::Chunked => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HeadError {
    #[error("the head of the request is longer than {MAX_HEAD} bytes")]
    TooLong,
    #[error("the request line is not \"METHOD /path HTTP/1.1\"")]
    RequestLine,
    #[error("only HTTP/1.1 and HTTP/1.0 are spoken here")]
    Version,
    #[error("a header is not \"Name: value\"")]
    Header,
    #[error("there are more than {MAX_HEADERS} headers")]
    TooMany,
    #[error("the header {0} is there twice")]
    Twice(&'static str),
    #[error("Content-Length is not a number")]
    Length,
    #[error("Transfer-Encoding may only be chunked, in HTTP/1.1 and without Content-Length")]
    Encoding,
}

/// Headers that decide something. Of two that differ, another reader might take the other one.
const ONCE: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
    "origin",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

impl Head {
    /// Parses what came before the empty line, without it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let text = std::str::from_utf8(bytes).map_err(|_| HeadError::Header)?;
        let mut lines = text.split("\r\n");
        let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
        let is_current = match version {
            "HTTP/1.1" => true,
            "HTTP/1.0" => false,
            _ => return Err(HeadError::Version),
        };
        let headers = lines.map(header).collect::<Result<Vec<_>, _>>()?;
        if headers.len() > MAX_HEADERS {
            return Err(HeadError::TooMany);
        }
        if let Some(twice) = ONCE.iter().find(|once| headers.iter().filter(|(n, _)| n == *once).count() > 1) {
            return Err(HeadError::Twice(twice));
        }
        let mut head = Self {
            method: method.to_owned(),
            path: target.split('?').next().unwrap_or_default().to_owned(),
            framing: Framing::Length(0),
            keep_alive: is_current,
            knows_chunks: is_current,
            expects_continue: false,
            headers,
        };
        head.framing = head.read_framing()?;
        head.keep_alive &= !head.has_word("connection", "close");
        head.expects_continue = is_current && head.has_word("expect", "100-continue");
        Ok(head)
    }

    /// The value of a header, by its name in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn has_word(&self, name: &str, word: &str) -> bool {
        let words = self.headers.iter().filter(|(known, _)| known == name).flat_map(|(_, v)| v.split(','));
        words.into_iter().any(|value| value.trim().eq_ignore_ascii_case(word))
    }

    fn read_framing(&self) -> Result<Framing, HeadError> {
        match (self.get("transfer-encoding"), self.get("content-length")) {
            (None, None) => Ok(Framing::Length(0)),
            (None, Some(length)) => {
                let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = Some(length).filter(|_| digits).and_then(|digits| digits.parse().ok());
                length.map(Framing::Length).ok_or(HeadError::Length)
            }
            (Some(encoding), None) if self.knows_chunks && encoding.eq_ignore_ascii_case("chunked") => {
                Ok(Framing::Chunked)
            }
            (Some(_), _) => Err(HeadError::Encoding),
        }
    }
}

fn request_line(line: &str) -> Result<(&str, &str, &str), HeadError> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version), None)
            if !method.is_empty()
                && method.bytes().all(|byte| byte.is_ascii_uppercase())
                && target.starts_with('/')
                && target.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok((method, target, version))
        }
        _ => Err(HeadError::RequestLine),
    }
}

fn header(line: &str) -> Result<(String, String), HeadError> {
    let (name, value) = line.split_once(':').ok_or(HeadError::Header)?;
    let value = value.trim_matches([' ', '\t']);
    let is_named = !name.is_empty() && name.bytes().all(is_token);
    // No line feed or NUL that another reader would stop at.
    if !is_named || value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(HeadError::Header);
    }
    Ok((name.to_ascii_lowercase(), value.to_owned()))
}

/// What names of headers are made of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Head, HeadError> {
        Head::parse(text.as_bytes())
    }

    #[test]
    fn an_ordinary_head_is_read() {
        let head =
            parse("POST /mcp?x=1 HTTP/1.1\r\nHost: a:1\r\nCONTENT-length:  12 \r\nExpect: 100-continue")
                .unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("POST", "/mcp"));
        assert_eq!((head.framing, head.get("host")), (Framing::Length(12), Some("a:1")));
        assert!(head.keep_alive && head.expects_continue);
        assert!(!parse("POST / HTTP/1.1\r\nConnection: x, Close").unwrap().keep_alive);
        assert!(!parse("POST / HTTP/1.0").unwrap().keep_alive);
    }

    #[test]
    fn what_two_readers_could_take_for_two_things_is_refused() {
        let cases = [
            ("GET http://x/ HTTP/1.1", HeadError::RequestLine),
            ("GET  / HTTP/1.1", HeadError::RequestLine),
            ("get / HTTP/1.1", HeadError::RequestLine),
            ("GET / HTTP/2.0", HeadError::Version),
            ("GET / HTTP/1.1\r\nA : b", HeadError::Header),
            ("GET / HTTP/1.1\r\nA: b\r\n c", HeadError::Header),
            ("GET / HTTP/1.1\r\nA: b\nC: d", HeadError::Header),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: a", HeadError::Twice("host")),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1", HeadError::Twice("content-length")),
            ("GET / HTTP/1.1\r\nContent-Length: +1", HeadError::Length),
            ("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999", HeadError::Length),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", HeadError::Encoding),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", HeadError::Encoding),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked", HeadError::Encoding),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Head::parse(&bytes);
        }
    }
}
