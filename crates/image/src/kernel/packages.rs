//! Fetches a kernel from Debian packages: the newest cloud flavour that the archives offer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::command::{CommandError, Tool};

use crate::apt::{Backports, PrivateApt, compare};
use crate::manifest::Package;
use crate::progress::{Phase, Progress, Reporter, enter};
use crate::source::PackageSource;

use super::ensure::KernelError;

const PREFIX: &str = "linux-image-";
/// The cloud flavour has virtio consoles and ext4 built in and is a third of the size of the general one.
const SUFFIX: &str = "-cloud-amd64";
const UNPACK_LIMIT: Duration = Duration::from_secs(300);

/// An unpacked kernel package.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) vmlinuz: PathBuf,
    pub(crate) modules: PathBuf,
    pub(crate) release: String,
    pub(crate) package: Package,
    pub(crate) sources: Vec<String>,
}

/// Downloads and unpacks the newest kernel in `work`.
pub(crate) async fn fetch(
    work: &Path,
    source: &PackageSource,
    report: Reporter<'_>,
) -> Result<Unpacked, KernelError> {
    enter(report, Phase::Indexes);
    let apt = PrivateApt::prepare(work, source, Backports::Use).await?;
    let names = apt.names(&format!("^{PREFIX}[0-9].*{SUFFIX}$")).await?;
    let release = newest(&names).ok_or_else(|| KernelError::NoPackage { suite: apt.suite.clone() })?;
    let name = format!("{PREFIX}{release}");
    report(Progress { phase: Phase::Kernel, percent: None, detail: Some(name.clone()) });
    let deb = apt.download(&name, &|_| ()).await?;
    let tree = work.join("tree");
    Tool::new("dpkg-deb", "dpkg", UNPACK_LIMIT)
        .args(["-x".as_ref(), deb.as_os_str(), tree.as_os_str()])
        .run()
        .await?;
    let vmlinuz = tree.join("boot").join(format!("vmlinuz-{release}"));
    // Since the merge of /usr the same package may have its modules in either directory.
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|base| tree.join(base).join(&release))
        .find(|path| path.is_dir())
        .ok_or_else(|| KernelError::Incomplete { package: name.clone(), what: "modules" })?;
    if !vmlinuz.is_file() {
        return Err(KernelError::Incomplete { package: name, what: "a kernel image" });
    }
    let package = Package { version: version_of(&deb).await?, name, architecture: "amd64".to_owned() };
    Ok(Unpacked { vmlinuz, modules, release, package, sources: apt.public_sources() })
}

async fn version_of(deb: &Path) -> Result<String, CommandError> {
    let output = Tool::new("dpkg-deb", "dpkg", UNPACK_LIMIT)
        .args(["-f".as_ref(), deb.as_os_str(), "Version".as_ref()])
        .run()
        .await?;
    Ok(output.stdout.trim().to_owned())
}

/// The release with the highest version among package names.
fn newest(names: &[String]) -> Option<String> {
    names
        .iter()
        .filter_map(|name| name.strip_prefix(PREFIX))
        .filter(|release| {
            // Meta packages such as `linux-image-6.12-cloud-amd64` contain no kernel: a release has three numbers.
            release.strip_suffix(SUFFIX).is_some_and(|version| version.split('.').count() > 2)
        })
        .max_by(|a, b| compare(a, b))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_kernel_is_taken_except_meta_packages() {
        let names = [
            "linux-image-6.1.0-54-cloud-amd64",
            "linux-image-6.12.95+deb12-cloud-amd64",
            "linux-image-6.12.115+deb12-cloud-amd64",
            "linux-image-6.13-cloud-amd64",
            "linux-image-6.12.115+deb12-cloud-amd64-unsigned",
        ]
        .map(str::to_owned);
        assert_eq!(newest(&names).as_deref(), Some("6.12.115+deb12-cloud-amd64"));
        assert_eq!(newest(&[]), None);
    }
}
