//! The link: frames below HTTP/2 on a byte stream that outlives connections.
//!
//! A virtio-serial port is one stream for the whole life of the VM. A memory snapshot freezes it in the middle of a
//! byte sequence, and the next host to connect does not know what was sent before. So the host opens every connection
//! with enough zero bytes to complete any frame that the guest may be in the middle of:
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
//! An agent that starts sends CLOSE after as many zero bytes, because the port does not tell the host that the agent
//! with the last connection died.
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
