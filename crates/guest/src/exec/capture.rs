//! Keeps the first and the last bytes of a stream of any length.

use std::collections::VecDeque;

use bytes::Bytes;

/// What has been kept so far.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total: u64,
}

impl Capture {
    /// Keeps up to `head_limit` bytes from the beginning and up to `tail_limit` of the end of what follows.
    pub fn new(head_limit: usize, tail_limit: usize) -> Self {
        Self { head: Vec::new(), head_limit, tail: VecDeque::new(), tail_limit, total: 0 }
    }

    /// Takes the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Head, tail, and the length of the whole.
    pub fn finish(self) -> (Bytes, Bytes, u64) {
        (self.head.into(), Vec::from(self.tail).into(), self.total)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::Capture;

    proptest! {
        #[test]
        fn head_and_tail_are_those_of_the_whole(
            pieces in vec(vec(any::<u8>(), 0..50), 0..20), head in 0..100_usize, tail in 0..100_usize,
        ) {
            let mut capture = Capture::new(head, tail);
            for piece in &pieces {
                capture.push(piece);
            }
            let whole = pieces.concat();
            let (first, rest) = whole.split_at(head.min(whole.len()));
            let (kept_head, kept_tail, total) = capture.finish();
            prop_assert_eq!(&kept_head[..], first);
            prop_assert_eq!(&kept_tail[..], &rest[rest.len().saturating_sub(tail)..]);
            prop_assert_eq!(total, whole.len() as u64);
        }
    }
}
