//! Implements [`System`] in a VM.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_protocol::schema::v1;
use rustix::fs::{Access, access};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};

use super::System;
use super::error::{Step as _, SystemError};
use super::{identity, power, root};
use crate::args::InheritedFds;
use crate::console;

/// The init of an image.
pub(crate) const IMAGE_INIT: &std::ffi::CStr = c"/sbin/init";

/// The signal that asks our init to execute the image's init.
pub(crate) const HAND_OVER: Signal = Signal::USR1;

/// The VM in which init has started this agent.
#[derive(Debug)]
pub struct Vm {
    /// Root directory of the initramfs. The kernel modules stay there after the change of the root.
    initramfs: OwnedFd,
    /// The disk that is the root. Its lock also allows only one change of the guest at a time.
    disk: Mutex<Option<String>>,
}

/// The disk of a root that was attached before this agent ran.
const DEFAULT_DISK: &str = "/dev/vda";

impl Vm {
    /// Takes over the descriptors from init.
    pub fn new(fds: InheritedFds) -> io::Result<Self> {
        // SAFETY: init has opened both for this process, which takes each of them once.
        let (initramfs, program) =
            unsafe { (OwnedFd::from_raw_fd(fds.initramfs), OwnedFd::from_raw_fd(fds.program)) };
        // Only init and the keeper need the program. Commands must not inherit the descriptors.
        drop(program);
        fcntl_setfd(&initramfs, FdFlags::CLOEXEC)?;
        // The process was executed by a descriptor, so its name would be a number.
        rustix::thread::set_name(c"agentiso-guest")?;
        let disk = (stage() == v1::Stage::Rooted).then(|| DEFAULT_DISK.to_owned());
        Ok(Self { initramfs, disk: Mutex::new(disk) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl System for Vm {
    fn stage(&self) -> v1::Stage {
        stage()
    }

    fn init_mode(&self) -> v1::InitMode {
        let same = match (fs::metadata("/proc/1/exe"), fs::metadata("/proc/self/exe")) {
            (Ok(init), Ok(own)) => (init.dev(), init.ino()) == (own.dev(), own.ino()),
            (_, _) => false,
        };
        if same { v1::InitMode::Fast } else { v1::InitMode::System }
    }

    fn boot_id(&self) -> String {
        boot_id()
    }

    fn attach_root(&self, request: &v1::AttachRootRequest) -> Result<v1::AttachRootResponse, SystemError> {
        let mut disk = self.lock();
        if stage() == v1::Stage::Rooted {
            let size_bytes = root::size_of(Path::new("/"))?;
            return Ok(v1::AttachRootResponse { attached: false, size_bytes });
        }
        let size_bytes = root::attach(self.initramfs.as_fd(), request)?;
        *disk = Some(request.device.clone());
        if request.init_mode() == v1::InitMode::System {
            access(IMAGE_INIT, Access::EXEC_OK).map_err(|_| SystemError::NoInit)?;
            kill_process(Pid::INIT, HAND_OVER).step("handing over to the image's init")?;
        }
        Ok(v1::AttachRootResponse { attached: true, size_bytes })
    }

    fn grow_root(&self, expected_bytes: u64) -> Result<v1::GrowRootResponse, SystemError> {
        let disk = self.lock();
        let device = disk.as_deref().unwrap_or(DEFAULT_DISK);
        Ok(v1::GrowRootResponse { size_bytes: root::grow_attached(device, expected_bytes)? })
    }

    fn identify(&self, request: &v1::IdentifyRequest) -> Result<v1::IdentifyResponse, SystemError> {
        let _changing = self.lock();
        let response = identity::identify(self.initramfs.as_fd(), request)?;
        // A restored VM booted long ago in a template; this line marks the beginning of its own console log.
        console::log(format_args!("ready as {}", request.hostname));
        Ok(response)
    }

    fn stir(&self, random: &[u8]) {
        if let Err(error) = identity::stir(random) {
            console::log(format_args!("cannot reseed the random number generator: {error}"));
        }
    }

    fn catch_up(&self, request: &v1::CatchUpRequest) -> Result<v1::CatchUpResponse, SystemError> {
        Ok(v1::CatchUpResponse { behind_ns: identity::catch_up(request.realtime_ns)? })
    }

    fn quiesce(&self, grace_ms: u32) -> Result<v1::ShutdownResponse, SystemError> {
        let _changing = self.lock();
        power::quiesce(Duration::from_millis(grace_ms.into()))
    }

    fn power_off(&self) {
        power::power_off();
    }
}

/// The stage is `Bare` while the root directory is that of the initramfs, which this program comes from.
fn stage() -> v1::Stage {
    match (fs::metadata("/"), fs::metadata("/proc/self/exe")) {
        (Ok(root), Ok(program)) if root.dev() == program.dev() => v1::Stage::Bare,
        (_, _) => v1::Stage::Rooted,
    }
}

pub(super) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim_end().to_owned()
}
