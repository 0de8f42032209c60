//! Memory templates: a guest's RAM and device state, taken once and restored many times.
//!
//! ```text
//! templates/<key>/manifest.json   what it was made from; written last
//!                 ram             the guest's memory, mapped copy-on-write by every machine
//!                 device-state    QEMU's migration stream without RAM
//!                 disk.qcow2      only image templates: the root disk as it was in that moment
//!                 layer0.qcow2    ... and the image below it
//! templates/<key>.lock            held while somebody builds
//! templates/.building-*           half-made; removed when nobody holds the lock
//! ```
//!
//! [`key`] says what must match, [`differences`] what does not, [`store`] what is on disk, [`build`] makes one, [`keeper`] sees to it that each
//! is made once.

mod build;
mod copy;
pub(crate) mod differences;
pub(crate) mod keeper;
pub mod key;
mod lock;
pub(crate) mod manifest;
mod place;
pub(crate) mod store;

pub use build::TemplateError;
pub(crate) use build::stage_fits;
pub use keeper::Templates;
pub use key::{TemplateKey, TemplateKind};
pub use manifest::Manifest;
pub use place::templates_dir;
pub use store::TemplateInfo;
