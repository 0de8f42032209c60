//! Exports a snapshot of a workspace into one file, and imports it on another host of the same kind.
//!
//! The file is a tar archive, compressed with zstd, that any tool can list and unpack:
//!
//! ```text
//! manifest.json          the list of members and their sizes
//! disk.qcow2             the snapshot's whole disk, without a backing file
//! memory/ram             only of a snapshot with memory: its RAM,
//! memory/device-state      the state of its devices,
//! memory/manifest.json     and the QEMU and host it was taken with
//! hashes.json            SHA-256 of everything before it
//! ```
//!
//! The hashes come last because they are known only after everything was read once. A truncated file has no hashes. An
//! import uses nothing of a file before the hashes were compared and the disk was checked, because anybody may have
//! made the file.
//!
//! [`manifest`] defines the format and its limits. [`pack`] and [`unpack`] write and read the archive. [`disk`] makes
//! a standalone disk and checks a foreign one. [`export`](mod@export) and [`import`](mod@import) combine these.

mod disk;
mod error;
mod export;
mod import;
mod import_dir;
mod manifest;
mod meter;
mod pack;
mod sparse;
mod target;
mod unpack;

pub use error::{CarryError, Flaw};
pub use export::{Source, export};
pub use import::{Import, import, look};
pub use manifest::{FORMAT, Manifest, Member, MemberSize};
