//! Chains of qcow2 files, read without QEMU.
//!
//! ```text
//! Chain ──▶ Layer (disk.qcow2) ──backing──▶ Layer (layer1.qcow2) ──backing──▶ Layer (base image)
//!             L1 ─▶ L2 ─▶ data | zero | not here: ask the layer below; below the last one all is zero
//! ```
//!
//! Version 3 with plain clusters is read. What we never write (compression, encryption, external data files,
//! subclusters, backing files that are not qcow2) is refused by name. No layer may be written to meanwhile: QEMU keeps
//! tables of its active layer in memory, so only layers below it, or of a stopped machine, can be read.

mod chain;
mod error;
mod header;
mod layer;

pub use chain::{Chain, MAX_DEPTH};
pub use error::{LayerError, Qcow2Error};
pub(crate) use layer::MAX_RANGES;
pub use layer::{Allocated, Layer};
