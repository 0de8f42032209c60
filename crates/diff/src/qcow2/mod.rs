//! Chains of qcow2 files, read without QEMU.
//!
//! ```text
//! Chain ──▶ Layer (disk.qcow2) ──backing──▶ Layer (layer1.qcow2) ──backing──▶ Layer (base image)
//!             L1 ─▶ L2 ─▶ data | zero | not here: ask the layer below; below the last one all is zero
//! ```
//!
//! Version 3 with plain clusters is supported. Features that agentiso never writes (compression, encryption, external
//! data files, subclusters, backing files that are not qcow2) are refused by name. No layer may be written to
//! meanwhile: QEMU keeps tables of its head in memory, so only frozen layers, or those of a stopped VM, can be read.

mod chain;
mod error;
mod fields;
mod header;
mod layer;

pub use chain::{Chain, MAX_DEPTH};
pub use error::{LayerError, Qcow2Error};
pub use fields::{
    EXTENSION_BACKING_FORMAT, Fields, FieldsError, HEADER_LENGTH, MAX_BACKING_NAME, MAX_VIRTUAL_SIZE,
};
pub(crate) use layer::MAX_RANGES;
pub use layer::{Allocated, Layer};
