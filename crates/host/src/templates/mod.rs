//! Memory templates: a guest's RAM and device state, taken once and restored many times.
//!
//! ```text
//! templates/<key>/manifest.json   what it was made from; written last
//!                 ram             the guest's memory, mapped copy-on-write by every VM
//!                 device-state    QEMU's migration stream without RAM
//!                 disk.qcow2      only image templates: the root disk as it was in that moment
//!                 layer0.qcow2    ... and the image below it
//! templates/<key>.lock            held during a build
//! templates/.building-*           incomplete; removed when the lock is free
//! ```
//!
//! [`key`] defines the inputs that must match, [`differences`] describes those that do not, [`store`] manages the
//! files, [`build`] makes a template, [`keeper`] ensures that each is made once.

mod build;
mod copy;
pub(crate) mod differences;
pub(crate) mod keeper;
pub mod key;
mod location;
mod lock;
pub(crate) mod manifest;
pub(crate) mod store;

pub use build::TemplateError;
pub(crate) use build::stage_fits;
pub use keeper::Templates;
pub use key::{TemplateKey, TemplateKind};
pub use location::templates_dir;
pub use manifest::Manifest;
pub use store::TemplateInfo;
