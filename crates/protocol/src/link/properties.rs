//! Property tests for any input: nothing panics, framed payload is decoded, and an opening always recovers.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Just;

use super::{AckSearch, Decoder, Event, MAX_PAYLOAD, NONCE_BYTES, close, data_header, opening, sync_ack};

/// Random bytes that resemble frames often enough to reach every state.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        vec(any::<u8>(), 0..40),
        vec(0..5_u8, 0..40),
        (0..=MAX_PAYLOAD).prop_map(|length| data_header(length).to_vec()),
        any::<[u8; NONCE_BYTES]>().prop_map(|nonce| sync_ack(&nonce).to_vec()),
        any::<[u8; NONCE_BYTES]>().prop_map(|nonce| opening(&nonce)[MAX_PAYLOAD..].to_vec()),
        Just(close().to_vec()),
        Just(vec![1, 0, 0, 16]),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn split(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, next) = rest.split_at((*cut).min(rest.len()));
        pieces.push(piece.to_vec());
        rest = next;
    }
    pieces.push(rest.to_vec());
    pieces
}

proptest! {
    #[test]
    fn opening_recovers_from_any_prefix(prefix in noise(), cut in any::<usize>(), nonce in any::<[u8; NONCE_BYTES]>()) {
        let mut decoder = Decoder::new();
        // A truncated prefix leaves the decoder in any state.
        let mut stream = prefix[..cut % (prefix.len() + 1)].to_vec();
        stream.extend(opening(&nonce));
        stream.extend(data_header(3));
        stream.extend(b"abc");
        let mut input = stream.as_slice();
        let mut last = Vec::new();
        while let Some(event) = decoder.decode(&mut input, usize::MAX) {
            last.push(event);
        }
        prop_assert!(input.is_empty());
        let end = last.split_off(last.len().saturating_sub(2));
        prop_assert_eq!(end, [Event::Sync(nonce), Event::Data(b"abc")]);
    }

    #[test]
    fn decoding_is_independent_of_stream_cuts(bytes in noise(), cuts in vec(0..50_usize, 0..40), max in 1..64_usize) {
        let collect = |pieces: &[Vec<u8>], max| {
            let mut decoder = Decoder::new();
            let (mut data, mut other) = (Vec::new(), Vec::new());
            for piece in pieces {
                let mut input = piece.as_slice();
                while let Some(event) = decoder.decode(&mut input, max) {
                    match event {
                        Event::Data(bytes) => data.extend_from_slice(bytes),
                        Event::Sync(_) | Event::SyncAck(_) | Event::Close | Event::Lost(_) => {
                            other.push((data.len(), format!("{event:?}")));
                        }
                    }
                }
            }
            (data, other)
        };
        prop_assert_eq!(collect(&split(&bytes, &cuts), max), collect(&[bytes], usize::MAX));
    }

    #[test]
    fn payload_comes_out_as_it_went_in(payload in vec(any::<u8>(), 0..=MAX_PAYLOAD), padding in 0..9_usize) {
        let mut stream = vec![0; padding];
        stream.extend(data_header(payload.len()));
        stream.extend(&payload);
        stream.extend(close());
        let mut input = stream.as_slice();
        let mut decoder = Decoder::new();
        if !payload.is_empty() {
            prop_assert_eq!(decoder.decode(&mut input, usize::MAX), Some(Event::Data(&payload)));
        }
        prop_assert_eq!(decoder.decode(&mut input, usize::MAX), Some(Event::Close));
    }

    #[test]
    fn sync_ack_is_found_after_any_prefix(prefix in noise(), cuts in vec(0..50_usize, 0..40), nonce in any::<[u8; NONCE_BYTES]>()) {
        let mut stream = prefix.clone();
        stream.extend(sync_ack(&nonce));
        stream.extend(b"rest");
        let mut search = AckSearch::new(&nonce);
        let mut seen = 0;
        let mut found = None;
        for piece in split(&stream, &cuts) {
            if found.is_none() {
                found = search.feed(&piece).map(|end| seen + end);
            }
            seen += piece.len();
        }
        prop_assert_eq!(found, Some(prefix.len() + 4 + NONCE_BYTES));
    }
}
