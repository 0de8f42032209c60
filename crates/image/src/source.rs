//! Plain values for the sources and destinations of builds. The configuration file is read elsewhere.

use std::path::PathBuf;

/// The directories of finished entries. Several daemons may share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    pub images: PathBuf,
    pub kernels: PathBuf,
    pub initramfs: PathBuf,
}

/// The package archives to build from. If empty, the archives of the host's own apt configuration are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageSource {
    /// Base URI of an archive to use instead of the host's.
    pub mirror: Option<String>,
    /// A release to use instead of the host's.
    pub suite: Option<String>,
    /// The keyring that signs `mirror`, if it is not among the keys the host trusts.
    pub keyring: Option<PathBuf>,
}

/// The source of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// The newest cloud kernel of the archives.
    Packages(PackageSource),
    /// A kernel image of the user, with the directory that holds its modules (searched recursively) unless they are
    /// built in.
    Files { vmlinuz: PathBuf, modules: Option<PathBuf> },
}
