//! QEMU without agentiso: the same kernel, `-vm` and processor, and an initramfs with only busybox.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cpio::newc::{self, ModeFileType};

use crate::program::{self, Running};
use crate::vm_line::VmLine;

/// The text that the guest prints when it is up.
const READY: &[u8] = b"READY";

/// The time limit of a boot. Under emulation on a busy host it takes half a minute.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// The time limit of an echo.
const ECHO_LIMIT: Duration = Duration::from_secs(30);

const INIT: &str = "#!/bin/busybox sh\necho READY\nexec /bin/busybox sleep 1000000\n";

/// The init of the echo VM: it opens the port once and writes back what it reads. The port's file appears a moment
/// before it can be opened, so a separate shell tries that first, which may fail.
const ECHO_INIT: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b insmod /virtio_mmio.ko
n=0
until port=$(echo /dev/vport*p1) && [ -c \"$port\" ] && $b sh -c \"exec 3<>$port\" || [ $n -gt 3000 ]; do $b usleep 10000; n=$((n+1)); done
exec 3<>$port
echo READY
exec $b cat <&3 >&3
";

/// A VM that has printed [`READY`].
pub(crate) struct PlainVm {
    pub(crate) boot: Duration,
    _running: Running,
}

/// The options that all plain VMs of a run share.
#[derive(Debug)]
pub(crate) struct Plain {
    line: VmLine,
    dir: PathBuf,
}

impl Plain {
    /// Takes all options except devices and initramfs from the VM of a workspace.
    pub(crate) fn like(line: VmLine, dir: &Path) -> Result<Self> {
        let busybox = busybox()?;
        let plain = Self { line, dir: dir.to_owned() };
        plain.write_initramfs("plain.cpio", INIT, &[("bin/busybox", &busybox)])?;
        let kernel = Path::new(plain.line.option("-kernel")?);
        let module = kernel.with_file_name("modules").join("virtio_mmio.ko");
        let module = std::fs::read(&module).with_context(|| format!("reading {}", module.display()))?;
        plain.write_initramfs(
            "echo.cpio",
            ECHO_INIT,
            &[("bin/busybox", &busybox), ("virtio_mmio.ko", &module)],
        )?;
        Ok(plain)
    }

    fn write_initramfs(&self, name: &str, init: &str, files: &[(&str, &[u8])]) -> Result<()> {
        let mut archive = Vec::new();
        let mut entry = |name: &str, kind: ModeFileType, mode: u32, data: &[u8]| -> Result<()> {
            let builder = newc::Builder::new(name).mode(mode).set_mode_file_type(kind);
            let mut writer = builder.write(&mut archive, u32::try_from(data.len())?);
            writer.write_all(data)?;
            writer.finish()?;
            Ok(())
        };
        for directory in ["bin", "dev"] {
            entry(directory, ModeFileType::Directory, 0o755, &[])?;
        }
        entry("init", ModeFileType::Regular, 0o755, init.as_bytes())?;
        for (name, data) in files {
            entry(name, ModeFileType::Regular, 0o755, data)?;
        }
        let archive = newc::trailer(archive).context("ending the archive")?;
        std::fs::write(self.dir.join(name), archive).context("writing an initramfs")
    }

    fn command(&self, initramfs: &str) -> Result<Command> {
        let mut command = Command::new(self.line.qemu());
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-machine", &self.line.board()?]);
        for option in ["-accel", "-cpu", "-smp", "-m", "-kernel", "-append"] {
            command.args([option, self.line.option(option)?]);
        }
        command.arg("-initrd").arg(self.dir.join(initramfs)).args(["-serial", "stdio"]);
        Ok(command)
    }

    /// Boots until the first user-space program prints its line.
    pub(crate) fn boot(&self) -> Result<PlainVm> {
        boot(self.command("plain.cpio")?)
    }

    /// Boots a VM that echoes its input, and connects to it.
    pub(crate) fn boot_echo(&self) -> Result<(PlainVm, Echo)> {
        let socket = self.dir.join("echo.sock");
        let mut command = self.command("echo.cpio")?;
        command.args(["-device", "virtio-serial-device,max_ports=2", "-chardev"]);
        command.arg(format!("socket,id=echo,path={},server=on,wait=off", socket.display()));
        command.args(["-device", "virtserialport,nr=1,chardev=echo,name=echo"]);
        let vm = boot(command)?;
        let stream = UnixStream::connect(&socket).context("connecting to the echo")?;
        stream.set_read_timeout(Some(ECHO_LIMIT)).context("setting a deadline")?;
        Ok((vm, Echo(stream)))
    }
}

pub(crate) struct Echo(UnixStream);

impl Echo {
    pub(crate) fn round_trip(&mut self, payload: &[u8]) -> Result<Duration> {
        let mut answer = vec![0; payload.len()];
        let start = Instant::now();
        self.0.write_all(payload).context("sending to the echo")?;
        self.0.read_exact(&mut answer).context("no answer from the echo")?;
        let time = start.elapsed();
        if answer != payload {
            bail!("the echo answered something else");
        }
        Ok(time)
    }
}

fn boot(mut command: Command) -> Result<PlainVm> {
    let start = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("QEMU could not be started")?;
    let mut running = Running(child);
    let mut console = running.0.stdout.take().context("a pipe was asked for")?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (send, ready) = mpsc::channel();
    let log = seen.clone();
    // The thread keeps reading after that, so that the guest never blocks on its console. It ends with the VM.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut is_ready = false;
        while let Ok(n @ 1..) = console.read(&mut buffer) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.extend_from_slice(&buffer[..n]);
            if !is_ready && log.windows(READY.len()).any(|window| window == READY) {
                is_ready = true;
                // The receiver may have given up meanwhile.
                let _ = send.send(start.elapsed());
            }
        }
    });
    let Ok(boot) = ready.recv_timeout(BOOT_LIMIT) else {
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        bail!("the plain VM did not boot; its console: {}", String::from_utf8_lossy(&seen));
    };
    Ok(PlainVm { boot, _running: running })
}

/// A statically linked busybox.
fn busybox() -> Result<Vec<u8>> {
    let path = program::find("busybox").context("busybox-static is not installed")?;
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    // A dynamically linked program names its linker near the start.
    let start = &bytes[..bytes.len().min(4096)];
    if start.windows(9).any(|window| window == b"ld-linux-") {
        bail!("busybox-static is not installed; the busybox that is needs libraries");
    }
    Ok(bytes)
}
