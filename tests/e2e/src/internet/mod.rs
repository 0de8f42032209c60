//! "The internet", and the host beside it: two network namespaces and a cable between them.
//!
//! ```text
//!   host namespace                        outside namespace
//!   ┌────────────────────────┐            ┌────────────────────────────────────────────┐
//!   │ agentiso and its VMs   │ 198.51.    │ 203.0.113.10, .11   servers with names     │
//!   │ a service on port 8000 │ 100.1 ── .2│ 192.168.77.1, 10.0.0.7   private networks  │
//!   │                        │            │ 169.254.169.254     the cloud's metadata   │
//!   └────────────────────────┘            └────────────────────────────────────────────┘
//! ```
//!
//! Every server outside answers and records all requests. So a test can see in the guest that a connection was refused,
//! and here that nothing arrived. The addresses are reserved for documentation, so nothing leaves the host even if a
//! route is missing.

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

/// Another server outside.
pub const OTHER_SERVER: &str = "203.0.113.11";

/// An address that never answers, not even with a refusal.
pub const SILENT: &str = "203.0.113.99";

/// The host itself, as the outside sees it.
pub const HOST: &str = "198.51.100.1";

/// The host's resolver.
pub const RESOLVER: &str = "198.51.100.2";

/// Addresses that answer and that no policy opens by `allow_internet`.
pub const NOT_PUBLIC: [&str; 4] = ["192.168.77.1", "10.0.0.7", "100.64.0.9", METADATA];

/// The metadata service of clouds, from which a VM gets its secrets.
pub const METADATA: &str = "169.254.169.254";

/// The port of the host's own service.
pub const HOST_PORT: u16 = 8000;

/// Ports of every server outside: one answers and closes, one keeps connections open, one records what it receives.
pub const HELLO_PORT: u16 = 7;
pub const KEEPING_PORT: u16 = 9;
pub const TELLING_PORT: u16 = 81;

/// The commits of `project.git`, which exists from the beginning.
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
    /// Fails with the reason if the host does not permit namespaces.
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
        // Answers to packets that the bridge forwards come in at this interface. The gateway does not need it.
        host.set("net/ipv4/conf/out/forwarding", "1")?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        services::certificate(dir.path())?;
        let repositories = Repositories::below(dir.path());
        repositories.make("project.git", &DRAFTS)?;
        let at_home = Services::start(&host, "host", dir.path())?;
        let servers = Services::start(&outside, "outside", dir.path())?;
        Ok(Self { servers, at_home, host, outside, repositories, dir })
    }

    /// Options for an agentiso host in the host namespace.
    pub fn host_options(&self, network: &str) -> HostOptions {
        let config = format!("[network]\ndns_servers = [\"{RESOLVER}\"]\n{network}");
        // The gateway must work without privileges; the bridge needs them.
        let privileged = network.contains("\"bridge\"");
        HostOptions { config, namespace: Some(self.host.name.clone()), privileged, ..HostOptions::default() }
    }

    /// The requests that the servers outside received, one line each: `dns NAME TYPE`, `http ADDRESS HOST PATH`, `tls
    /// NAME`, `git ADDRESS`, `told ADDRESS TEXT` with its end, `ended ADDRESS` or `reset ADDRESS`, and `udp ADDRESS
    /// TEXT`.
    pub fn asked(&self) -> Vec<String> {
        self.servers.lines()
    }

    /// The recorded requests that contain this text.
    pub fn asked_for(&self, part: &str) -> Vec<String> {
        self.asked().into_iter().filter(|line| line.contains(part)).collect()
    }

    /// The requests that the host's own service received.
    pub fn asked_at_home(&self) -> Vec<String> {
        self.at_home.lines()
    }

    /// Connects from the host and reads to the end. Returns the data, or a word for the error.
    pub fn greeting_at_host(&self, address: &str, port: u64) -> String {
        greeting(&self.host, address, port, "")
    }

    /// Like [`Self::greeting_at_host`], from outside.
    pub fn greeting_from_outside(&self, address: &str, port: u64) -> String {
        greeting(&self.outside, address, port, "")
    }

    /// Like [`Self::greeting_from_outside`], after sending a request.
    pub fn request_from_outside(&self, address: &str, port: u64, request: &str) -> String {
        greeting(&self.outside, address, port, request)
    }

    /// Adds a repository to the servers. It can be cloned and pushed to over HTTP and over git's own protocol. A
    /// repository below `private` is served over HTTP only, to `ann` with the password `hunter22`. Each commit adds its
    /// files to those before it.
    pub fn repository(&self, name: &str, commits: &[&[(&str, &str)]]) {
        self.repositories.make(name, commits).expect("git makes a repository");
    }

    /// Runs git in a repository of the servers and returns its output without the last newline.
    pub fn git(&self, name: &str, words: &[&str]) -> String {
        self.repositories.git(name, words, "").expect("git knows what to do")
    }

    /// Runs a shell command in the host namespace and returns its output.
    pub fn sh_at_host(&self, command: &str) -> String {
        let output = self.host.command("sh").args(["-ec", command]).output().expect("a shell starts");
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The certificate of the authority that signed the servers' certificate.
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

/// Makes an internet for the test, or records why that is impossible and returns from the test.
#[macro_export]
macro_rules! internet_or_skip {
    () => {
        match $crate::internet::Internet::make() {
            Ok(internet) => internet,
            Err(reason) => return agentiso_testkit::record_skip(&reason),
        }
    };
}
