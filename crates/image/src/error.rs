//! Errors of image operations.

use std::path::PathBuf;

use agentiso_sys::files::FileError;
use thiserror::Error;

use crate::apt::AptError;
use crate::bootstrap::BootstrapError;
use crate::ext4::Ext4Error;
use crate::manifest::ManifestError;
use crate::publish::PublishError;
use crate::stage::StageError;

#[derive(Debug, Error)]
pub enum ImageError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Apt(#[from] AptError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Ext4(#[from] Ext4Error),
    #[error("there is no image {name:?}")]
    NotFound { name: String },
    #[error("the image {name:?} exists already; remove it first, or choose another name")]
    Exists { name: String },
    #[error("the image {name:?} is in use by {users}")]
    InUse { name: String, users: String },
    #[error("there is no recipe {name:?}; choose debian-dev, debian-minimal or debian-system")]
    UnknownRecipe { name: String },
    #[error("{path} is neither a tar archive nor a directory")]
    NotImportable { path: PathBuf },
    #[error("{path} does not look like a root filesystem: it has no /bin/sh")]
    NoShell { path: PathBuf },
}
