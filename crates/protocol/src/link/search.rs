//! Finds the guest's answer to an opening in a stream that may begin with the rest of an older connection.

use super::encoder::{HEADER_BYTES, NONCE_BYTES, Nonce, sync_ack};

const PATTERN_BYTES: usize = HEADER_BYTES + NONCE_BYTES;

/// Searches for the exact bytes of one SYNC_ACK. Its nonce is random, so no other bytes are equal to it.
#[derive(Clone, Debug)]
pub struct AckSearch {
    pattern: [u8; PATTERN_BYTES],
    /// The last bytes that were seen, which may be the beginning of the pattern.
    tail: Vec<u8>,
}

impl AckSearch {
    /// A search for the answer that names `nonce`.
    pub fn new(nonce: &Nonce) -> Self {
        Self { pattern: sync_ack(nonce), tail: Vec::new() }
    }

    /// Searches the next piece of the stream. If the answer ends in it, returns the index of the byte after the answer.
    pub fn feed(&mut self, input: &[u8]) -> Option<usize> {
        let before = self.tail.len();
        self.tail.extend_from_slice(input);
        if let Some(at) = self.tail.windows(PATTERN_BYTES).position(|window| window == self.pattern) {
            // The tail is shorter than the pattern, so the end of the pattern is in `input`.
            return Some(at + PATTERN_BYTES - before);
        }
        let keep = self.tail.len().min(PATTERN_BYTES - 1);
        self.tail.drain(..self.tail.len() - keep);
        None
    }
}
