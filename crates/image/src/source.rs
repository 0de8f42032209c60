//! Plain values that say where things come from and where they go. The configuration file is read elsewhere.

use std::path::PathBuf;

/// Where finished entries live. Several daemons may share these directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    pub images: PathBuf,
    pub kernels: PathBuf,
    pub initramfs: PathBuf,
}

/// The package archives to build from. Empty means: those of the host's own apt configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageSource {
    /// Base URI of an archive to use instead of the host's.
    pub mirror: Option<String>,
    /// A release to use instead of the host's.
    pub suite: Option<String>,
    /// The keyring that signs `mirror`, if it is not among the keys the host trusts.
    pub keyring: Option<PathBuf>,
}

/// Where the kernel comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// The newest cloud kernel of the archives.
    Packages(PackageSource),
    /// A kernel image of the user's, with the directory that holds its modules (searched in depth) unless they are
    /// built in.
    Files { vmlinuz: PathBuf, modules: Option<PathBuf> },
}
