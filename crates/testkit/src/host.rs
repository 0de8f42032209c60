//! An agentiso host for one test: configuration, state directory, daemon and clients.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::process::{Process, processes_mentioning};
use crate::skip::test_cache;
use crate::user;
use crate::wait::eventually;

/// Options of a test host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Lines of TOML that are added to the configuration.
    pub config: String,
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_gb: u32,
    pub max_workspaces: u32,
    pub environment: Vec<(String, String)>,
    pub base_image: String,
    /// The parent of the host's directory. It must be short, because socket paths must be.
    pub parent: PathBuf,
    /// The network namespace of the daemon and its VMs; `None` is the test's own.
    pub namespace: Option<String>,
    /// Whether the daemon keeps root's privileges, if the test has them.
    pub privileged: bool,
    /// The user id of the daemon, if not that of the test. Only root can set it.
    pub user: Option<u32>,
    /// Whether the host has its own copy of the shared images and kernels: another build leaves its own files there.
    pub own_cache: bool,
}

/// Runs a program as root but without privileges. The kernel requires `setfcap` of root (and of no other user) to make
/// a user namespace; it gives no access to any file.
const UNPRIVILEGED: [&str; 4] =
    ["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all,+setfcap", "--no-new-privs"];

/// The capabilities that a host without privileges has left: `setfcap`.
pub const UNPRIVILEGED_CAPABILITIES: u64 = 1 << 31;

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            config: String::new(),
            vcpus: 1,
            memory_mb: 256,
            disk_gb: 2,
            max_workspaces: 20,
            environment: Vec::new(),
            base_image: "debian-minimal".to_owned(),
            parent: PathBuf::from("/tmp"),
            namespace: None,
            privileged: true,
            user: None,
            own_cache: false,
        }
    }
}

#[derive(Debug)]
pub struct TestHost {
    /// In /tmp by default, regardless of TMPDIR: socket paths must be short.
    dir: TempDir,
    binary: PathBuf,
    options: HostOptions,
}

impl TestHost {
    pub fn start() -> Self {
        Self::start_with(HostOptions::default())
    }

    pub fn start_with(options: HostOptions) -> Self {
        let dir = tempfile::Builder::new().prefix("aiso-").tempdir_in(&options.parent).expect("a directory");
        let binary = match options.user {
            Some(user) => user::settle(dir.path(), user, &binary(), test_cache().as_deref()),
            None => binary(),
        };
        if let Some(cache) = test_cache().filter(|_| options.own_cache && options.user.is_none()) {
            user::copy_cache(&cache, dir.path());
        }
        let host = Self { dir, binary, options };
        std::fs::write(host.config_path(), host.config_text()).expect("the configuration is written");
        host
    }

    fn config_text(&self) -> String {
        let HostOptions { config, vcpus, memory_mb, disk_gb, max_workspaces, base_image, .. } = &self.options;
        let mut text = format!("[server]\nstate_file = \"{}\"\n", self.state_file().display());
        let _ = write!(text, "[storage]\nbase_image = \"{base_image}\"\n");
        let has_own = self.options.own_cache || self.options.user.is_some();
        let own = has_own.then(|| user::cache_below(self.dir()));
        if let Some(cache) = own.or_else(test_cache) {
            let _ = writeln!(text, "cache_dir = \"{}\"", cache.display());
        }
        let _ = write!(
            text,
            "[resources]\ndefault_vcpus = {vcpus}\ndefault_memory_mb = {memory_mb}\ndefault_disk_gb = {disk_gb}\n\
             max_workspaces = {max_workspaces}\n[rate_limit]\nenabled = false\n{config}\n",
        );
        // The warm pool is off unless a test asks for it: its VMs would disturb other tests.
        if !config.contains("[pool]") {
            text.push_str("[pool]\nenabled = false\n");
        }
        text
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The binary under test.
    pub fn program(&self) -> &Path {
        &self.binary
    }

    /// Uses another build of agentiso from here on, with the same files. A running daemon is not affected.
    pub fn switch_to(&mut self, binary: &Path) {
        self.binary = binary.to_owned();
    }

    pub fn data(&self) -> PathBuf {
        self.dir().join("data")
    }

    pub fn state_file(&self) -> PathBuf {
        self.data().join("state.json")
    }

    pub fn config_path(&self) -> PathBuf {
        self.dir().join("config.toml")
    }

    /// A client after its handshake. The first one starts the daemon.
    pub fn client(&self) -> Client {
        let client = self.raw_client(&[]);
        client.initialize();
        client
    }

    /// A client on `agentiso serve` that has sent nothing yet.
    pub fn raw_client(&self, arguments: &[&str]) -> Client {
        let mut command = self.command();
        command.arg("serve").arg("--config").arg(self.config_path()).args(arguments);
        Client::spawn(command)
    }

    /// Starts `agentiso ARGUMENTS --config …` with piped output.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command();
        command.args(arguments).arg("--config").arg(self.config_path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("agentiso starts")
    }

    /// An `agentiso` command in this host's environment, for uses that the other methods do not cover.
    pub fn command(&self) -> Command {
        let HostOptions { namespace, privileged, user, .. } = &self.options;
        let mut words: Vec<OsString> = Vec::new();
        if let Some(name) = namespace {
            words.extend(["ip", "netns", "exec", name].map(OsString::from));
        }
        if (!privileged || user.is_some()) && rustix::process::geteuid().is_root() {
            words.extend(UNPRIVILEGED.map(OsString::from));
        }
        if let Some(user) = user {
            let them = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()];
            words.extend(them.map(OsString::from));
        }
        words.push(self.binary.clone().into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir()).env("RUST_LOG", "warn");
        command.envs(self.options.environment.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Runs `agentiso ARGUMENTS --config …` to its end.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        self.cli_in(&[], arguments)
    }

    /// Like [`Self::cli`], with these environment variables. A daemon that it starts inherits them.
    pub fn cli_in(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
        let (own, guest) = match arguments.iter().position(|a| *a == "--") {
            Some(at) => arguments.split_at(at),
            None => (arguments, &[][..]),
        };
        self.command()
            .envs(environment.iter().copied())
            .args(own)
            .arg("--config")
            .arg(self.config_path())
            .args(guest)
            .output()
            .expect("agentiso runs")
    }

    /// Like [`Self::cli`], and it must succeed.
    pub fn cli_ok(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "agentiso {arguments:?} failed: {stderr}");
        String::from_utf8(output.stdout).expect("UTF-8 from agentiso")
    }

    pub fn state(&self) -> serde_json::Value {
        let text = std::fs::read(self.state_file()).expect("there is a state file");
        serde_json::from_slice(&text).expect("the state file is JSON")
    }

    pub fn daemon(&self) -> Option<Process> {
        let text = std::fs::read_to_string(self.data().join("agentiso.lock")).ok()?;
        let process = Process::open(text.trim().parse().ok()?)?;
        processes_mentioning(self.dir()).contains(&process.pid).then_some(process)
    }

    pub fn kill_daemon(&self) {
        self.daemon().expect("a daemon runs").kill();
    }

    /// Ends the daemon with SIGTERM and waits for its end.
    pub fn stop_daemon(&self) {
        if let Some(daemon) = self.daemon() {
            daemon.signal(Signal::TERM);
            daemon.wait_gone(Duration::from_secs(90));
        }
    }

    /// The pids of the QEMU processes of this host's workspaces, without those that only make a template.
    pub fn vms(&self) -> Vec<i32> {
        let templates = self.data().join("run/t-");
        let making_templates = processes_mentioning(&templates);
        processes_mentioning(self.dir())
            .into_iter()
            .filter(|pid| !making_templates.contains(pid))
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm.starts_with("qemu"))
            })
            .collect()
    }

    /// The number of workspace directories.
    pub fn workspace_dirs(&self) -> usize {
        std::fs::read_dir(self.data().join("workspaces")).map_or(0, Iterator::count)
    }

    /// Asserts that nothing of any workspace is left: no process, no directory, no socket, no ledger entry.
    pub fn assert_no_workspaces_left(&self) {
        let limit = Duration::from_secs(30);
        eventually("VMs end", limit, || self.vms().is_empty());
        eventually("the ledger is empty", limit, || self.state()["workspaces"] == serde_json::json!({}));
        assert_eq!(self.workspace_dirs(), 0, "workspace directories were left behind");
        let left: Vec<_> = std::fs::read_dir(self.data().join("run"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != "daemon.sock" && name != "owner" && !name.starts_with("t-"))
            .collect();
        assert!(left.is_empty(), "left in the run directory: {left:?}");
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon() {
            daemon.signal(Signal::TERM);
            if !std::thread::panicking() {
                daemon.wait_gone(Duration::from_secs(90));
            }
        }
        if std::thread::panicking() {
            show_daemon_log(&self.data());
            for process in processes_mentioning(self.dir()).into_iter().filter_map(Process::open) {
                process.signal(Signal::KILL);
            }
        } else {
            // A process that the daemon killed last may take a moment to free its memory.
            eventually("every process of this host is gone", Duration::from_secs(10), || {
                processes_mentioning(self.dir()).is_empty()
            });
        }
    }
}

#[expect(clippy::print_stderr, reason = "the daemon's log explains a failed test")]
fn show_daemon_log(data: &Path) {
    if let Ok(log) = std::fs::read_to_string(data.join("daemon.log")) {
        let tail: Vec<_> = log.lines().rev().take(40).collect();
        eprintln!("--- end of the daemon's log");
        for line in tail.into_iter().rev() {
            eprintln!("{line}");
        }
    }
}

/// The binary under test: `AGENTISO_BIN`, or the one beside this test's own target directory.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("AGENTISO_BIN") {
        return PathBuf::from(path);
    }
    let own = std::env::current_exe().expect("a test has a path");
    let profile = own.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    profile.join("agentiso")
}
