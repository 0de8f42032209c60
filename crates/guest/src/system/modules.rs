//! Loads kernel modules from the initramfs when they are needed.
//!
//! Drivers of devices that differ between the VMs of one template are loaded after the restore, so that they probe the
//! real device.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::system::finit_module;

use super::error::SystemError;

/// The driver that finds all other virtio devices of QEMU's microvm.
const MMIO: &str = "virtio_mmio";

/// Largest order file that is read; a real one has a few lines.
const MAX_ORDER_BYTES: u64 = 64 * 1024;

/// Loads the module that all others need.
pub(crate) fn load_first(initramfs: BorrowedFd<'_>) -> Result<(), SystemError> {
    load(initramfs, MMIO)
}

/// Loads a module after its dependencies. Modules that are not in the initramfs are taken to be built into the kernel.
pub(super) fn load(initramfs: BorrowedFd<'_>, name: &str) -> Result<(), SystemError> {
    let order =
        read_order(initramfs).map_err(|source| SystemError::Module { module: "list".into(), source })?;
    for module in plan(&order, name) {
        let failed = |source: io::Error| SystemError::Module { module: module.clone(), source };
        let file = match open_module(initramfs, &format!("{module}.ko")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        match finit_module(file.as_fd(), parameters(&module), 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
    Ok(())
}

fn parameters(module: &str) -> &'static CStr {
    match module {
        // Otherwise every sent packet causes another interrupt for its completion. On a connection with small packets
        // that doubles the interrupts, and each costs as much as a packet.
        "virtio_net" => c"napi_tx=0",
        _ => c"",
    }
}

fn open_module(initramfs: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(File::from(openat(initramfs, format!("modules/{name}"), flags, Mode::empty())?))
}

fn read_order(initramfs: BorrowedFd<'_>) -> io::Result<String> {
    let mut order = String::new();
    match open_module(initramfs, "order") {
        Ok(file) => {
            file.take(MAX_ORDER_BYTES).read_to_string(&mut order)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(order)
}

/// The modules to load for `name`, itself last. Lines of `order` read `module.ko: needed.ko …`; dependencies have their
/// lines before the modules that need them.
fn plan(order: &str, name: &str) -> Vec<String> {
    let mut wanted = vec![name.to_owned()];
    let mut result = Vec::new();
    // From the end, because the dependencies of a module come before it.
    for line in order.lines().rev() {
        let (module, needs) = line.split_once(':').unwrap_or((line, ""));
        if let Some(at) = wanted.iter().position(|wanted| wanted == stem(module)) {
            result.push(wanted.swap_remove(at));
            for need in needs.split_whitespace().map(stem) {
                if !wanted.iter().any(|wanted| wanted == need) {
                    wanted.push(need.to_owned());
                }
            }
        }
    }
    // Modules without a line are either built into the kernel, or loading will fail with the reason.
    result.extend(wanted);
    result.reverse();
    result
}

fn stem(file: &str) -> &str {
    let file = file.trim();
    file.strip_suffix(".ko").unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::plan;

    const ORDER: &str = "virtio_mmio.ko:\nfailover.ko:\nvirtio_blk.ko:\nnet_failover.ko: failover.ko\n\
                         virtio_net.ko: net_failover.ko failover.ko\n";

    #[test]
    fn module_dependencies_are_loaded_first() {
        assert_eq!(plan(ORDER, "virtio_net"), ["failover", "net_failover", "virtio_net"]);
        assert_eq!(plan(ORDER, "virtio_blk"), ["virtio_blk"]);
    }

    #[test]
    fn unlisted_module_is_tried_by_name() {
        assert_eq!(plan("", "virtio_mmio"), ["virtio_mmio"]);
    }
}
