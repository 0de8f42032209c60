//! The quarantine as a user sees it: items are listed, recovered or discarded.

mod discard;
mod error;
mod list;
mod recover;

pub use error::QuarantineError;
pub use list::{QuarantineItem, QuarantineKind};
pub use recover::Recovered;
