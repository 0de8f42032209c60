//! The first bytes of a connection: however they are cut, they name the same, and what is TLS is never opaque.
//!
//! The first byte of the input says how large the pieces are.

#![no_main]

use agentiso_net::sniff::{Claim, Sniffer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = Sniffer::new().push(bytes);
    let mut sniffer = Sniffer::new();
    let mut pieces = bytes.chunks(1 + usize::from(*size) % 64);
    let cut = pieces.find_map(|piece| sniffer.push(piece));
    assert_eq!(cut, whole);

    let claim = sniffer.finish();
    assert!(whole.is_none_or(|whole| whole == claim), "what was claimed stays");
    let is_tls = matches!(claim, Claim::Sni(_) | Claim::NoSni);
    assert_eq!(is_tls, bytes.first() == Some(&0x16));
    if let Claim::Sni(name) | Claim::Host(name) | Claim::GitHost(name) = claim {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
});
