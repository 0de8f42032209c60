//! The quarantine as a user sees it: items are listed, recovered or discarded.

mod discard;
mod list;
mod recover;

pub use list::{QuarantineItem, QuarantineKind};
pub use recover::Recovered;
