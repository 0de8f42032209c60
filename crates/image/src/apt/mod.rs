//! Packages from the archives that the host's own apt configuration names, read without root and without touching
//! the host's package state.

mod private;
mod sources;
mod version;

pub use private::AptError;
pub(crate) use private::{Backports, PrivateApt};
pub(crate) use sources::redact;
pub(crate) use version::compare;
