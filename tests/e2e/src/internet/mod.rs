//! "The internet", and the host beside it: two network namespaces and a cable between them.
//!
//! ```text
//!   host namespace                        outside namespace
//!   ┌────────────────────────┐            ┌────────────────────────────────────────────┐
//!   │ agentiso, its machines │ 198.51.    │ 203.0.113.10, .11   servers with names     │
//!   │ a service on port 8000 │ 100.1 ── .2│ 192.168.77.1, 10.0.0.7   somebody's network │
//!   │                        │            │ 169.254.169.254     the cloud's metadata   │
//!   └────────────────────────┘            └────────────────────────────────────────────┘
//! ```
//!
//! All of the outside would answer if it were asked, and tells what it was asked: that something was refused shows in
//! the guest, and that nothing arrived shows here. The addresses are those for documentation, so nothing leaves the
//! machine even if a route were missing.

mod repositories;
mod services;

use std::process::Output;

use agentiso_testkit::HostOptions;
use tempfile::TempDir;

use crate::namespace::{Namespace, sweep};
use repositories::Repositories;
use services::Services;

/// A server outside that goes by several names.
pub const SERVER: &str = "203.0.113.10";

/// Another one.
pub const OTHER_SERVER: &str = "203.0.113.11";

/// Where nobody answers, not even to say so.
pub const SILENT: &str = "203.0.113.99";

/// The host itself, as the outside sees it.
pub const HOST: &str = "198.51.100.1";

/// The host's resolver.
pub const RESOLVER: &str = "198.51.100.2";

/// Addresses that answer and that no policy opens by `allow_internet`.
pub const NOT_PUBLIC: [&str; 4] = ["192.168.77.1", "10.0.0.7", "100.64.0.9", METADATA];

/// Where clouds tell a machine its secrets.
pub const METADATA: &str = "169.254.169.254";

/// The port of the host's own service.
pub const HOST_PORT: u16 = 8000;

/// Ports of every server outside: one answers and closes, one keeps whatever connects, one tells what it receives.
pub const HELLO_PORT: u16 = 7;
pub const KEEPING_PORT: u16 = 9;
pub const TELLING_PORT: u16 = 81;

/// The commits of the repository that is there from the beginning.
pub const DRAFTS: [&[(&str, &str)]; 3] = [
    &[("README", "a first draft\n")],
    &[("README", "a second draft\n")],
    &[("README", "hello from the repository\n")],
];

#[derive(Debug)]
pub struct Internet {
    // Dropped in this order: the servers end before the namespaces they are in.
    servers: Services,
    at_home: Services,
    host: Namespace,
    outside: Namespace,
    repositories: Repositories,
    dir: TempDir,
}

impl Internet {
    /// The reason if this machine does not let us.
    pub fn make() -> Result<Self, String> {
        sweep();
        let (host, outside) = (Namespace::make()?, Namespace::make()?);
        host.ip(&["link", "add", "out", "type", "veth", "peer", "name", "in", "netns", &outside.name])?;
        host.ip(&["address", "add", "198.51.100.1/24", "dev", "out"])?;
        host.ip(&["link", "set", "out", "up"])?;
        outside.ip(&["address", "add", "198.51.100.2/24", "dev", "in"])?;
        outside.ip(&["link", "set", "in", "up"])?;
        for address in [SERVER, OTHER_SERVER].into_iter().chain(NOT_PUBLIC) {
            outside.ip(&["address", "add", &format!("{address}/32"), "dev", "lo"])?;
        }
        host.ip(&["route", "add", "default", "via", RESOLVER])?;
        // What the bridge forwards is answered by way of this interface; the gateway does not care.
        host.set("net/ipv4/conf/out/forwarding", "1")?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        services::certificate(dir.path())?;
        let repositories = Repositories::below(dir.path());
        repositories.make("project.git", &DRAFTS)?;
        let at_home = Services::start(&host, "host", dir.path())?;
        let servers = Services::start(&outside, "outside", dir.path())?;
        Ok(Self { servers, at_home, host, outside, repositories, dir })
    }

    /// A host of agentiso in the host's namespace.
    pub fn host_options(&self, network: &str) -> HostOptions {
        let config = format!("[network]\ndns_servers = [\"{RESOLVER}\"]\n{network}");
        // The gateway must do without; the bridge cannot.
        let privileged = network.contains("\"bridge\"");
        HostOptions { config, namespace: Some(self.host.name.clone()), privileged, ..HostOptions::default() }
    }

    /// What the servers outside were asked, one line each: `dns NAME TYPE`, `http ADDRESS HOST PATH`, `tls NAME`,
    /// `git ADDRESS`, `told ADDRESS TEXT`, and how that ended: `ended ADDRESS` or `reset ADDRESS`; `udp ADDRESS TEXT`.
    pub fn asked(&self) -> Vec<String> {
        self.servers.lines()
    }

    /// What of it speaks of this.
    pub fn asked_for(&self, part: &str) -> Vec<String> {
        self.asked().into_iter().filter(|line| line.contains(part)).collect()
    }

    /// What the host's own service was asked.
    pub fn asked_at_home(&self) -> Vec<String> {
        self.at_home.lines()
    }

    /// Connects from the host to a port of its loopback and reads to the end: what came, or why nothing did.
    pub fn greeting_at_host(&self, address: &str, port: u64) -> String {
        greeting(&self.host, address, port, "")
    }

    /// The same from outside.
    pub fn greeting_from_outside(&self, address: &str, port: u64) -> String {
        greeting(&self.outside, address, port, "")
    }

    /// The same after asking for something.
    pub fn request_from_outside(&self, address: &str, port: u64, request: &str) -> String {
        greeting(&self.outside, address, port, request)
    }

    /// Has the servers offer one more repository, which may be cloned and pushed to over HTTP and over git's own
    /// protocol; one below `private` over HTTP only by `ann` with the password `hunter22`. Each commit adds its files to those before it. There is a `project.git` already.
    pub fn repository(&self, name: &str, commits: &[&[(&str, &str)]]) {
        self.repositories.make(name, commits).expect("git makes a repository");
    }

    /// What git says in a repository of the servers, without the last newline.
    pub fn git(&self, name: &str, words: &[&str]) -> String {
        self.repositories.git(name, words, "").expect("git knows what to do")
    }

    /// What a shell of the host says.
    pub fn sh_at_host(&self, command: &str) -> String {
        let output = self.host.command("sh").args(["-ec", command]).output().expect("a shell starts");
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The certificate that the servers' own is signed with.
    pub fn authority(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("authority.pem")).unwrap_or_default()
    }
}

fn greeting(from: &Namespace, address: &str, port: u64, request: &str) -> String {
    let mut command = from.command("python3");
    command.args(["-c", include_str!("greeting.py"), address, &port.to_string(), request]);
    match command.output() {
        Ok(Output { stdout, .. }) => String::from_utf8_lossy(&stdout).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// An internet of the test's own, or a return from the test after recording why there is none.
#[macro_export]
macro_rules! internet_or_skip {
    () => {
        match $crate::internet::Internet::make() {
            Ok(internet) => internet,
            Err(reason) => return agentiso_testkit::record_skip(&reason),
        }
    };
}
