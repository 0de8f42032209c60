//! Packages from the archives of the host's own apt configuration, fetched without root and without touching the host's
//! package state.

mod private;
mod sources;
mod version;

pub use private::AptError;
pub(crate) use private::{Backports, PrivateApt};
pub(crate) use sources::redact;
pub(crate) use version::compare;
