//! The initramfs: the guest agent as init, and the modules that it loads itself.
//!
//! ```text
//! /init                 the guest agent
//! /modules/<name>.ko    plain modules
//! /modules/order        one `<name>.ko: <dependency>.ko ...` per line, dependencies first, in loading order
//! /dev/console          so that the kernel can give init a terminal
//! /dev /proc /sys /newroot   empty
//! ```
//!
//! It is written here and not by cpio(1), because equal inputs must give equal bytes: templates are keyed by them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use agentiso_sys::files::{FileContext, FileError};
use cpio::newc::{self, ModeFileType};
use flate2::{Compression, GzBuilder};
use thiserror::Error;

use crate::hash;
use crate::kernel::{Kernel, depends_of};
use crate::progress::silent;
use crate::publish::{PublishError, Slot};
use crate::source::Dirs;

const MODULES: &str = "modules";

#[derive(Debug, Error)]
pub enum InitramfsError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("the initramfs cannot be built: {source}")]
    Archive { source: io::Error },
    #[error("the guest agent is not an ELF executable")]
    NotAnAgent,
    #[error("vm.initrd_path: {path} is not an initramfs (a cpio archive, compressed or not)")]
    NotAnInitramfs { path: PathBuf },
}

/// The beginnings of an initramfs: a cpio archive, or a format that kernels decompress.
const SIGNATURES: [&[u8]; 9] = [
    b"070701",
    b"070702",
    b"\x1f\x8b",
    b"BZh",
    b"\x5d\0\0",
    b"\xfd7zXZ\0",
    b"\x89LZO",
    b"\x02\x21\x4c\x18",
    b"\x28\xb5\x2f\xfd",
];

/// Checks a file that the configuration names instead of ours. A kernel that is given an invalid file panics about its
/// root file system, and the message would not show which key is wrong.
pub fn configured(path: &Path) -> Result<PathBuf, InitramfsError> {
    let mut start = Vec::new();
    fs::File::open(path).and_then(|file| file.take(8).read_to_end(&mut start)).at("read", path)?;
    match SIGNATURES.iter().any(|signature| start.starts_with(signature)) {
        true => Ok(path.to_owned()),
        false => Err(InitramfsError::NotAnInitramfs { path: path.to_owned() }),
    }
}

/// The initramfs for a kernel and an agent; made if it does not exist. Its name is a digest of its contents.
pub async fn ensure(dirs: &Dirs, kernel: &Kernel, agent: &[u8]) -> Result<PathBuf, InitramfsError> {
    if !agent.starts_with(b"\x7fELF") {
        return Err(InitramfsError::NotAnAgent);
    }
    let mut modules = Vec::new();
    for path in &kernel.modules {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        modules.push((name, fs::read(path).at("read", path)?));
    }
    let plain = archive(agent, &modules).map_err(|source| InitramfsError::Archive { source })?;
    let name = format!("{}.cpio.gz", &hash::bytes(&plain)[..32]);
    let path = dirs.initramfs.join(&name);
    // A published file is complete, since it was synced before it got its name.
    if path.is_file() {
        return Ok(path);
    }
    let slot = Slot::acquire(&dirs.initramfs, &name, &silent).await?;
    if path.is_file() {
        return Ok(path);
    }
    let ready = slot.working_dir()?.join(&name);
    write_compressed(&plain, &ready).at("write", &ready)?;
    Ok(slot.publish(&ready)?)
}

fn write_compressed(plain: &[u8], path: &Path) -> io::Result<()> {
    // No name and no time in the header, or the bytes would differ between two hosts.
    let mut gzip = GzBuilder::new().mtime(0).write(fs::File::create_new(path)?, Compression::new(6));
    gzip.write_all(plain)?;
    gzip.finish()?;
    Ok(())
}

/// The cpio archive, uncompressed.
fn archive(agent: &[u8], modules: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut out = Newc { out: Vec::new(), next_inode: 1 };
    for directory in ["dev", "proc", "sys", "newroot", MODULES] {
        out.entry(directory, ModeFileType::Directory, 0o755, None, &[])?;
    }
    out.entry("dev/console", ModeFileType::Char, 0o600, Some((5, 1)), &[])?;
    out.entry("init", ModeFileType::Regular, 0o755, None, agent)?;
    for (name, data) in modules {
        out.entry(&format!("{MODULES}/{name}"), ModeFileType::Regular, 0o644, None, data)?;
    }
    out.entry(&format!("{MODULES}/order"), ModeFileType::Regular, 0o644, None, order(modules).as_bytes())?;
    newc::trailer(out.out)
}

/// The loading order, each line with everything that must be loaded before it.
fn order(modules: &[(String, Vec<u8>)]) -> String {
    let mut closures: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut text = String::new();
    for (name, data) in modules {
        let mut before: Vec<String> = Vec::new();
        for dependency in depends_of(data).into_iter().map(|name| format!("{name}.ko")) {
            // A dependency that is not among the modules is built into the kernel.
            let Some(deeper) = closures.get(dependency.as_str()) else { continue };
            for module in deeper.iter().chain([&dependency]) {
                if !before.contains(module) {
                    before.push(module.clone());
                }
            }
        }
        text.push_str(name);
        text.push(':');
        for module in &before {
            text.push(' ');
            text.push_str(module);
        }
        text.push('\n');
        closures.insert(name, before);
    }
    text
}

struct Newc {
    out: Vec<u8>,
    next_inode: u32,
}

impl Newc {
    fn entry(
        &mut self,
        name: &str,
        kind: ModeFileType,
        mode: u32,
        device: Option<(u32, u32)>,
        data: &[u8],
    ) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::Error::other(format!("{name} is too large")))?;
        let (major, minor) = device.unwrap_or((0, 0));
        let mut writer = newc::Builder::new(name)
            .ino(self.next_inode)
            .nlink(if matches!(kind, ModeFileType::Directory) { 2 } else { 1 })
            .mode(mode)
            .set_mode_file_type(kind)
            .rdev_major(major)
            .rdev_minor(minor)
            .write(&mut self.out, size);
        writer.write_all(data)?;
        writer.finish()?;
        self.next_inode += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, depends: &str) -> (String, Vec<u8>) {
        (format!("{name}.ko"), format!("\x7fELF\0depends={depends}\0").into_bytes())
    }

    #[test]
    fn module_order_lists_all_dependencies() {
        let modules = [
            module("virtio_blk", ""),
            module("failover", ""),
            module("net_failover", "failover"),
            module("virtio_net", "net_failover,virtio_ring"),
        ];
        assert_eq!(
            order(&modules),
            "virtio_blk.ko:\nfailover.ko:\nnet_failover.ko: failover.ko\nvirtio_net.ko: failover.ko net_failover.ko\n"
        );
    }

    #[test]
    fn equal_inputs_give_equal_archives() {
        let modules = [module("virtio_blk", "")];
        assert_eq!(archive(b"agent", &modules).unwrap(), archive(b"agent", &modules).unwrap());
        assert_ne!(archive(b"agent", &modules).unwrap(), archive(b"agenT", &modules).unwrap());
    }

    #[test]
    fn initramfs_contains_agent_modules_and_console() {
        let modules = [module("virtio_blk", "")];
        let bytes = archive(b"the agent", &modules).unwrap();
        let mut found = BTreeMap::new();
        let mut rest = bytes.as_slice();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let entry =
                (reader.entry().name().to_owned(), reader.entry().mode(), reader.entry().rdev_minor());
            let mut data = Vec::new();
            reader.read_to_end(&mut data).unwrap();
            found.insert(entry.0, (entry.1, entry.2, data));
            rest = reader.finish().unwrap();
        }
        assert_eq!(found["init"], (0o100755, 0, b"the agent".to_vec()));
        assert_eq!(found["modules/virtio_blk.ko"].2, modules[0].1);
        assert_eq!(found["modules/order"].2, b"virtio_blk.ko:\n");
        assert_eq!(found["dev/console"].0, 0o020600);
        assert_eq!(found["dev/console"].1, 1);
        assert_eq!(found["newroot"].0, 0o040755);
    }

    #[tokio::test]
    async fn initramfs_is_made_once_from_an_agent() {
        let dir = tempfile::tempdir().unwrap();
        let dirs =
            Dirs { images: dir.path().into(), kernels: dir.path().into(), initramfs: dir.path().join("i") };
        let module = dir.path().join("virtio_blk.ko");
        fs::write(&module, b"\x7fELF\0depends=\0").unwrap();
        let kernel = Kernel {
            vmlinuz: dir.path().into(),
            modules: vec![module],
            version: "6".into(),
            key: "k".into(),
        };
        let first = ensure(&dirs, &kernel, b"\x7fELF agent").await.unwrap();
        let made = fs::metadata(&first).unwrap().modified().unwrap();
        let second = ensure(&dirs, &kernel, b"\x7fELF agent").await.unwrap();
        assert_eq!((&first, made), (&second, fs::metadata(&second).unwrap().modified().unwrap()));
        assert!(matches!(ensure(&dirs, &kernel, b"").await, Err(InitramfsError::NotAnAgent)));
        assert_eq!(configured(&first).unwrap(), first);
    }

    #[test]
    fn configured_file_must_be_an_initramfs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("initrd.img");
        assert!(matches!(configured(&path), Err(InitramfsError::Fs(_))));
        for (content, is_one) in
            [(&b""[..], false), (b"a note", false), (b"070701000", true), (b"\x28\xb5\x2f\xfd.", true)]
        {
            fs::write(&path, content).unwrap();
            let found = configured(&path);
            assert_eq!(found.is_ok(), is_one, "{found:?}");
        }
        let error = {
            fs::write(&path, "x").unwrap();
            configured(&path).unwrap_err().to_string()
        };
        assert!(error.contains("vm.initrd_path") && error.contains("initrd.img"), "{error}");
    }
}
