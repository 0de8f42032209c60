//! Frames of an inbox's file: two lengths, two checksums, a head and a body.
//!
//! The lengths have a checksum of their own, so that a truncated frame (its lengths are right and the file ends too
//! early) can be told from a damaged one. A body may hold any bytes, even some that look like frames, so nothing after
//! damage is searched for further frames.

/// The first bytes of the file.
pub(super) const MAGIC: &[u8] = b"agentiso mail 1\n";

/// Bytes of two lengths and two checksums.
const PREFIX: usize = 16;

/// Maximum bytes of a head, which has names, ids and numbers.
const MAX_HEAD: usize = 64 * 1024;

/// Maximum bytes of a body, which is a message's text, or a command with its variables.
const MAX_BODY: usize = 1024 * 1024;
const _: () = assert!(MAX_BODY > 2 * agentiso_core::team::MAX_CONTENT);

/// Encodes a frame. `None`: too long for one.
pub(super) fn encode(head: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    if head.len() > MAX_HEAD || body.len() > MAX_BODY {
        return None;
    }
    let lengths = lengths(head.len(), body.len())?;
    let mut frame = Vec::with_capacity(PREFIX + head.len() + body.len());
    frame.extend_from_slice(&lengths);
    frame.extend_from_slice(&crc32fast::hash(&lengths).to_le_bytes());
    frame.extend_from_slice(&payload_hash(head, body).to_le_bytes());
    frame.extend_from_slice(head);
    frame.extend_from_slice(body);
    Some(frame)
}

fn lengths(head: usize, body: usize) -> Option<[u8; 8]> {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&u32::try_from(head).ok()?.to_le_bytes());
    both[4..].copy_from_slice(&u32::try_from(body).ok()?.to_le_bytes());
    Some(both)
}

fn payload_hash(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// The first frame of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    End,
    Frame {
        head: &'a [u8],
        body: &'a [u8],
        len: usize,
    },
    /// The file ends within a frame.
    Torn,
    Damaged,
}

pub(super) fn next(bytes: &[u8]) -> Next<'_> {
    if bytes.is_empty() {
        return Next::End;
    }
    let Some((prefix, rest)) = bytes.split_at_checked(PREFIX) else { return Next::Torn };
    let number = |at: usize| -> u32 {
        let mut four = [0; 4];
        four.copy_from_slice(&prefix[at..at + 4]);
        u32::from_le_bytes(four)
    };
    if crc32fast::hash(&prefix[..8]) != number(8) {
        return Next::Damaged;
    }
    let (head, body) = (number(0) as usize, number(4) as usize);
    if head > MAX_HEAD || body > MAX_BODY {
        return Next::Damaged;
    }
    let Some(payload) = rest.get(..head + body) else { return Next::Torn };
    let (head, body) = payload.split_at(head);
    if payload_hash(head, body) != number(12) {
        return Next::Damaged;
    }
    Next::Frame { head, body, len: PREFIX + payload.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_read_back(head: Vec<u8>, body: Vec<u8>, after: Vec<u8>) {
            let mut bytes = encode(&head, &body).unwrap();
            let len = bytes.len();
            bytes.extend_from_slice(&after);
            prop_assert_eq!(next(&bytes), Next::Frame { head: &head, body: &body, len });
        }

        #[test]
        fn cut_frames_are_torn(head: Vec<u8>, body: Vec<u8>, cut: prop::sample::Index) {
            let bytes = encode(&head, &body).unwrap();
            let cut = cut.index(bytes.len());
            prop_assert_eq!(next(&bytes[..cut]), if cut == 0 { Next::End } else { Next::Torn });
        }

        #[test]
        fn changed_bits_are_noticed(head: Vec<u8>, body: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = encode(&head, &body).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(next(&bytes), Next::Damaged);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            next(&bytes);
        }
    }

    #[test]
    fn overlong_parts_are_refused() {
        assert!(encode(&vec![0; MAX_HEAD + 1], b"").is_none());
        assert!(encode(b"", &vec![0; MAX_BODY + 1]).is_none());
        assert!(encode(&vec![0; MAX_HEAD], &vec![0; MAX_BODY]).is_some());
    }
}
