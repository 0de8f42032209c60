//! Network namespaces for one test. They are deleted on drop.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The prefix of all names. The number of the process that made the namespace follows.
const PREFIX: &str = "aiso";

static MADE: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
}

impl Namespace {
    /// Fails with the reason if the host does not permit namespaces.
    pub(crate) fn make() -> Result<Self, String> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        run(&["ip", "netns", "add", &name])?;
        let made = Self { name };
        made.ip(&["link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// `ip ARGUMENTS` in the namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        run(&[&["ip", "-n", &self.name], arguments].concat())
    }

    /// Changes a setting of the namespace, as `sysctl` does.
    pub(crate) fn set(&self, setting: &str, value: &str) -> Result<(), String> {
        let write = format!("echo {value} > /proc/sys/{setting}");
        run(&["ip", "netns", "exec", &self.name, "sh", "-c", &write])
    }

    /// A command that runs a program in the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its virtual interfaces are deleted with it. Processes that still run in it keep it until they end.
        let _ = run(&["ip", "netns", "delete", &self.name]);
    }
}

/// Removes namespaces of tests that were killed before they could clean up.
pub(crate) fn sweep() {
    let Ok(Output { stdout, .. }) = Command::new("ip").args(["netns", "list"]).output() else { return };
    for line in String::from_utf8_lossy(&stdout).lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(Ok(owner)) = owner.map(str::parse::<u32>) else { continue };
        if !std::path::Path::new(&format!("/proc/{owner}")).exists() {
            let _ = run(&["ip", "netns", "delete", name]);
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
