//! Keeps the first and the last bytes of a stream of any length.

use std::collections::VecDeque;

use bytes::Bytes;

/// The kept bytes of one stream.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total: u64,
}

impl Capture {
    /// Keeps up to `head_limit` bytes of the beginning and up to `tail_limit` bytes of the end beyond them.
    pub fn new(head_limit: usize, tail_limit: usize) -> Self {
        Self { head: Vec::new(), head_limit, tail: VecDeque::new(), tail_limit, total: 0 }
    }

    /// Adds the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_within(bytes, usize::MAX);
    }

    /// Adds the next piece, but keeps at most `room` bytes more than before.
    pub fn push_within(&mut self, bytes: &[u8], room: usize) {
        // Once bytes after the head were dropped, the head cannot grow any more.
        let head_room = if self.total == self.head.len() as u64 {
            (self.head_limit - self.head.len()).min(room)
        } else {
            0
        };
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(head_room));
        self.head.extend_from_slice(first);
        let limit = self.tail_limit.min(self.tail.len().saturating_add(room - first.len()));
        let rest = &rest[rest.len().saturating_sub(limit)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// The number of kept bytes.
    pub fn kept(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// The length of the whole stream.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Drops all kept bytes; the length of the stream stays known.
    pub fn forget(&mut self) {
        (self.head, self.tail) = (Vec::new(), VecDeque::new());
    }

    /// The first bytes of the stream after `offset`, the last bytes beyond them, and the length of the stream after
    /// `offset`. If the byte at the offset was not kept, there are no first bytes, and more last bytes instead.
    pub fn after(&self, offset: u64, head: usize, tail: usize) -> (Bytes, Bytes, u64) {
        let tail_begins = self.total - self.tail.len() as u64;
        let complete = tail_begins == self.head.len() as u64;
        let in_head = usize::try_from(offset).unwrap_or(usize::MAX).min(self.head.len());
        let in_tail = usize::try_from(offset.saturating_sub(tail_begins)).unwrap_or(usize::MAX);
        let mut left: VecDeque<u8> = self.tail.range(in_tail.min(self.tail.len())..).copied().collect();
        let mut first = self.head[in_head..].to_vec();
        if complete || offset >= tail_begins {
            let mut all = VecDeque::from(first);
            all.append(&mut left);
            left = all.split_off(all.len().min(head));
            first = Vec::from(all);
        }
        first.truncate(head);
        let share = if first.is_empty() { head.saturating_add(tail) } else { tail };
        left.drain(..left.len().saturating_sub(share));
        (first.into(), Vec::from(left).into(), self.total.saturating_sub(offset))
    }

    /// Head, tail, and the length of the whole stream.
    pub fn finish(self) -> (Bytes, Bytes, u64) {
        (self.head.into(), Vec::from(self.tail).into(), self.total)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::Capture;

    proptest! {
        #[test]
        fn capture_keeps_head_and_tail(
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

        #[test]
        fn capture_after_offset_is_bounded_and_true(
            pieces in vec(vec(any::<u8>(), 0..50), 0..20), limits in (0..100_usize, 0..100_usize),
            wanted in (0..60_usize, 0..60_usize), offset in 0..600_u64, room in 0..60_usize,
        ) {
            let mut capture = Capture::new(limits.0, limits.1);
            for (number, piece) in pieces.iter().enumerate() {
                let before = capture.kept();
                let room = if number % 2 == 0 { usize::MAX } else { room };
                capture.push_within(piece, room);
                prop_assert!(capture.kept() <= before.saturating_add(room));
            }
            prop_assert!(capture.kept() <= limits.0 + limits.1);
            let whole = pieces.concat();
            let rest = &whole[whole.len().min(offset as usize)..];
            let (head, tail, total) = capture.after(offset, wanted.0, wanted.1);
            prop_assert_eq!(total, rest.len() as u64);
            prop_assert!(rest.starts_with(&head) && rest.ends_with(&tail));
            prop_assert!(head.len() + tail.len() <= rest.len());
            prop_assert!(head.len() <= wanted.0 && head.len() + tail.len() <= wanted.0 + wanted.1);
        }
    }

    #[test]
    fn short_output_is_complete_from_any_offset() {
        let mut capture = Capture::new(3, 3);
        capture.push(b"abcdef");
        let after = |offset| {
            let (head, tail, total) = capture.after(offset, 100, 0);
            assert!(tail.is_empty());
            (head.to_vec(), total)
        };
        assert_eq!(after(0), (b"abcdef".to_vec(), 6));
        assert_eq!(after(2), (b"cdef".to_vec(), 4));
        assert_eq!(after(5), (b"f".to_vec(), 1));
        assert_eq!(after(6), (Vec::new(), 0));
        assert_eq!(after(u64::MAX), (Vec::new(), 0));
    }

    #[test]
    fn capture_has_no_head_after_lost_bytes() {
        let mut capture = Capture::new(2, 2);
        capture.push(b"abcdef");
        let (head, tail, total) = capture.after(3, 1, 1);
        assert_eq!((&head[..], &tail[..], total), (&b""[..], &b"ef"[..], 3));
        let (head, tail, total) = capture.after(1, 5, 1);
        assert_eq!((&head[..], &tail[..], total), (&b"b"[..], &b"f"[..], 5));
        capture.forget();
        assert_eq!((capture.kept(), capture.total()), (0, 6));
    }
}
