//! Makes the disk the root file system.
//!
//! It works as `switch_root` does, but the agent keeps running. It shares its root directory with init, so both change
//! at once.

use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use agentiso_protocol::schema::v1;
use rustix::fs::{ext4_ioc_resize_fs, statfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use rustix::process::{chdir, chroot};

use super::error::{Step as _, SystemError};
use super::modules;
use super::uevent::wait_for;

/// The mount point of the disk before it becomes the root.
const NEW_ROOT: &str = "/newroot";

/// File systems that are moved into the new root, with the mounts inside them.
const MOVED: [&str; 3] = ["proc", "sys", "dev"];

/// The time that a disk gets to appear once its driver is loaded, or to take a new size.
const DISK_DEADLINE: Duration = Duration::from_secs(20);

/// `/run` holds small files only. The limit keeps it from using up the memory of a small VM.
const RUN_OPTIONS: &std::ffi::CStr = c"mode=0755,size=20%";

/// `discard` gives the space of deleted files back to the host. Inode tables are already zero in a fresh image, and
/// zeroing them would fill the head layer. Block bitmaps are read on demand: a thread that reads all of them in the
/// first seconds after the mount would do so in every fork of a young snapshot too.
const EXT4_OPTIONS: &std::ffi::CStr = c"discard,noinit_itable,no_prefetch_block_bitmaps";

/// Mounts the disk and makes it the root. Returns its size.
pub(super) fn attach(initramfs: BorrowedFd<'_>, request: &v1::AttachRootRequest) -> Result<u64, SystemError> {
    let device = disk_name(&request.device)?;
    if request.fstype != "ext4" {
        return Err(SystemError::invalid("the file system", &request.fstype));
    }
    modules::load(initramfs, "virtio_blk")?;
    let found = wait_for(DISK_DEADLINE, || Path::new(&request.device).exists().then_some(()));
    if found.step("waiting for the disk")?.is_none() {
        return Err(SystemError::NoDevice { device: request.device.clone() });
    }
    fs::create_dir_all(NEW_ROOT).step("making a mount point")?;
    mount(request.device.as_str(), NEW_ROOT, "ext4", MountFlags::NOATIME, Some(EXT4_OPTIONS))
        .step("mounting the disk")?;
    let prepared = prepare(device, request.grow);
    if prepared.is_err() {
        // Undone so that the next attempt finds the disk unmounted.
        let _ = unmount(NEW_ROOT, UnmountFlags::DETACH);
        return prepared;
    }
    enter()?;
    prepared
}

/// Does everything that can fail because of the disk's content.
fn prepare(device: &str, grow_wanted: bool) -> Result<u64, SystemError> {
    let size = if grow_wanted { grow(device, Path::new(NEW_ROOT))? } else { size_of(Path::new(NEW_ROOT))? };
    for name in MOVED.into_iter().chain(["run", "tmp", "root"]) {
        match fs::create_dir(Path::new(NEW_ROOT).join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).step("making a directory of the root file system");
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(size)
}

fn enter() -> Result<(), SystemError> {
    for name in MOVED {
        mount_move(format!("/{name}"), format!("{NEW_ROOT}/{name}")).step("moving a file system")?;
    }
    chdir(NEW_ROOT).step("entering the new root")?;
    mount_move(".", "/").step("moving the new root")?;
    chroot(".").step("changing the root")?;
    chdir("/").step("entering the root")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "/run", "tmpfs", flags, Some(RUN_OPTIONS)).step("mounting /run")?;
    Ok(())
}

/// Grows the root to its disk, once that has the expected size.
pub(super) fn grow_attached(device: &str, expected: u64) -> Result<u64, SystemError> {
    let device = disk_name(device)?;
    let enough = wait_for(DISK_DEADLINE, || disk_size(device).ok().filter(|size| *size >= expected));
    if enough.step("waiting for the size of the disk")?.is_none() {
        return Err(SystemError::DiskSize { actual: disk_size(device)?, expected });
    }
    grow(device, Path::new("/"))
}

fn grow(device: &str, root: &Path) -> Result<u64, SystemError> {
    let file = File::open(root).step("opening the root directory")?;
    let block = block_size(root)?;
    let blocks = disk_size(device)? / block;
    match ext4_ioc_resize_fs(file.as_fd(), blocks) {
        // The kernel returns this if the file system already ends within the last, incomplete block group.
        Ok(()) | Err(rustix::io::Errno::EXIST) => size_of(root),
        Err(error) => Err(error).step("growing the file system"),
    }
}

fn block_size(root: &Path) -> Result<u64, SystemError> {
    let found = statfs(root).step("looking at the file system")?;
    u64::try_from(found.f_bsize)
        .ok()
        .filter(|size| *size > 0)
        .ok_or_else(|| SystemError::invalid("the block size", found.f_bsize.to_string()))
}

/// Size of the file system as programs see it, without its own tables.
pub(super) fn size_of(root: &Path) -> Result<u64, SystemError> {
    let found = statfs(root).step("looking at the file system")?;
    Ok(found.f_blocks.saturating_mul(block_size(root)?))
}

fn disk_size(device: &str) -> Result<u64, SystemError> {
    let text =
        fs::read_to_string(format!("/sys/class/block/{device}/size")).step("reading the disk's size")?;
    let sectors: u64 =
        text.trim().parse().map_err(|_| SystemError::invalid("the disk's size", text.trim()))?;
    Ok(sectors.saturating_mul(512))
}

/// The name of a disk's device file directly below `/dev`; any other path is refused.
fn disk_name(device: &str) -> Result<&str, SystemError> {
    let name = device.strip_prefix("/dev/").unwrap_or_default();
    let plain = !name.is_empty() && name.len() < 32 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain { Ok(name) } else { Err(SystemError::invalid("the device", device)) }
}

#[cfg(test)]
mod tests {
    use super::disk_name;

    #[test]
    fn disk_name_accepts_only_plain_device_files() {
        assert_eq!(disk_name("/dev/vda").expect("a disk"), "vda");
        for bad in ["vda", "/dev/", "/dev/../vda", "/dev/a/b", "/tmp/vda", "/dev/v a"] {
            assert!(disk_name(bad).is_err(), "{bad}");
        }
    }
}
