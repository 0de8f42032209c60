//! Builds frames.

/// Largest payload of a frame. Two frames fit in what the guest's driver takes in one write (32 KiB).
pub const MAX_PAYLOAD: usize = 16 * 1024;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 4;

/// Bytes of a nonce: enough that no two connections ever share one.
pub const NONCE_BYTES: usize = 16;

/// Names one connection.
pub type Nonce = [u8; NONCE_BYTES];

pub(super) const SYNC: u8 = 1;
pub(super) const SYNC_ACK: u8 = 2;
pub(super) const DATA: u8 = 3;
pub(super) const CLOSE: u8 = 4;

// A length always fits in the three bytes that it has.
const _: () = assert!(MAX_PAYLOAD < 1 << 24);

const fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [.., a, b, c] = length.to_be_bytes();
    [kind, a, b, c]
}

/// The header of a data frame.
///
/// # Panics
///
/// When `length` exceeds [`MAX_PAYLOAD`]; callers cut their payload to it.
pub const fn data_header(length: usize) -> [u8; HEADER_BYTES] {
    assert!(length <= MAX_PAYLOAD);
    header(DATA, length)
}

/// The frame that ends a connection in good order.
pub const fn close() -> [u8; HEADER_BYTES] {
    header(CLOSE, 0)
}

/// What a guest sends when it starts on a stream that another one may have left in the middle of a frame: the host
/// is told that the connection it may have is over, whatever it is waiting for.
pub fn farewell() -> Vec<u8> {
    let mut bytes = vec![0; MAX_PAYLOAD + HEADER_BYTES];
    bytes.extend_from_slice(&close());
    bytes
}

/// The guest's answer to a SYNC.
pub fn sync_ack(nonce: &Nonce) -> [u8; HEADER_BYTES + NONCE_BYTES] {
    named(SYNC_ACK, nonce)
}

/// What the host sends to open a connection, whatever state the guest is in.
pub fn opening(nonce: &Nonce) -> Vec<u8> {
    let mut bytes = vec![0; MAX_PAYLOAD + HEADER_BYTES];
    bytes.extend_from_slice(&named(SYNC, nonce));
    bytes
}

fn named(kind: u8, nonce: &Nonce) -> [u8; HEADER_BYTES + NONCE_BYTES] {
    let mut frame = [0; HEADER_BYTES + NONCE_BYTES];
    frame[..HEADER_BYTES].copy_from_slice(&header(kind, NONCE_BYTES));
    frame[HEADER_BYTES..].copy_from_slice(nonce);
    frame
}
