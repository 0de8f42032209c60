//! Provides a kernel that is ready to boot: an existing one, or a new one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_sys::command::CommandError;
use agentiso_sys::files::{FileContext, FileError};
use thiserror::Error;

use super::modules::{self, Module, ModuleError, modinfo};
use super::packages;
use crate::apt::{AptError, redact};
use crate::blocking;
use crate::hash::{self, Fingerprint};
use crate::manifest::{self, FileRecord, KernelManifest, ManifestError, Package, SCHEMA_VERSION};
use crate::progress::{Phase, Reporter, enter};
use crate::publish::{PublishError, Slot, require_space};
use crate::source::{Dirs, KernelSource};
use crate::tools;

/// Space for the package, its unpacked tree and the package lists.
const NEEDED_BYTES: u64 = 600 << 20;
const VMLINUZ: &str = "vmlinuz";
const MODULES: &str = "modules";

#[derive(Debug, Error)]
pub enum KernelError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Apt(#[from] AptError),
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error("the archives of Debian {suite} contain no cloud kernel for amd64")]
    NoPackage { suite: String },
    #[error("the package {package} does not contain {what}")]
    Incomplete { package: String, what: &'static str },
    #[error("{path} is not a Linux kernel image for x86")]
    NotAKernel { path: PathBuf },
}

/// A published kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub vmlinuz: PathBuf,
    /// Plain `.ko` files; each follows the modules that it depends on.
    pub modules: Vec<PathBuf>,
    /// The release, as `uname -r` reports it.
    pub version: String,
    /// A key derived from the kernel's contents.
    pub key: String,
}

/// The kernel for `source`. A kernel from packages is fetched once and then kept, so that later calls need no network;
/// `refresh` looks for a newer one.
pub async fn ensure(
    dirs: &Dirs,
    source: &KernelSource,
    refresh: bool,
    report: Reporter<'_>,
) -> Result<Kernel, KernelError> {
    let request = request_digest(source)?;
    if !refresh && let Some(kernel) = find(&dirs.kernels, &request)? {
        return Ok(kernel);
    }
    let slot = Arc::new(Slot::acquire(&dirs.kernels, &format!("request.{}", &request[..16]), report).await?);
    if !refresh && let Some(kernel) = find(&dirs.kernels, &request)? {
        return Ok(kernel);
    }
    let work = slot.working_dir()?;
    let made = make(dirs, source, request, &slot, &work, report).await;
    slot.conclude(made)
}

/// The kernel for `source`, if it exists. Fetches and writes nothing.
pub fn installed(dirs: &Dirs, source: &KernelSource) -> Result<Option<Kernel>, KernelError> {
    find(&dirs.kernels, &request_digest(source)?)
}

async fn make(
    dirs: &Dirs,
    source: &KernelSource,
    request: String,
    slot: &Arc<Slot>,
    work: &Path,
    report: Reporter<'_>,
) -> Result<Kernel, KernelError> {
    let mut input = match source {
        KernelSource::Packages(packages) => {
            require_space(work, NEEDED_BYTES)?;
            let found = packages::fetch(work, packages, report).await?;
            let versions = tools::versions(&["apt-get", "dpkg-deb"]).await;
            Input {
                vmlinuz: found.vmlinuz,
                modules: Some(found.modules),
                release: Some(found.release),
                packages: vec![found.package],
                sources: found.sources,
                tools: versions,
            }
        }
        KernelSource::Files { vmlinuz, modules } => Input {
            vmlinuz: vmlinuz.clone(),
            modules: modules.clone(),
            release: None,
            packages: Vec::new(),
            sources: Vec::new(),
            tools: BTreeMap::new(),
        },
    };
    enter(report, Phase::Checksums);
    let (slot, ready, kernels) = (Arc::clone(slot), work.join("ready"), dirs.kernels.clone());
    let (key, ready) = blocking::run(slot, move || {
        let key = assemble(&mut input, request, &ready)?;
        Ok::<_, KernelError>((key, ready))
    })
    .await?;
    enter(report, Phase::Publish);
    let entry = Slot::acquire(&kernels, &key, report).await?;
    // The name is a digest of the contents, so an existing entry is the same.
    if load(&entry.destination())?.is_none_or(|(_, kernel)| kernel.key != key)
        || manifest_differs(&entry, &ready)?
    {
        entry.publish(&ready)?;
    }
    let path = entry.destination();
    match load(&path)? {
        Some((_, kernel)) => Ok(kernel),
        None => Err(FileError::new("find the published", &path, std::io::ErrorKind::NotFound).into()),
    }
}

/// The same kernel may serve another request (for example of another mirror); the newest request is recorded.
fn manifest_differs(entry: &Slot, ready: &Path) -> Result<bool, KernelError> {
    let old = load(&entry.destination())?.map(|(manifest, _)| manifest.request);
    let new = manifest::read::<KernelManifest>(ready)?.map(|manifest| manifest.request);
    Ok(old != new)
}

struct Input {
    vmlinuz: PathBuf,
    modules: Option<PathBuf>,
    release: Option<String>,
    packages: Vec<Package>,
    sources: Vec<String>,
    tools: BTreeMap<String, String>,
}

/// Writes the entry into `ready` and returns its key.
fn assemble(input: &mut Input, request: String, ready: &Path) -> Result<String, KernelError> {
    let modules = match &input.modules {
        Some(dir) => modules::collect(dir)?,
        None => Vec::new(),
    };
    let image = fs::read(&input.vmlinuz).at("read", &input.vmlinuz)?;
    let version = match input.release.take() {
        Some(release) => release,
        None => release_of(&image, &modules)
            .ok_or_else(|| KernelError::NotAKernel { path: input.vmlinuz.clone() })?,
    };
    let module_dir = ready.join(MODULES);
    fs::create_dir_all(&module_dir).at("create", &module_dir)?;
    let mut files = BTreeMap::new();
    let mut put = |relative: String, data: &[u8]| {
        let path = ready.join(&relative);
        fs::write(&path, data).at("write", &path)?;
        files.insert(relative, FileRecord { sha256: hash::bytes(data), bytes: data.len() as u64 });
        Ok::<_, FileError>(())
    };
    put(VMLINUZ.to_owned(), &image)?;
    for module in &modules {
        put(format!("{MODULES}/{}", module.file_name()), &module.data)?;
    }
    let digest = files
        .iter()
        .fold(Fingerprint::default(), |all, (name, file)| {
            all.part(name.as_bytes()).part(file.sha256.as_bytes())
        })
        .finish();
    let key = format!("{}-{}", file_safe(&version), &digest[..16]);
    let manifest = KernelManifest {
        schema_version: SCHEMA_VERSION,
        key: key.clone(),
        version,
        request,
        packages: std::mem::take(&mut input.packages),
        sources: std::mem::take(&mut input.sources),
        module_order: modules.iter().map(Module::file_name).collect(),
        files,
        created_at: jiff::Timestamp::now(),
        tools: std::mem::take(&mut input.tools),
    };
    manifest::write(ready, &manifest)?;
    Ok(key)
}

/// The release string, from the boot header of the image (Documentation/arch/x86/boot.rst), which every bzImage has, or
/// from a module.
fn release_of(image: &[u8], modules: &[Module]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = usize::from(u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?)) + 0x200;
    let from_header = image
        .get(offset..)
        .map(|rest| &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(0)])
        .and_then(|text| std::str::from_utf8(text).ok());
    let from_module = || modules.first().and_then(|module| modinfo(&module.data, "vermagic"));
    let text = from_header.map(str::to_owned).filter(|text| !text.is_empty()).or_else(from_module)?;
    text.split_whitespace().next().map(str::to_owned)
}

fn file_safe(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-') { c } else { '_' };
    text.chars().take(80).map(plain).collect()
}

/// A digest that identifies a request. Files are identified by their contents, since a rebuilt kernel keeps its path.
fn request_digest(source: &KernelSource) -> Result<String, KernelError> {
    Ok(match source {
        KernelSource::Packages(packages) => Fingerprint::default()
            .part(b"packages")
            .part(packages.mirror.as_deref().map(redact).unwrap_or_default().as_bytes())
            .part(packages.suite.as_deref().unwrap_or_default().as_bytes())
            .finish(),
        KernelSource::Files { vmlinuz, modules } => Fingerprint::default()
            .part(b"files")
            .part(hash::file(vmlinuz)?.0.as_bytes())
            .part(modules.as_deref().unwrap_or(Path::new("")).as_os_str().as_encoded_bytes())
            .finish(),
    })
}

/// The newest published kernel for `request`.
fn find(kernels: &Path, request: &str) -> Result<Option<Kernel>, KernelError> {
    let entries = match fs::read_dir(kernels) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new("list", kernels, error).into()),
    };
    let mut best: Option<(jiff::Timestamp, Kernel)> = None;
    for entry in entries {
        let path = entry.at("list", kernels)?.path();
        if path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"@")) {
            continue;
        }
        match load(&path) {
            Ok(Some((manifest, kernel))) if manifest.request == request => {
                if best.as_ref().is_none_or(|(time, _)| *time < manifest.created_at) {
                    best = Some((manifest.created_at, kernel));
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "ignoring an unreadable kernel entry")
            }
        }
    }
    Ok(best.map(|(_, kernel)| kernel))
}

/// An entry, if it is complete.
fn load(path: &Path) -> Result<Option<(KernelManifest, Kernel)>, ManifestError> {
    let Some(manifest) = manifest::read::<KernelManifest>(path)? else { return Ok(None) };
    let whole = manifest
        .files
        .iter()
        .all(|(name, file)| fs::metadata(path.join(name)).is_ok_and(|metadata| metadata.len() == file.bytes));
    let plain = |name: &str| !name.contains('/') && !name.starts_with('.');
    if !whole || !manifest.module_order.iter().all(|name| plain(name)) {
        return Ok(None);
    }
    let kernel = Kernel {
        vmlinuz: path.join(VMLINUZ),
        modules: manifest.module_order.iter().map(|name| path.join(MODULES).join(name)).collect(),
        version: manifest.version.clone(),
        key: manifest.key.clone(),
    };
    Ok(Some((manifest, kernel)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::silent;

    fn fake_kernel(release: &str) -> Vec<u8> {
        let mut image = vec![0; 0x300];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
        image[0x280..0x280 + release.len()].copy_from_slice(release.as_bytes());
        image
    }

    fn dirs(base: &Path) -> Dirs {
        Dirs { images: base.join("images"), kernels: base.join("kernels"), initramfs: base.join("initramfs") }
    }

    #[tokio::test]
    async fn configured_kernel_is_published_once() {
        let dir = tempfile::tempdir().unwrap();
        let vmlinuz = dir.path().join("bzImage");
        fs::write(&vmlinuz, fake_kernel("6.9.1-mine (me@here) #1")).unwrap();
        let modules = dir.path().join("mods");
        fs::create_dir(&modules).unwrap();
        fs::write(modules.join("virtio_blk.ko"), b"\x7fELF\0depends=\0").unwrap();
        let source = KernelSource::Files { vmlinuz, modules: Some(modules) };
        let first = ensure(&dirs(dir.path()), &source, false, &silent).await.unwrap();
        assert_eq!(first.version, "6.9.1-mine");
        assert!(first.modules[0].ends_with("modules/virtio_blk.ko") && first.modules[0].exists());
        let second = ensure(&dirs(dir.path()), &source, false, &|_| panic!("nothing to do")).await.unwrap();
        assert_eq!(first, second);
        let refreshed = ensure(&dirs(dir.path()), &source, true, &silent).await.unwrap();
        assert_eq!(first, refreshed);
    }

    #[tokio::test]
    async fn file_that_is_no_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let vmlinuz = dir.path().join("bzImage");
        fs::write(&vmlinuz, "hello").unwrap();
        let source = KernelSource::Files { vmlinuz, modules: None };
        let error = ensure(&dirs(dir.path()), &source, false, &silent).await.unwrap_err();
        assert!(matches!(error, KernelError::NotAKernel { .. }), "{error}");
    }

    #[tokio::test]
    async fn damaged_kernel_entry_is_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let vmlinuz = dir.path().join("bzImage");
        fs::write(&vmlinuz, fake_kernel("6.9.1")).unwrap();
        let source = KernelSource::Files { vmlinuz, modules: None };
        let kernel = ensure(&dirs(dir.path()), &source, false, &silent).await.unwrap();
        fs::write(&kernel.vmlinuz, "cut").unwrap();
        let again = ensure(&dirs(dir.path()), &source, false, &silent).await.unwrap();
        assert_eq!(fs::read(&again.vmlinuz).unwrap(), fake_kernel("6.9.1"));
    }
}
