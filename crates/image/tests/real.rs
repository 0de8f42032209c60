//! Tests of the library against real programs: packages, e2fsprogs, qemu-img, cpio.
//!
//! The minimal image and the kernel are built once per state of the sources and shared by all tests. If packages cannot
//! be fetched, the tests report that and stop.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use agentiso_core::names::ImageName;
use agentiso_image::{
    AptError, CommandError, Dirs, Existing, Image, ImageError, Kernel, KernelError, KernelSource,
    PackageSource, Phase, Progress, Recipe, StageError, build, get, import, initramfs, kernel, list, silent,
};
use anyhow::{Context, ensure};

/// The time of the last change to the sources of this crate, in seconds.
fn stamp() -> anyhow::Result<u64> {
    newest_change(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// The minimal image that `./x test` has just built by the same code for all tests: building it takes a minute.
fn prebuilt() -> anyhow::Result<Option<Image>> {
    let Some(cache) = agentiso_testkit::test_cache() else { return Ok(None) };
    let Some(image) = get(&dirs(&cache), &name(Recipe::DebianMinimal.name()))? else { return Ok(None) };
    let built = fs::metadata(&image.disk)?.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok((built > stamp()?).then_some(image))
}

/// A directory that is kept as long as the sources do not change; older ones are removed.
fn shared_dirs() -> anyhow::Result<Dirs> {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stamp = stamp()?;
    let name = format!("agentiso-image-{stamp}");
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        let old = path.file_name().and_then(|old| old.to_str()).unwrap_or_default();
        if old.starts_with("agentiso-image-") && old != name {
            // Another test process may be doing the same.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(dirs(&base.join(name)))
}

fn newest_change(dir: &Path) -> anyhow::Result<u64> {
    let mut newest = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let changed = if metadata.is_dir() {
            newest_change(&entry.path())?
        } else {
            metadata.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_secs()
        };
        newest = newest.max(changed);
    }
    Ok(newest)
}

fn dirs(base: &Path) -> Dirs {
    Dirs { images: base.join("images"), kernels: base.join("kernels"), initramfs: base.join("initramfs") }
}

fn name(text: &str) -> ImageName {
    ImageName::parse(text).expect("a valid name")
}

/// Whether the host, and not the library, is the cause.
fn lacks(error: &ImageError) -> bool {
    matches!(
        error,
        ImageError::Apt(
            AptError::Unreachable { .. } | AptError::NotDebian { .. } | AptError::NoArchive { .. }
        ) | ImageError::Bootstrap(
            agentiso_image::BootstrapError::Command(CommandError::Missing { .. })
                | agentiso_image::BootstrapError::NoUidMap
                | agentiso_image::BootstrapError::NoSubIds { .. }
                | agentiso_image::BootstrapError::NoUserNamespaces { .. }
        )
    )
}

async fn minimal() -> anyhow::Result<Option<Image>> {
    match prebuilt()? {
        Some(image) => Ok(Some(image)),
        None => built().await,
    }
}

async fn built() -> anyhow::Result<Option<Image>> {
    let recipe = Recipe::DebianMinimal;
    let source = PackageSource::default();
    match build(&shared_dirs()?, &name(recipe.name()), recipe, &source, Existing::Keep, &silent).await {
        Ok(image) => Ok(Some(image)),
        Err(error) if lacks(&error) => {
            agentiso_testkit::record_skip(&format!("no image can be built here: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

async fn packaged_kernel() -> anyhow::Result<Option<(Dirs, Kernel)>> {
    let dirs = shared_dirs()?;
    match kernel::ensure(&dirs, &KernelSource::Packages(PackageSource::default()), false, &silent).await {
        Ok(kernel) => Ok(Some((dirs, kernel))),
        Err(KernelError::Apt(error)) => {
            agentiso_testkit::record_skip(&format!("no kernel package can be had here: {error}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// An image's filesystem, opened with debugfs.
struct Opened {
    _dir: tempfile::TempDir,
    raw: PathBuf,
}

impl Opened {
    fn new(image: &Image) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let raw = dir.path().join("raw");
        let status =
            Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&image.disk).arg(&raw).status()?;
        ensure!(status.success());
        Ok(Self { _dir: dir, raw })
    }

    fn ask(&self, request: &str) -> anyhow::Result<String> {
        let path = "/usr/sbin:/sbin:/usr/bin:/bin";
        let output =
            Command::new("debugfs").env("PATH", path).arg("-R").arg(request).arg(&self.raw).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Owner, group and mode of a path, as in `0:0 0755`.
    fn owner_and_mode(&self, path: &str) -> anyhow::Result<String> {
        let text = self.ask(&format!("stat \"{path}\""))?;
        let after = |word: &str| {
            text.split_once(word).and_then(|(_, rest)| rest.split_whitespace().next()).map(str::to_owned)
        };
        let get = |word: &str| after(word).with_context(|| format!("{path} is not in the image: {text}"));
        Ok(format!("{}:{} {}", get("User:")?, get("Group:")?, get("Mode:")?))
    }

    fn cat(&self, path: &str) -> anyhow::Result<String> {
        self.ask(&format!("cat \"{path}\""))
    }
}

#[tokio::test]
async fn minimal_image_has_no_identity_or_passwords() -> anyhow::Result<()> {
    let Some(image) = minimal().await? else { return Ok(()) };
    let opened = Opened::new(&image)?;
    for (path, expected) in [
        ("/", "0:0 0755"),
        ("/workspace", "0:0 0755"),
        ("/root", "0:0 0700"),
        ("/tmp", "0:0 01777"),
        ("/etc/shadow", "0:42 0640"),
        ("/usr/bin/su", "0:0 04755"),
        ("/usr/bin/git", "0:0 0755"),
        ("/etc/machine-id", "0:0 0644"),
    ] {
        assert_eq!(opened.owner_and_mode(path)?, expected, "{path}");
    }
    assert!(opened.cat("/etc/shadow")?.lines().all(|line| line.contains(":*:")), "every password is locked");
    assert_eq!(opened.cat("/etc/machine-id")?, "");
    assert_eq!(
        opened.ask("ls -p /var/lib/apt/lists")?.lines().filter(|line| line.contains("/10")).count(),
        0
    );
    assert_eq!(opened.ask("ls /usr/share/man")?.matches("man1").count(), 0);
    assert!(!opened.cat("/etc/apt/sources.list")?.contains('@'));
    for absent in
        ["/etc/resolv.conf", "/etc/inittab", "/usr/lib/systemd/systemd", "/etc/apt/apt.conf.d/99mmdebstrap"]
    {
        assert!(opened.ask(&format!("stat {absent}"))?.is_empty(), "{absent} is not there");
    }
    Ok(())
}

#[tokio::test]
async fn filesystem_can_grow_a_hundredfold() -> anyhow::Result<()> {
    let Some(image) = minimal().await? else { return Ok(()) };
    let opened = Opened::new(&image)?;
    let blocks = opened.ask("show_super_stats -h")?;
    let number = |label: &str| -> anyhow::Result<u64> {
        let line = blocks.lines().find(|line| line.starts_with(label)).context("a superblock")?;
        Ok(line.rsplit(' ').next().context("a value")?.parse()?)
    };
    // One reserved block of descriptors (64 bytes each) describes 64 groups of 128 MiB.
    let growable = number("Reserved GDT blocks:")? * 64 * (128 << 20);
    assert!(growable >= 100 * image.manifest.filesystem.bytes, "{growable}");
    assert_eq!(number("Reserved block count:")?, 0);
    assert_eq!(image.manifest.filesystem.bytes % (1 << 30), 0);
    Ok(())
}

#[tokio::test]
async fn manifest_describes_the_image() -> anyhow::Result<()> {
    let Some(image) = minimal().await? else { return Ok(()) };
    let manifest = &image.manifest;
    assert!(manifest.packages.iter().any(|package| package.name == "git" && !package.version.is_empty()));
    assert!(manifest.packages.iter().any(|package| package.name == "python3"));
    assert_eq!(manifest.id.len(), 64);
    assert!(manifest.tools["mmdebstrap"].contains("mmdebstrap"));
    let sum = Command::new("sha256sum").arg(&image.disk).output()?;
    assert!(String::from_utf8_lossy(&sum.stdout).starts_with(&manifest.files["disk.qcow2"].sha256));
    let images = image.disk.ancestors().nth(2).context("a directory of images")?;
    let dirs = dirs(images.parent().context("a cache")?);
    assert!(list(&dirs)?.iter().any(|listed| listed.manifest.id == manifest.id));
    Ok(())
}

#[tokio::test]
async fn concurrent_builds_share_one_image() -> anyhow::Result<()> {
    let (first, second) = tokio::join!(built(), built());
    let (Some(first), Some(second)) = (first?, second?) else { return Ok(()) };
    assert_eq!(first, second);
    Ok(())
}

#[tokio::test]
async fn packaged_kernel_gets_modules_and_initramfs() -> anyhow::Result<()> {
    let Some((dirs, kernel)) = packaged_kernel().await? else { return Ok(()) };
    let modules: Vec<_> = kernel.modules.iter().map(|path| path.file_name().unwrap_or_default()).collect();
    for wanted in ["virtio_mmio.ko", "virtio_blk.ko", "virtio_net.ko", "failover.ko", "vsock.ko"] {
        assert!(modules.iter().any(|module| *module == wanted), "{wanted} in {modules:?}");
    }
    for module in &kernel.modules {
        assert!(fs::read(module)?.starts_with(b"\x7fELF"), "{} is not compressed", module.display());
    }
    // Any static program can replace the agent here.
    let agent = [b"\x7fELF".as_slice(), &[7; 5000]].concat();
    let path = initramfs::ensure(&dirs, &kernel, &agent).await?;
    let script = format!("set -e; gzip -t {0}; gzip -dc {0} | cpio -tv --quiet", path.display());
    let listing = Command::new("sh").args(["-c", &script]).output()?;
    ensure!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let init = listing.lines().find(|line| line.ends_with(" init")).context("init")?;
    assert!(init.starts_with("-rwxr-xr-x") && init.contains("5004"), "{init}");
    let console = listing.lines().find(|line| line.ends_with(" dev/console")).context("console")?;
    assert!(console.starts_with("crw") && console.contains("5,   1"), "{console}");
    assert!(listing.contains("modules/order") && listing.contains("modules/virtio_net.ko"));
    assert_eq!(path, initramfs::ensure(&dirs, &kernel, &agent).await?);
    Ok(())
}

/// A tar with a shell, made by the real tar, with owners of its own.
fn small_rootfs(dir: &Path, compress: &str) -> anyhow::Result<PathBuf> {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("bin"))?;
    fs::write(tree.join("bin/sh"), "#!")?;
    fs::write(tree.join("a name with \"quotes\" and spaces"), "odd")?;
    let tar = dir.join("rootfs.tar");
    let status = Command::new("tar")
        .args(["--owner=1234", "--group=4321", "--mode=u=rwxs,go=rx", compress, "-C"])
        .arg(&tree)
        .arg("-cf")
        .arg(&tar)
        .arg(".")
        .status()?;
    ensure!(status.success());
    Ok(tar)
}

#[tokio::test]
async fn imported_tar_keeps_owners_and_modes() -> anyhow::Result<()> {
    for compress in ["--gzip", "--xz", "--zstd"] {
        let dir = tempfile::tempdir()?;
        let dirs = dirs(dir.path());
        let tar = small_rootfs(dir.path(), compress)?;
        let phases = Mutex::new(Vec::new());
        let report = |progress: Progress| phases.lock().expect("no panic").push(progress.phase);
        let image = import(&dirs, &name("mine"), &tar, &report).await?;
        let opened = Opened::new(&image)?;
        assert_eq!(opened.owner_and_mode("/bin/sh")?, "1234:4321 04755");
        assert_eq!(opened.owner_and_mode("/a name with \"\"quotes\"\" and spaces")?, "1234:4321 04755");
        assert_eq!(opened.owner_and_mode("/workspace")?, "0:0 0755");
        assert_eq!(
            *phases.lock().expect("no panic"),
            [Phase::Unpack, Phase::Filesystem, Phase::Disk, Phase::Checksums, Phase::Publish]
        );
        let again = import(&dirs, &name("mine"), &tar, &silent).await;
        assert!(matches!(again, Err(ImageError::Exists { .. })), "the name is taken");
    }
    Ok(())
}

#[tokio::test]
async fn imported_directory_belongs_to_root() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let dirs = dirs(dir.path());
    small_rootfs(dir.path(), "--gzip")?;
    let image = import(&dirs, &name("mine"), &dir.path().join("tree"), &silent).await?;
    assert!(Opened::new(&image)?.owner_and_mode("/bin/sh")?.starts_with("0:0 "));
    Ok(())
}

#[tokio::test]
async fn hostile_tar_leaves_nothing_behind() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let dirs = dirs(dir.path());
    fs::write(dir.path().join("victim"), "untouched")?;
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("deep/er"))?;
    fs::write(tree.join("victim"), "overwritten")?;
    let tar = dir.path().join("hostile.tar");
    let status = Command::new("tar")
        .args(["--absolute-names", "--transform=s,^victim,../../../victim,", "-C"])
        .arg(&tree)
        .arg("-cf")
        .arg(&tar)
        .args(["deep", "victim"])
        .status()?;
    ensure!(status.success());
    let error = import(&dirs, &name("evil"), &tar, &silent).await.expect_err("it is refused");
    assert!(matches!(error, ImageError::Stage(StageError::Escapes { .. })), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("victim"))?, "untouched");
    assert!(get(&dirs, &name("evil"))?.is_none());
    let left: Vec<_> = fs::read_dir(&dirs.images)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    assert_eq!(left, ["@lock.evil"]);
    Ok(())
}

#[tokio::test]
async fn import_without_a_shell_is_refused() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let tree = dir.path().join("tree");
    fs::create_dir(&tree)?;
    fs::write(tree.join("readme"), "hello")?;
    let error = import(&dirs(dir.path()), &name("mine"), &tree, &silent).await.expect_err("it is refused");
    assert!(matches!(error, ImageError::NoShell { .. }), "{error}");
    Ok(())
}
