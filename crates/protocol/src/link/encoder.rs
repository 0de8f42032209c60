//! Encodes frames.

/// Largest payload of a frame. Two frames fit into the 32 KiB that the guest's driver accepts in one write.
pub const MAX_PAYLOAD: usize = 16 * 1024;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 4;

/// Bytes of a nonce: enough that no two connections share one.
pub const NONCE_BYTES: usize = 16;

/// The random name of one connection.
pub type Nonce = [u8; NONCE_BYTES];

pub(super) const SYNC: u8 = 1;
pub(super) const SYNC_ACK: u8 = 2;
pub(super) const DATA: u8 = 3;
pub(super) const CLOSE: u8 = 4;

// Every length fits into its three bytes of the header.
const _: () = assert!(MAX_PAYLOAD < 1 << 24);

const fn header(kind: u8, length: usize) -> [u8; HEADER_BYTES] {
    let [.., a, b, c] = length.to_be_bytes();
    [kind, a, b, c]
}

/// The header of a data frame.
///
/// # Panics
///
/// If `length` exceeds [`MAX_PAYLOAD`]; callers cut their payload to it.
pub const fn data_header(length: usize) -> [u8; HEADER_BYTES] {
    assert!(length <= MAX_PAYLOAD);
    header(DATA, length)
}

/// The frame that ends a connection in an orderly way.
pub const fn close() -> [u8; HEADER_BYTES] {
    header(CLOSE, 0)
}

/// The bytes that an agent sends when it starts. An earlier agent may have died in the middle of a frame; the zeros
/// fill that frame, and the CLOSE after them tells the host that its connection has ended.
pub fn farewell() -> Vec<u8> {
    let mut bytes = vec![0; MAX_PAYLOAD + HEADER_BYTES];
    bytes.extend_from_slice(&close());
    bytes
}

/// The guest's answer to a SYNC.
pub fn sync_ack(nonce: &Nonce) -> [u8; HEADER_BYTES + NONCE_BYTES] {
    nonce_frame(SYNC_ACK, nonce)
}

/// The bytes that the host sends to open a connection, whatever state the guest is in.
pub fn opening(nonce: &Nonce) -> Vec<u8> {
    let mut bytes = vec![0; MAX_PAYLOAD + HEADER_BYTES];
    bytes.extend_from_slice(&nonce_frame(SYNC, nonce));
    bytes
}

fn nonce_frame(kind: u8, nonce: &Nonce) -> [u8; HEADER_BYTES + NONCE_BYTES] {
    let mut frame = [0; HEADER_BYTES + NONCE_BYTES];
    frame[..HEADER_BYTES].copy_from_slice(&header(kind, NONCE_BYTES));
    frame[HEADER_BYTES..].copy_from_slice(nonce);
    frame
}
