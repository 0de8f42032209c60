//! Arbitrary bytes on the link: the decoder must not panic, and must always recover at an opening.

#![no_main]

use agentiso_protocol::link::{AckSearch, Decoder, Event, opening, sync_ack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new();
    let mut input = data;
    while let Some(event) = decoder.decode(&mut input, 1 + data.len() % 64) {
        if let Event::Data(bytes) = event {
            assert!(!bytes.is_empty());
        }
    }
    let nonce = [0xa5; 16];
    let bytes = opening(&nonce);
    let mut input = bytes.as_slice();
    let mut last = None;
    while let Some(event) = decoder.decode(&mut input, usize::MAX) {
        last = Some(event);
    }
    assert_eq!(last, Some(Event::Sync(nonce)));

    let mut search = AckSearch::new(&nonce);
    if data.windows(20).all(|window| window != sync_ack(&nonce)) {
        assert_eq!(search.feed(data), None);
        let end = search.feed(&sync_ack(&nonce)).expect("the answer is found");
        assert_eq!(end, 20);
    }
});
