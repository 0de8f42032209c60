//! What the daemon found and does not use, as a person sees it: listed, brought back, or discarded.

mod discard;
mod error;
mod list;
mod recover;

pub use error::QuarantineError;
pub use list::{QuarantineItem, QuarantineKind};
pub use recover::Recovered;
