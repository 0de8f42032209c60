//! The frame format of QEMU's socket: a length of four bytes, most significant first, then an Ethernet frame.
//!
//! This file has no socket: [`Frames`] takes bytes as they come and returns frames.

use thiserror::Error;

/// Size of the length in front of each frame.
pub(crate) const PREFIX: usize = 4;

/// Size of the header of an Ethernet frame: two addresses and a type.
pub(crate) const ETHERNET: usize = 14;

/// The largest frame that QEMU can send: 4 KiB and 64 KiB.
pub(crate) const MAX_FRAME: usize = 69_632;

/// Room for a few of the largest frames, so that one read brings several.
pub(crate) const READ_BUFFER: usize = 256 * 1024;

const _: () = assert!(READ_BUFFER >= 2 * (PREFIX + MAX_FRAME));

/// An impossible length. The start of the next frame is unknown after it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid frame length {length}; it must be {ETHERNET} to {MAX_FRAME} bytes")]
pub(crate) struct BadLength {
    length: usize,
}

/// Bytes that have arrived and were not handled yet.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; READ_BUFFER].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Space for the next bytes. Never empty once [`next`](Self::next) has returned all frames.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        // An incomplete frame moves to the front only if the rest of it might not fit behind it.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.start < PREFIX + MAX_FRAME {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// This many bytes were written to [`space`](Self::space).
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// The next complete frame, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let waiting = &self.buffer[self.start..self.end];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if !(ETHERNET..=MAX_FRAME).contains(&length) {
            return Err(BadLength { length });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let begin = self.start + PREFIX;
        self.start = begin + length;
        Ok(Some(&self.buffer[begin..begin + length]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn push(frames: &mut Frames, bytes: &[u8]) -> usize {
        let space = frames.space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        frames.filled(count);
        count
    }

    #[test]
    fn impossible_frame_length_is_an_error() {
        for length in [0_u32, 13, MAX_FRAME as u32 + 1, u32::MAX] {
            let mut frames = Frames::new();
            push(&mut frames, &length.to_be_bytes());
            assert_eq!(frames.next(), Err(BadLength { length: length as usize }));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_stream_cuts(
            sizes in vec(ETHERNET..=MAX_FRAME, 1..12),
            cuts in vec(1_usize..100_000, 1..20),
        ) {
            let sent: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size]).collect();
            let stream: Vec<u8> = sent
                .iter()
                .flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat())
                .collect();
            let (mut frames, mut at, mut received) = (Frames::new(), 0, Vec::new());
            let mut cuts = cuts.iter().cycle();
            while at < stream.len() {
                let piece = &stream[at..stream.len().min(at + cuts.next().unwrap())];
                let taken = push(&mut frames, piece);
                prop_assert!(taken > 0);
                at += taken;
                while let Some(frame) = frames.next().unwrap() {
                    received.push(frame.to_vec());
                }
            }
            prop_assert_eq!(received, sent);
        }
    }
}
