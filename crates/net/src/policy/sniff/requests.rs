//! Follows the requests of one HTTP/1 connection: where each begins, which host it names, and where it ends.
//!
//! ```text
//!   head ── judged ──▶ body ──▶ head …
//!                └──── upgrade, CONNECT: the server's answer ──▶ opaque, or body, head …
//! ```
//!
//! It is stricter than servers: if two of them could disagree about where a request ends, the connection is [`Broken`],
//! because one would read a body where the other reads a request.

use super::chunks::Chunks;
use super::head::{After, Body, Head};
use super::{Claim, MAX_BYTES, answer};

/// The reason that a connection cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Follows the bytes of a guest. Bodies are skipped without being stored.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    state: State,
    /// Bytes of an unfinished head that were searched for its end.
    searched: usize,
    /// Whether a request or an answer has come. An answer could then belong to something else.
    begun: bool,
    /// The server's bytes so far, while an answer is awaited.
    answer: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Sized(u64),
    Chunked(Chunks),
    Answer(After),
    Opaque,
}

impl Requests {
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of these bytes that belong to no head, but to the body of a request that was let through, or to
    /// another protocol after HTTP. They count as passed.
    pub fn body(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        match &mut self.state {
            // Empty lines before a request mean nothing.
            State::Head if self.searched == 0 => {
                let is_empty_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
                Ok(bytes.iter().position(|byte| !is_empty_line(byte)).unwrap_or(bytes.len()))
            }
            State::Head | State::Answer(_) => Ok(0),
            State::Sized(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    self.state = State::Head;
                }
                Ok(taken)
            }
            State::Chunked(chunks) => {
                let taken = chunks.pass(bytes)?;
                if chunks.have_ended() {
                    self.state = State::Head;
                }
                Ok(taken)
            }
            State::Opaque => Ok(bytes.len()),
        }
    }

    /// Reads a head from its first byte on; `None` while it is incomplete. Called again with the same bytes and more
    /// until it is complete.
    pub fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, Claim)>, Broken> {
        if self.state != State::Head {
            return Ok(None);
        }
        let Some(length) = self.end_of_head(bytes)? else { return Ok(None) };
        self.searched = 0;
        let Head { claim, body, after } = Head::read(&bytes[..length])?;
        self.state = match (body, after) {
            (Body::None, Some(after)) if !self.begun => State::Answer(after),
            (_, Some(After::Connect)) => return Err(Broken("CONNECT after another request or with a body")),
            (Body::None, _) => State::Head,
            (Body::Sized(length), _) => State::Sized(length),
            (Body::Chunked, _) => State::Chunked(Chunks::default()),
        };
        self.begun = true;
        Ok(Some((length, claim)))
    }

    fn end_of_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        for at in self.searched..bytes.len().min(MAX_BYTES) {
            if bytes[at] != b'\n' {
                continue;
            }
            let line = &bytes[..at];
            if !line.ends_with(b"\r") {
                return Err(Broken("a line without a carriage return"));
            }
            if line.ends_with(b"\r\n\r") {
                return Ok(Some(at + 1));
            }
        }
        if bytes.len() >= MAX_BYTES {
            return Err(Broken("a header that is too long"));
        }
        self.searched = bytes.len();
        Ok(None)
    }

    /// Whether the meaning of the next bytes depends on the server's answer.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Answer(_))
    }

    /// Takes the server's next bytes.
    pub fn heard(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.begun = true;
        let State::Answer(after) = self.state else { return Ok(()) };
        self.answer.extend_from_slice(&bytes[..bytes.len().min(MAX_BYTES - self.answer.len())]);
        let Some(status) = answer::status(&self.answer) else {
            return if self.answer.len() < MAX_BYTES {
                Ok(())
            } else {
                Err(Broken("a response header that is too long"))
            };
        };
        self.answer = Vec::new();
        self.state = match (after, status) {
            (After::Upgrade { hides_names: true }, 101) => {
                return Err(Broken("an upgrade to HTTP/2, where hosts cannot be read"));
            }
            (After::Upgrade { .. }, 101) | (After::Connect, 200..=299) => State::Opaque,
            (After::Upgrade { .. } | After::Connect, _) => State::Head,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The result of following a connection's bytes.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Outcome {
        hosts: Vec<Claim>,
        passed: usize,
        broken: Option<Broken>,
        waiting: bool,
    }

    /// Follows bytes in pieces of these sizes, as a gate does.
    fn follow(requests: &mut Requests, bytes: &[u8], sizes: &[usize]) -> Outcome {
        let (mut outcome, mut held, mut rest) = (Outcome::default(), Vec::new(), bytes);
        let mut sizes = sizes.iter().copied().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
            rest = after;
            held.extend_from_slice(piece);
            loop {
                let read = requests.body(&held).and_then(|count| match count {
                    0 => requests.head(&held),
                    count => Ok(Some((count, Claim::Opaque))),
                });
                match read {
                    Ok(Some((count, claim))) => {
                        held.drain(..count);
                        outcome.passed += count;
                        outcome.hosts.extend(Some(claim).filter(|claim| *claim != Claim::Opaque));
                    }
                    Ok(None) => break,
                    // The number of bytes that passed before depends on the pieces.
                    Err(broken) => return Outcome { broken: Some(broken), passed: 0, ..outcome },
                }
                if held.is_empty() {
                    break;
                }
            }
        }
        Outcome { waiting: requests.is_waiting(), ..outcome }
    }

    fn all(bytes: &str) -> Outcome {
        follow(&mut Requests::new(), bytes.as_bytes(), &[usize::MAX])
    }

    fn hosts(bytes: &str) -> Vec<String> {
        let outcome = all(bytes);
        assert_eq!((outcome.broken, outcome.passed), (None, bytes.len()), "{bytes:?}");
        let name = |claim| {
            let Claim::Host(name) = claim else { panic!("{claim:?} in {bytes:?}") };
            name
        };
        outcome.hosts.into_iter().map(name).collect()
    }

    #[test]
    fn every_request_names_its_host() {
        assert_eq!(hosts("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"), ["a", "b"]);
        let sized = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 23\r\n\r\nGET / HTTP/1.1\r\nHost: x";
        assert_eq!(hosts(&format!("{sized}\r\nHEAD /y HTTP/1.0\r\nhost:\tb \r\n\r\n")), ["a", "b"]);
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: a\r\n\r\n\
             1b\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n0003\r\nabc\r\n0\r\nTrailer: x\r\n\r\n";
        assert_eq!(hosts(&format!("{chunked}{chunked}")), ["a", "a"]);
        assert_eq!(
            hosts("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"),
            ["a", "b"]
        );
    }

    #[test]
    fn ambiguous_requests_break_the_connection() {
        let get = "\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n";
        for head in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5",
            "POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 5",
            "POST / HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 5",
            "POST / HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 5",
            "POST / HTTP/1.1\r\nHost: a\r\nX: \0",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5",
            "GET / HTTP/1.2\r\nHost: a",
            "GET  / HTTP/1.1\r\nHost: a",
            "GET /\tHTTP/1.1\r\nHost: a",
            "GET /",
            "GET / HTTP/1.1\r\nHost: a\r\nnothing",
        ] {
            let outcome = all(&format!("{head}{get}"));
            assert!(outcome.broken.is_some() && outcome.passed == 0, "{head:?}: {outcome:?}");
        }
        for body in [
            "5;x=y\r\nabcde\r\n0\r\n\r\n",
            "5\nabcde\r\n",
            "5\r\nabcdef\r\n",
            "-1\r\n",
            "\r\n",
            "0\r\nX\n\r\n",
            "1000000000000000\r\n",
        ] {
            let outcome =
                all(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
            assert_eq!(outcome.broken, Some(Broken("a malformed chunk")), "{body:?}");
        }
        assert_eq!(
            all("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").hosts,
            [Claim::NoHost],
            "the guard decides"
        );
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(MAX_BYTES));
        assert_eq!(all(&long).broken, Some(Broken("a header that is too long")));
    }

    const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    const MORE: &str = "GET / HTTP/1.1\r\nHost: b\r\n\r\n";

    #[test]
    fn server_answer_decides_what_follows_an_upgrade() {
        let connect = "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n";
        for (head, answer, is_opaque) in [
            (UPGRADE, "HTTP/1.1 101 Switching Protocols\r\n", true),
            (UPGRADE, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching\r\n", true),
            (UPGRADE, "HTTP/1.1 200 OK\r\n\r\n", false),
            (UPGRADE, "HTTP/2 101 OK\r\n\r\n", false),
            (connect, "HTTP/1.1 200 OK\r\n\r\n", true),
            (connect, "HTTP/1.0 403 Forbidden\r\n\r\n", false),
        ] {
            let mut requests = Requests::new();
            let outcome = follow(&mut requests, format!("{head}{MORE}").as_bytes(), &[7]);
            assert!(
                outcome.waiting && outcome.passed == head.len() && outcome.hosts.len() == 1,
                "{outcome:?}"
            );
            for piece in answer.as_bytes().chunks(5) {
                requests.heard(piece).unwrap();
            }
            assert!(!requests.is_waiting(), "{answer:?}");
            let outcome = follow(&mut requests, MORE.as_bytes(), &[7]);
            assert_eq!(
                (outcome.passed, outcome.hosts.is_empty()),
                (MORE.len(), is_opaque),
                "{head:?} {answer:?}"
            );
        }
    }

    #[test]
    fn unrelated_answer_does_not_complete_an_upgrade() {
        // The answer to the first request could be taken for the answer to the second.
        let outcome = all(&format!("{MORE}{UPGRADE}{MORE}"));
        assert_eq!((outcome.hosts.len(), outcome.waiting), (3, false));
        assert!(all(&format!("{MORE}CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")).broken.is_some());
        let mut requests = Requests::new();
        requests.heard(b"HTTP/1.1 200 too early").unwrap();
        assert!(!follow(&mut requests, UPGRADE.as_bytes(), &[100]).waiting);
        // HTTP/2 names hosts that would not be read.
        let mut requests = Requests::new();
        follow(&mut requests, UPGRADE.replace("websocket", "H2C").as_bytes(), &[100]);
        assert!(requests.heard(b"HTTP/1.1 101 Switching\r\n").is_err());
    }

    fn request() -> impl Strategy<Value = Vec<u8>> {
        let body = prop_oneof![
            Just(String::new()),
            "[a-z\r\n]{0,40}".prop_map(|text| format!("Content-Length: {}\r\n\r\n{text}", text.len())),
            "[a-z\r\n]{1,40}".prop_map(|text| {
                format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\nX: y\r\n\r\n", text.len())
            }),
            ".{0,40}",
        ];
        let host = "[a-c]\\.test";
        (prop::sample::select(vec!["GET", "POST", "PUT"]), host, body).prop_map(|(method, host, body)| {
            let end = if body.contains("\r\n\r\n") { "" } else { "\r\n" };
            format!("{method} / HTTP/1.1\r\nHost: {host}\r\n{body}{end}").into_bytes()
        })
    }

    proptest! {
        #[test]
        fn request_parsing_ignores_piece_boundaries(
            requests in prop::collection::vec(request(), 1..5),
            sizes in prop::collection::vec(1_usize..60, 1..8),
        ) {
            let bytes = requests.concat();
            let whole = follow(&mut Requests::new(), &bytes, &[usize::MAX]);
            prop_assert_eq!(&follow(&mut Requests::new(), &bytes, &sizes), &whole);
            prop_assert_eq!(&follow(&mut Requests::new(), &bytes, &[1]), &whole);
        }
    }
}
