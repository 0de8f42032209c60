//! A prepared machine in one file, so that another host of the same kind can have it.
//!
//! The file is a tar archive, compressed with zstd, that any tool can list and unpack:
//!
//! ```text
//! manifest.json          what is in it, and of which size
//! disk.qcow2             the snapshot's whole disk; it stands on no other file
//! memory/ram             only of a snapshot with memory: its RAM,
//! memory/device-state      the state of its devices,
//! memory/manifest.json     and what they were taken with
//! hashes.json            SHA-256 of everything before it
//! ```
//!
//! The hashes come last because they are known only when everything was read once; a file that was cut off has none.
//! Nothing of a file is used before they were compared, and before its disk was looked through: whoever made the file
//! may have been anybody.
//!
//! [`manifest`] is the form and what may be in it, [`pack`] and [`unpack`] write and read it, [`disk`] makes a disk
//! stand alone and checks one that does. [`export`](mod@export) and [`import`](mod@import) put these together.

mod disk;
mod error;
mod export;
mod fresh;
mod import;
mod manifest;
mod meter;
mod pack;
mod sparse;
mod target;
mod unpack;

pub use error::{CarryError, Flaw};
pub use export::{About, Exported, Source, export};
pub use import::{Arrival, Import, Imported, import, look};
pub use manifest::{FORMAT, Facts, Manifest, Member, MemberSize};
pub use target::Target;
