//! A root filesystem that is being laid out in a directory of the host, without root's privileges.
//!
//! Input is not trusted: nothing is ever written outside the directory, whatever paths, links and device nodes an
//! archive contains. Owners, exact modes and extended attributes are not applied here but recorded, and written into
//! the ext4 image afterwards; so an unprivileged user gets the same image as root, and no set-user-id file ever exists
//! on the host.

mod directory;
mod survey;
mod tar;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use directory::copy_directory;
pub(crate) use survey::{Correction, Survey};
pub use tar::unpack_tar;
pub(crate) use tar::{TarSummary, unpack};
#[cfg(test)]
pub(crate) use tree::Attributes;
pub(crate) use tree::Stage;
pub use tree::StageError;
