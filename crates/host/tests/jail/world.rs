//! A host with everything on it that a prisoner must not reach, and what it needs.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_host::jail::{Cell, Jail, View, of_process, uid_of};
use agentiso_host::process::{Exit, Launch, Priority};

use crate::prisoner::Attempt;

const DEADLINE: Duration = Duration::from_secs(60);

/// Another workspace's QEMU, for who looks at processes only.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct World {
    jail: Jail,
    dir: tempfile::TempDir,
    neighbour: Neighbour,
    tcp: TcpListener,
    udp: UdpSocket,
    sockets: Vec<UnixListener>,
}

impl World {
    pub(crate) fn new(jail: Jail) -> Self {
        let dir = tempfile::Builder::new().prefix("jw").tempdir_in("/tmp").unwrap();
        let world = Self {
            jail,
            neighbour: Neighbour(Command::new("sleep").arg("1000").spawn().unwrap()),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            sockets: Vec::new(),
            dir,
        };
        for file in [
            "home/.ssh/id_ed25519",
            "state.json",
            "w/other/disk.qcow2",
            "w/own/head",
            "w/own/layer0",
            "templates/t/ram",
            "building/ram",
            "templates/t/manifest.json",
        ] {
            let path = world.path(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret").unwrap();
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn listen(&mut self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        self.sockets.push(UnixListener::bind(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    fn forbidden(&self, frozen: i32) -> Vec<(&'static str, Attempt)> {
        let text = |name: &str| self.text(name);
        let pid = self.neighbour.0.id() as i32;
        let mut forbidden = vec![
            ("reads the host's passwords", Attempt::Read("/etc/shadow".to_owned())),
            ("reads the host's users", Attempt::Read("/etc/passwd".to_owned())),
            ("reads a key of the user", Attempt::Read(text("home/.ssh/id_ed25519"))),
            ("reads the ledger", Attempt::Read(text("state.json"))),
            ("reads another's disk", Attempt::Read(text("w/other/disk.qcow2"))),
            ("writes to another's disk", Attempt::Write(text("w/other/disk.qcow2"))),
            ("opens its base layer by name", Attempt::Write(text("w/own/layer0"))),
            ("writes to its base layer", Attempt::WriteGiven(frozen)),
            ("writes to a template", Attempt::Write(text("templates/t/ram"))),
            ("adds to a template", Attempt::Create(text("templates/t/x"))),
            ("reads what else a template has", Attempt::Read(text("templates/t/manifest.json"))),
            ("lists the host's processes", Attempt::List("/proc".to_owned())),
            ("lists the host's devices", Attempt::List("/sys".to_owned())),
            ("reads the host's disk", Attempt::Read("/dev/vda".to_owned())),
            ("reads the host's memory", Attempt::Read("/dev/mem".to_owned())),
            ("uses KVM without a reason", Attempt::Read("/dev/kvm".to_owned())),
            ("writes to its root directory", Attempt::Create("/x".to_owned())),
            ("writes to the system", Attempt::Create("/usr/lib/x".to_owned())),
            ("runs a shell", Attempt::Read("/usr/bin/env".to_owned())),
            ("connects to the daemon", Attempt::Connect(text("run/daemon.sock"))),
            ("connects to another's control socket", Attempt::Connect(text("run/other/qmp.sock"))),
            ("connects to another's network", Attempt::Connect(text("run/n-other.d/s"))),
            ("connects to an abstract socket", Attempt::ConnectAbstract(self.abstract_name())),
            ("connects to a port", Attempt::Tcp(self.tcp.local_addr().unwrap().port())),
            ("sends a datagram", Attempt::Udp(self.udp.local_addr().unwrap().port())),
            ("is reached at a port", Attempt::Listen),
            ("resolves a name", Attempt::Resolve("host.invalid".to_owned())),
            ("signals a neighbour", Attempt::Signal(pid)),
            ("signals the daemon", Attempt::Signal(std::process::id() as i32)),
            ("traces a neighbour", Attempt::Trace(pid)),
            ("traces the daemon", Attempt::Trace(std::process::id() as i32)),
            ("mounts", Attempt::Mount),
            ("becomes root", Attempt::BecomeRoot),
            ("makes a device", Attempt::MakeDevice(format!("{}/mem", self.text("run/own")))),
            ("changes its root", Attempt::Chroot),
            ("has capabilities", Attempt::HaveCapabilities),
            ("gains privileges", Attempt::GainPrivileges),
            ("exceeds its limits", Attempt::ExceedLimits),
        ];
        if self.jail != Jail::Landlock {
            // It shares the host's numbers of processes; what it must not do with them is above.
            forbidden.push(("sees other processes", Attempt::CountProcesses));
        }
        forbidden
    }

    fn needed(&self, head: i32, network: i32) -> Vec<(&'static str, Attempt)> {
        let connects = match self.jail {
            Jail::Landlock => Attempt::WriteGiven(network),
            Jail::Users | Jail::UserNamespace | Jail::None => Attempt::Connect(self.text("run/n-own.d/s")),
        };
        vec![
            ("reads its memory's template", Attempt::Read(self.text("templates/t/ram"))),
            ("writes to the memory it makes", Attempt::Write(self.text("building/ram"))),
            ("writes to its disk", Attempt::WriteGiven(head)),
            ("uses its network", connects),
            ("writes its process id", Attempt::Create(format!("{}/qemu.pid", self.text("run/own")))),
            ("has random numbers", Attempt::Read("/dev/urandom".to_owned())),
        ]
    }

    fn abstract_name(&self) -> String {
        format!("agentiso-jail-{}", self.dir.path().file_name().unwrap().to_string_lossy())
    }

    pub(crate) async fn play(mut self) {
        for socket in ["run/daemon.sock", "run/other/qmp.sock", "run/n-other.d/s", "run/n-own.d/s"] {
            self.listen(socket);
        }
        let name = SocketAddr::from_abstract_name(self.abstract_name()).unwrap();
        self.sockets.push(UnixListener::bind_addr(&name).unwrap());
        let uid = uid_of(WorkspaceId::random());
        if self.jail == Jail::Users {
            for path in ["building/ram", "run/n-own.d", "run/n-own.d/s"] {
                chown(self.path(path), Some(uid), Some(uid)).unwrap();
            }
        }
        let head: OwnedFd = File::options().append(true).open(self.path("w/own/head")).unwrap().into();
        let frozen: OwnedFd = File::open(self.path("w/own/layer0")).unwrap().into();
        let network: OwnedFd = UnixStream::connect(self.path("run/n-own.d/s")).unwrap().into();
        fs::create_dir(self.path("run/own")).unwrap();
        let forbidden = self.forbidden(frozen.as_raw_fd());
        let needed = self.needed(head.as_raw_fd(), network.as_raw_fd());
        let plan = self.path("plan");
        let all: Vec<_> = forbidden.iter().chain(&needed).cloned().collect();
        fs::write(&plan, serde_json::to_vec(&all).unwrap()).unwrap();
        let told = self.run(&plan, uid, vec![head, frozen, network]).await;
        let outcome = |name: &str| {
            let mark = format!("[{name}] ");
            told.lines()
                .find_map(|line| line.strip_prefix(&mark))
                .unwrap_or_else(|| panic!("{name}: {told}"))
                .to_owned()
        };
        let reached: Vec<_> = forbidden.iter().filter(|(name, _)| outcome(name) == "done").collect();
        assert!(reached.is_empty(), "{reached:?}: {told}");
        let missing: Vec<_> = needed.iter().filter(|(name, _)| outcome(name) != "done").collect();
        assert!(missing.is_empty(), "{missing:?}: {told}");
        assert_eq!(fs::read_to_string(self.path("w/own/layer0")).unwrap(), "secret");
        assert_eq!(fs::read_to_string(self.path("w/own/head")).unwrap(), "secretx");
        let is_shared = self.jail == Jail::Landlock;
        assert_eq!(self.path("run/own/qemu.pid").exists(), is_shared, "its own directory is not the host's");
    }

    async fn run(&self, plan: &Path, uid: u32, inherited: Vec<OwnedFd>) -> String {
        let program = std::env::current_exe().unwrap();
        let cell = Cell::new(self.jail, uid, &program)
            .show(plan, View::ReadOnly)
            .show(&self.path("templates/t/ram"), View::ReadOnly)
            .show(&self.path("building/ram"), View::Writable)
            .show(&self.path("run/n-own.d"), View::ReadOnly)
            .scratch(&self.path("run/own"));
        let arguments = ["--ignored", "--exact", "--nocapture", "prisoner", plan.to_str().unwrap()];
        let log = self.path("log");
        let launch = Launch {
            program,
            arguments: arguments.map(Into::into).to_vec(),
            log: log.clone(),
            inherited,
            priority: Priority::Ordinary,
            group: None,
            cell,
        };
        let process = launch.spawn().unwrap();
        // It may have ended already.
        assert!(of_process(process.pid()).is_none_or(|jail| jail == self.jail));
        let exit = tokio::time::timeout(DEADLINE, process.wait()).await;
        let told = fs::read_to_string(&log).unwrap();
        assert_eq!(exit.expect("it ends"), Exit::Code(0), "{told}");
        told
    }
}
