//! A host with everything that a prisoner must not reach, and everything that it needs.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_sys::jail::{Cell, Jail, View, of_process, uid_of};
use agentiso_sys::process::{Exit, Launch, Priority};

use crate::prisoner::{self, Attempt};

const DEADLINE: Duration = Duration::from_secs(60);

/// A process that represents another workspace's QEMU.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The users who can do without a jail what is forbidden in one.
#[derive(Clone, Copy, Debug)]
enum PossibleFor {
    Anybody,
    Root,
    /// Depends on the host's devices, file systems and kernel.
    SomeHosts,
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
        // A daemon may have been started with any umask; the strictest one must not matter.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
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
            "w/own/layer1",
            "templates/t/ram",
            "building/ram",
            "templates/t/manifest.json",
        ] {
            fs::create_dir_all(world.path(file).parent().unwrap()).unwrap();
            world.write(file, b"secret");
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes a file that every user who sees it could read.
    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }

    fn listen(&mut self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        self.sockets.push(UnixListener::bind(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// The attempts that must be refused in a jail, and the users who succeed without one.
    fn forbidden(&self, frozen: i32) -> Vec<(&'static str, Attempt, PossibleFor)> {
        let text = |name: &str| self.text(name);
        let pid = self.neighbour.0.id() as i32;
        let daemon = std::process::id() as i32;
        let of_root = |name, attempt| (name, attempt, PossibleFor::Root);
        let of_anybody = |name, attempt| (name, attempt, PossibleFor::Anybody);
        let of_some_hosts = |name, attempt| (name, attempt, PossibleFor::SomeHosts);
        let key = text("home/.ssh/id_ed25519");
        let mut forbidden = vec![
            of_root("reads the host's passwords", Attempt::Read("/etc/shadow".to_owned())),
            of_anybody("reads the host's users", Attempt::Read("/etc/passwd".to_owned())),
            of_anybody("reads a key of the user", Attempt::Read(key.clone())),
            of_anybody("reads the ledger", Attempt::Read(text("state.json"))),
            of_anybody("reads another's disk", Attempt::Read(text("w/other/disk.qcow2"))),
            of_anybody("writes to another's disk", Attempt::Write(text("w/other/disk.qcow2"))),
            of_anybody("opens its base layer by name", Attempt::Write(text("w/own/layer1"))),
            of_anybody("writes to a template", Attempt::Write(text("templates/t/ram"))),
            of_anybody("adds to a template", Attempt::Create(text("templates/t/x"))),
            of_anybody("reads what else a template has", Attempt::Read(text("templates/t/manifest.json"))),
            of_anybody("opens its base layer once more", Attempt::Reopen(frozen)),
            of_anybody("closes its base layer for everybody", Attempt::ModeOfGiven(frozen)),
            of_anybody("changes its base layer's times", Attempt::TimesOfGiven(frozen)),
            of_some_hosts("marks its base layer", Attempt::AttributeOfGiven(frozen)),
            of_some_hosts("sets its base layer's flags", Attempt::FlagsOfGiven(frozen)),
            of_anybody("locks its base layer", Attempt::LockGiven(frozen)),
            of_anybody("delays who opens its base layer", Attempt::LeaseGiven(frozen)),
            of_anybody("has a neighbour signalled", Attempt::SignalsOfGiven(frozen, pid)),
            of_anybody("closes a file of the user", Attempt::Mode(key)),
            of_anybody("watches what others open", Attempt::Watch("/usr/lib".to_owned())),
            of_anybody("lists the host's processes", Attempt::List("/proc".to_owned())),
            of_anybody("lists the host's devices", Attempt::List("/sys".to_owned())),
            of_some_hosts("reads the host's disk", Attempt::Read("/dev/vda".to_owned())),
            of_some_hosts("reads the host's memory", Attempt::Read("/dev/mem".to_owned())),
            of_some_hosts("uses KVM without a reason", Attempt::Read("/dev/kvm".to_owned())),
            of_root("writes to its root directory", Attempt::Create(format!("/{}", self.mark()))),
            of_root("writes to the system", Attempt::Create(format!("/usr/lib/{}", self.mark()))),
            of_anybody("runs a shell", Attempt::Read("/usr/bin/env".to_owned())),
            of_anybody("connects to the daemon", Attempt::Connect(text("run/daemon.sock"))),
            of_anybody("connects to another's control socket", Attempt::Connect(text("run/other/qmp.sock"))),
            of_anybody("connects to another's network", Attempt::Connect(text("run/n-other.d/s"))),
            of_anybody("connects to an abstract socket", Attempt::ConnectAbstract(self.mark())),
            of_anybody("writes to the host's log", Attempt::Datagram(text("run/log"))),
            of_anybody("connects to a port", Attempt::Tcp(self.tcp.local_addr().unwrap().port())),
            of_anybody("sends a datagram", Attempt::Udp(self.udp.local_addr().unwrap().port())),
            of_anybody("is reached at a port", Attempt::Listen),
            of_anybody("asks the kernel about networks", Attempt::Family(libc::AF_NETLINK)),
            of_some_hosts("speaks to other VMs", Attempt::Family(libc::AF_VSOCK)),
            of_anybody("resolves a name", Attempt::Resolve("localhost".to_owned())),
            of_anybody("signals a neighbour", Attempt::Signal(pid)),
            of_anybody("signals the daemon", Attempt::Signal(daemon)),
            of_some_hosts("traces a neighbour", Attempt::Trace(pid)),
            of_some_hosts("traces the daemon", Attempt::Trace(daemon)),
            of_some_hosts("reads a neighbour's memory", Attempt::Memory(pid, self.address_of_neighbour())),
            of_anybody("takes hold of a neighbour", Attempt::Hold(pid)),
            of_anybody("limits a neighbour", Attempt::Limits(pid)),
            of_anybody("slows a neighbour down", Attempt::Priority(pid)),
            of_anybody("leaves a process behind", Attempt::Fork),
            of_some_hosts("makes a user namespace", Attempt::MakeNamespace),
            of_anybody("leaves what it shares", Attempt::Unshare),
            of_some_hosts("uses the user's keys", Attempt::Keyring),
            of_anybody("shares memory by number", Attempt::SharedMemory),
            of_some_hosts("has the kernel make its calls", Attempt::Uring),
            of_root("mounts", Attempt::Mount(text("run/own"))),
            of_root("becomes root", Attempt::BecomeRoot),
            of_root("makes a device", Attempt::MakeDevice(text("run/own/mem"))),
            of_root("changes its root", Attempt::Chroot),
            of_root("has capabilities", Attempt::HaveCapabilities),
            of_anybody("exceeds its limits", Attempt::ExceedLimits),
        ];
        if self.jail != Jail::Landlock {
            // Under Landlock a program shares the host's process ids; the attempts above cover what it must not do with
            // them. And an ordinary user cannot drop capabilities for good that it does not have.
            forbidden.push(of_anybody("sees other processes", Attempt::CountProcesses));
            forbidden.push(of_root("could have capabilities", Attempt::RegainCapabilities));
        }
        forbidden
    }

    /// The attempts that fail without a jail too, because of how every program is started and what it is given.
    fn impossible(&self, frozen: i32) -> Vec<(&'static str, Attempt)> {
        vec![
            ("writes to its base layer", Attempt::WriteGiven(frozen)),
            ("gains privileges", Attempt::GainPrivileges),
        ]
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
            ("writes its process id", Attempt::Make(self.text("run/own/qemu.pid"))),
            ("has random numbers", Attempt::Read("/dev/urandom".to_owned())),
            ("signals itself", Attempt::SignalItself),
        ]
    }

    /// A name that nothing else on this host has.
    fn mark(&self) -> String {
        format!("agentiso-jail-{}", self.dir.path().file_name().unwrap().to_string_lossy())
    }

    fn address_of_neighbour(&self) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.neighbour.0.id())).unwrap();
        let start = maps.split('-').next().unwrap();
        u64::from_str_radix(start, 16).unwrap()
    }

    pub(crate) async fn play(mut self) {
        for socket in ["run/daemon.sock", "run/other/qmp.sock", "run/n-other.d/s", "run/n-own.d/s"] {
            self.listen(socket);
        }
        let name = SocketAddr::from_abstract_name(self.mark()).unwrap();
        self.sockets.push(UnixListener::bind_addr(&name).unwrap());
        let _log = UnixDatagram::bind(self.path("run/log")).unwrap();
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
        let impossible = self.impossible(frozen.as_raw_fd());
        let needed = self.needed(head.as_raw_fd(), network.as_raw_fd());
        let plan = self.path(prisoner::PLAN);
        let all = forbidden.iter().map(|(name, attempt, _)| (*name, attempt.clone()));
        let all: Vec<_> = all.chain(impossible.iter().chain(&needed).cloned()).collect();
        self.write(prisoner::PLAN, &serde_json::to_vec(&all).unwrap());
        let told = self.run(&plan, uid, vec![head, frozen, network]).await;
        let is_done = |name: &str| {
            let mark = format!("[{name}] ");
            let outcome = told.lines().find_map(|line| line.strip_prefix(&mark));
            outcome.unwrap_or_else(|| panic!("{name}: {told}")) == "done"
        };
        let reached = impossible.iter().map(|(name, _)| *name).filter(|name| is_done(name));
        assert_eq!(reached.collect::<Vec<_>>(), Vec::<&str>::new(), "{told}");
        let missing = needed.iter().map(|(name, _)| *name).filter(|name| !is_done(name));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new(), "{told}");
        // An attempt that is refused without a jail too would prove nothing about jails.
        let is_root = rustix::process::geteuid().is_root();
        let unexpected = forbidden.iter().filter(|(name, _, by)| match (self.jail, by) {
            (Jail::None, PossibleFor::Anybody) => !is_done(name),
            (Jail::None, PossibleFor::Root) => is_root && !is_done(name),
            (Jail::None, PossibleFor::SomeHosts) => false,
            (Jail::Users | Jail::UserNamespace | Jail::Landlock, _) => is_done(name),
        });
        assert_eq!(unexpected.map(|(name, ..)| *name).collect::<Vec<_>>(), Vec::<&str>::new(), "{told}");
        assert_eq!(fs::read_to_string(self.path("w/own/layer0")).unwrap(), "secret");
        assert_eq!(fs::read_to_string(self.path("w/own/head")).unwrap(), "secretx");
        let is_shared = matches!(self.jail, Jail::Landlock | Jail::None);
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
        let log = self.path("log");
        let launch = Launch {
            program,
            arguments: prisoner::arguments(plan).map(Into::into).to_vec(),
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
