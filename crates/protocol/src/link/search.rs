//! Finds the guest's answer to an opening in a stream that may begin with the rest of an older connection.

use super::encoder::{HEADER_BYTES, NONCE_BYTES, Nonce, sync_ack};

const PATTERN_BYTES: usize = HEADER_BYTES + NONCE_BYTES;

/// Searches for the exact bytes of one SYNC_ACK; the nonce in it is random, so nothing else looks like it.
#[derive(Clone, Debug)]
pub struct AckSearch {
    pattern: [u8; PATTERN_BYTES],
    /// The end of what was seen, as long as it may be the beginning of the pattern.
    tail: Vec<u8>,
}

impl AckSearch {
    /// A search for the answer that names `nonce`.
    pub fn new(nonce: &Nonce) -> Self {
        Self { pattern: sync_ack(nonce), tail: Vec::new() }
    }

    /// Takes the next piece of the stream. When the answer ends in it, returns the index of the byte after it.
    pub fn feed(&mut self, input: &[u8]) -> Option<usize> {
        let before = self.tail.len();
        self.tail.extend_from_slice(input);
        if let Some(at) = self.tail.windows(PATTERN_BYTES).position(|window| window == self.pattern) {
            // The pattern cannot lie wholly in what was seen before, so its end is in `input`.
            return Some(at + PATTERN_BYTES - before);
        }
        let keep = self.tail.len().min(PATTERN_BYTES - 1);
        self.tail.drain(..self.tail.len() - keep);
        None
    }
}
