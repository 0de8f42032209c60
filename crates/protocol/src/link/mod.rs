//! The link: frames below HTTP/2 on a byte stream that outlives connections.
//!
//! A virtio-serial port is one stream for the life of the machine. A memory snapshot freezes it in the middle of a
//! byte sequence, and whoever connects next knows nothing of what was sent before. So the host opens every
//! connection by overrunning whatever the guest was in the middle of:
//!
//! ```text
//!   host                                      guest
//!   MAX_PAYLOAD + 4 zero bytes  ------------> swallowed as payload or as padding
//!   SYNC(nonce)                 ------------> drops the connection it had
//!   discards all up to          <------------ SYNC_ACK(nonce)
//!   DATA ...                    <-----------> DATA ...
//!   CLOSE                       ------------> waits for the next SYNC
//! ```
//!
//! An agent that starts says CLOSE behind as many zero bytes: the port does not tell the host that the agent which had
//! the connection died.
//!
//! A frame is `[kind: u8][length: u24 big endian][payload]`; a zero byte where a kind is expected is padding.

mod decoder;
mod encoder;
mod search;

pub use decoder::{Decoder, Event, Violation};
pub use encoder::{MAX_PAYLOAD, NONCE_BYTES, Nonce, close, data_header, farewell, opening, sync_ack};
pub use search::AckSearch;

pub(crate) use encoder::HEADER_BYTES;

#[cfg(test)]
mod properties;
