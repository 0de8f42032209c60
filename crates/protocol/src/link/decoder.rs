//! Decodes frames without buffering payload. After an invalid frame it waits for the next opening and continues.
//!
//! ```text
//!            header ok                    payload used up
//!   Header ------------> Data / Nonce ---------------------> Header
//!      | header violates the format                            ^
//!      v                                                       |
//!    Lost ---- four zero bytes, then a SYNC header ---> Nonce -+
//! ```

use super::encoder::{CLOSE, DATA, HEADER_BYTES, MAX_PAYLOAD, NONCE_BYTES, Nonce, SYNC, SYNC_ACK};

/// An event that the decoder found in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The host opens a connection.
    Sync(Nonce),
    /// The guest has opened it.
    SyncAck(Nonce),
    /// Payload, possibly a part of a frame; never empty.
    Data(&'a [u8]),
    /// The peer ends the connection.
    Close,
    /// The input is not a frame. Everything up to the next opening is skipped.
    Lost(Violation),
}

/// The way in which a header violates the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// There is no frame of this kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// The length does not fit the kind.
    #[error("invalid length {length} for a frame of kind {kind}")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// The length it claims.
        length: u32,
    },
}

/// The decoder of one stream. It keeps its state between two pieces of input.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Header { bytes: [u8; HEADER_BYTES], have: usize },
    Data { left: usize },
    Nonce { kind: NonceKind, bytes: Nonce, have: usize },
    Lost { zeros: u8, matched: u8 },
}

#[derive(Clone, Copy, Debug)]
enum NonceKind {
    Sync,
    SyncAck,
}

/// Zero bytes that must precede a SYNC so that a decoder in the state `Lost` accepts it.
const LEADING_ZEROS: u8 = HEADER_BYTES as u8;

impl State {
    const fn start() -> Self {
        Self::Header { bytes: [0; HEADER_BYTES], have: 0 }
    }

    const fn nonce(kind: NonceKind) -> Self {
        Self::Nonce { kind, bytes: [0; NONCE_BYTES], have: 0 }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder that expects a header.
    pub const fn new() -> Self {
        Self { state: State::start() }
    }

    /// Consumes input up to and including the next event and shortens `input` accordingly. `None`: more input is
    /// needed.
    ///
    /// At most `max_data` payload bytes are taken at once; with 0, decoding stops before payload.
    pub fn decode<'a>(&mut self, input: &mut &'a [u8], max_data: usize) -> Option<Event<'a>> {
        loop {
            match &mut self.state {
                State::Header { bytes, have } => {
                    if *have == 0 {
                        let padding = input.iter().take_while(|byte| **byte == 0).count();
                        *input = &input[padding..];
                    }
                    fill(bytes, have, input);
                    if *have < HEADER_BYTES {
                        return None;
                    }
                    let (state, event) = read_header(*bytes);
                    self.state = state;
                    if event.is_some() {
                        return event;
                    }
                }
                State::Data { left } => {
                    let take = (*left).min(input.len()).min(max_data);
                    if take == 0 {
                        return None;
                    }
                    let (data, rest) = input.split_at(take);
                    *input = rest;
                    *left -= take;
                    if *left == 0 {
                        self.state = State::start();
                    }
                    return Some(Event::Data(data));
                }
                State::Nonce { kind, bytes, have } => {
                    fill(bytes, have, input);
                    if *have < NONCE_BYTES {
                        return None;
                    }
                    let event = match kind {
                        NonceKind::Sync => Event::Sync(*bytes),
                        NonceKind::SyncAck => Event::SyncAck(*bytes),
                    };
                    self.state = State::start();
                    return Some(event);
                }
                State::Lost { zeros, matched } => {
                    let (byte, rest) = input.split_first()?;
                    *input = rest;
                    if advance_search(zeros, matched, *byte) {
                        self.state = State::nonce(NonceKind::Sync);
                    }
                }
            }
        }
    }
}

/// Moves bytes from `input` into the unfilled part of `target`.
fn fill(target: &mut [u8], have: &mut usize, input: &mut &[u8]) {
    let take = (target.len() - *have).min(input.len());
    let (bytes, rest) = input.split_at(take);
    target[*have..*have + take].copy_from_slice(bytes);
    *have += take;
    *input = rest;
}

fn read_header(bytes: [u8; HEADER_BYTES]) -> (State, Option<Event<'static>>) {
    let [kind, a, b, c] = bytes;
    let length = u32::from_be_bytes([0, a, b, c]);
    let violation = match (kind, length as usize) {
        (SYNC, NONCE_BYTES) => return (State::nonce(NonceKind::Sync), None),
        (SYNC_ACK, NONCE_BYTES) => return (State::nonce(NonceKind::SyncAck), None),
        (DATA, 0) => return (State::start(), None),
        (DATA, left) if left <= MAX_PAYLOAD => return (State::Data { left }, None),
        (CLOSE, 0) => return (State::start(), Some(Event::Close)),
        (SYNC | SYNC_ACK | DATA | CLOSE, _) => Violation::Length { kind, length },
        (_, _) => Violation::Kind(kind),
    };
    (State::Lost { zeros: 0, matched: 0 }, Some(Event::Lost(violation)))
}

/// Advances the search for `00 00 00 00 | 01 00 00 10` by one byte; true when it is complete.
fn advance_search(zeros: &mut u8, matched: &mut u8, byte: u8) -> bool {
    const LENGTH: u8 = NONCE_BYTES as u8;
    match (*matched, byte) {
        (0, 0) => *zeros = (*zeros + 1).min(LEADING_ZEROS),
        (0, SYNC) if *zeros >= LEADING_ZEROS => (*zeros, *matched) = (0, 1),
        (1 | 2, 0) => *matched += 1,
        (3, LENGTH) => return true,
        // `01 00 00 00`: its three zeros may be the first ones of a later opening.
        (3, 0) => (*zeros, *matched) = (3, 0),
        (_, _) => (*zeros, *matched) = (0, 0),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Decoder, Event, Violation};
    use crate::link::{MAX_PAYLOAD, data_header, opening};

    fn events<'a>(decoder: &mut Decoder, mut input: &'a [u8]) -> Vec<Event<'a>> {
        std::iter::from_fn(|| decoder.decode(&mut input, usize::MAX)).collect()
    }

    #[test]
    fn frame_length_beyond_limit_is_a_violation() {
        let length = MAX_PAYLOAD as u32 + 1;
        let [_, a, b, c] = length.to_be_bytes();
        let bytes = [3, a, b, c, 9, 9];
        assert_eq!(events(&mut Decoder::new(), &bytes), [Event::Lost(Violation::Length { kind: 3, length })]);
    }

    #[test]
    fn unknown_frame_kind_is_reported_once() {
        assert_eq!(events(&mut Decoder::new(), &[99; 64]), [Event::Lost(Violation::Kind(99))]);
    }

    #[test]
    fn lost_decoder_ignores_sync_without_leading_zeros() {
        let nonce = [7; 16];
        let mut decoder = Decoder::new();
        events(&mut decoder, &[99; 4]);
        let bytes = opening(&nonce);
        assert_eq!(events(&mut decoder, &bytes[MAX_PAYLOAD + 4..]), []);
        assert_eq!(events(&mut decoder, &bytes), [Event::Sync(nonce)]);
    }

    #[test]
    fn payload_is_cut_to_max_data() {
        let mut bytes = data_header(5).to_vec();
        bytes.extend_from_slice(b"hello");
        let mut decoder = Decoder::new();
        let mut input = bytes.as_slice();
        assert_eq!(decoder.decode(&mut input, 2), Some(Event::Data(b"he")));
        assert_eq!(decoder.decode(&mut input, 0), None);
        assert_eq!(decoder.decode(&mut input, 9), Some(Event::Data(b"llo")));
    }
}
