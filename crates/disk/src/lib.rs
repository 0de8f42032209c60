//! The disks of workspaces, with their snapshots and forks.
//!
//! [`Storage`] lists what a backend can do. [`Qcow2Storage`] keeps a volume as a chain of qcow2 files on an image that
//! never changes:
//!
//! ```text
//! Storage ── engine (which steps, in which order) ──▶ Layers (one step)
//!               │                                       └─ Qcow2Storage
//!            volume, graph (which layers exist, which are needed)
//! ```
//!
//! [`qcow2_header`] reads and writes the first clusters of a file itself, because starting `qemu-img` takes longer
//! than everything else a restore does on the host.

mod copies;
mod engine;
mod error;
mod graph;
mod layer_name;
mod layers;
mod qcow2;
mod qcow2_commit;
pub mod qcow2_header;
mod qcow2_lock;
mod qcow2_map;
mod qcow2_refcounts;
mod storage;
mod volume;

pub use error::DiskError;
pub use graph::LayerInfo;
pub use layer_name::{DISK_FILE, LayerName};
pub use layers::{Layers, TreeBytes};
pub use qcow2::Qcow2Storage;
pub use storage::{Backing, Keyframe, KeyframeDue, Merge, Pivot, Storage};
pub use volume::VOLUME_FILE;
