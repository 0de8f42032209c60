//! The first bytes of a connection: in whatever pieces they arrive, the sniffer must find the same host name, and must
//! never treat TLS as opaque. The same applies to the requests of an HTTP connection, which are followed as far as they
//! can be parsed.
//!
//! The first byte of the input is the size of the pieces.

#![no_main]

use agentiso_net::policy::sniff::{Broken, Claim, Requests, Sniffer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = Sniffer::new().push(bytes);
    let mut sniffer = Sniffer::new();
    let mut pieces = bytes.chunks(1 + usize::from(*size) % 64);
    let cut = pieces.find_map(|piece| sniffer.push(piece));
    assert_eq!(cut, whole);

    let size = 1 + usize::from(*size) % 64;
    assert_eq!(follow(bytes, size), follow(bytes, usize::MAX));

    let claim = sniffer.finish();
    assert!(whole.is_none_or(|whole| whole == claim), "what was claimed stays");
    let is_tls = matches!(claim, Claim::Sni(_) | Claim::NoSni | Claim::Encrypted(_));
    // A hello in the format of SSL 2 begins with a length whose highest bit is set.
    let may_be_tls = bytes.first().is_some_and(|first| *first == 0x16 || *first >= 0x80);
    assert!(is_tls == (bytes.first() == Some(&0x16)) || (may_be_tls && claim == Claim::NoSni));
    if let Claim::Sni(name) | Claim::Host(name) | Claim::GitHost(name) = claim {
        assert!(!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
});

/// The hosts that the requests of a connection name, until they cannot be followed any more.
fn follow(bytes: &[u8], size: usize) -> (Vec<Claim>, Option<Broken>) {
    let (mut requests, mut claims, mut held) = (Requests::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let read = requests.body(&held).and_then(|count| match count {
                0 => requests.head(&held),
                count => Ok(Some((count, Claim::Opaque))),
            });
            match read {
                Ok(Some((count, claim))) => {
                    held.drain(..count);
                    claims.extend(Some(claim).filter(|claim| *claim != Claim::Opaque));
                }
                Ok(None) => break,
                Err(broken) => return (claims, Some(broken)),
            }
        }
    }
    (claims, None)
}
