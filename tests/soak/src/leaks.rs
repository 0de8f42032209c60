//! Leak check: an inventory of the host before the first daemon starts and after the last has ended.
//!
//! The soak has its own process, network and mount namespaces, so everything in them belongs to agentiso.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use agentiso_testkit::TestHost;

/// Names that may stay in the data directory: they do not belong to any workspace.
const KEPT: [&str; 12] = [
    "state.json",
    "agentiso.lock",
    "agentiso.owner",
    "daemon.log",
    "daemon.log.1",
    "probe.json",
    "run",
    "workspaces",
    "transfers",
    "templates",
    "images",
    "layers",
];

/// The prefix of ledgers that could not be read; they are never removed.
const KEPT_ASIDE: &str = "state.json.";

/// The things found, each as `kind: which`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory(BTreeSet<String>);

impl Inventory {
    /// Everything present that only agentiso would leave.
    pub(crate) fn take() -> Self {
        let mut found = BTreeSet::new();
        let mut add = |kind: &str, things: Vec<String>| {
            found.extend(things.into_iter().map(|thing| format!("{kind}: {thing}")));
        };
        add("process", processes());
        add("network namespace", entries(Path::new("/run/netns")));
        add("network device", devices());
        add("mount", mounts());
        add("cgroup", cgroups(Path::new("/sys/fs/cgroup"), 6));
        add("nftables", nft());
        add("socket", sockets());
        Self(found)
    }

    /// The things that were not there before.
    pub(crate) fn leaked_since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// Files in the data directory that should be gone when no workspace is left.
pub(crate) fn left_files(host: &TestHost) -> Vec<String> {
    let data = host.data();
    let is_kept = |name: &String| KEPT.contains(&name.as_str()) || name.starts_with(KEPT_ASIDE);
    let mut left: Vec<String> =
        entries(&data).into_iter().filter(|name| !is_kept(name) && holds_files(&data.join(name))).collect();
    left.extend(entries(&data.join("workspaces")).into_iter().map(|name| format!("workspaces/{name}")));
    let run = entries(&data.join("run"))
        .into_iter()
        .filter(|name| name != "daemon.sock" && name != "owner" && !name.starts_with("t-"));
    left.extend(run.map(|name| format!("run/{name}")));
    left
}

/// Entries of the ledger that should be gone when no workspace is left.
pub(crate) fn left_entries(state: &serde_json::Value) -> Vec<String> {
    let keys = |part: &str| {
        let keys = state[part].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        keys.unwrap_or_default().into_iter().map(|key| format!("{part}: {key}")).collect::<Vec<_>>()
    };
    let owned = state["sessions"].as_array().into_iter().flatten().flat_map(|session| {
        let ids = session["workspace_ids"].as_array().cloned().unwrap_or_default();
        ids.into_iter().map(|id| format!("owned: {id}"))
    });
    keys("workspaces").into_iter().chain(keys("teams")).chain(owned).collect()
}

/// Whether the path is a file, or a directory with a file somewhere in it.
fn holds_files(path: &Path) -> bool {
    !path.is_dir() || entries(path).iter().any(|name| holds_files(&path.join(name)))
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn lines(path: &str) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn processes() -> Vec<String> {
    let own = std::process::id().to_string();
    let pids = entries(Path::new("/proc")).into_iter().filter(|name| name.parse::<i32>().is_ok());
    let told = pids.filter(|pid| *pid != own).filter_map(|pid| {
        if is_zombie(&pid) {
            return None;
        }
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&line).replace('\0', " ");
        // A program that is just being started has a name but no command line.
        let name =
            if words.is_empty() { fs::read_to_string(format!("/proc/{pid}/comm")).ok()? } else { words };
        Some(format!("{pid} {}", name.trim()))
    });
    told.collect()
}

/// Whether a process has ended and was not waited for yet.
fn is_zombie(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state may contain anything, also parentheses.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn devices() -> Vec<String> {
    lines("/proc/net/dev").iter().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

fn mounts() -> Vec<String> {
    lines("/proc/self/mountinfo").iter().filter_map(|line| Some(line.split(' ').nth(4)?.to_owned())).collect()
}

/// Cgroups are shared with the rest of the host, so only those with agentiso's names count.
fn cgroups(dir: &Path, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for name in entries(dir).into_iter().filter(|name| dir.join(name).is_dir()) {
        if name.starts_with("agentiso-machine-") {
            found.push(dir.join(&name).display().to_string());
        }
        if depth > 0 {
            found.extend(cgroups(&dir.join(&name), depth - 1));
        }
    }
    found
}

/// The tables of the kernel's packet filter, if `nft` is installed.
fn nft() -> Vec<String> {
    let output = Command::new("nft").args(["list", "tables"]).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Listening sockets, and those with a path.
fn sockets() -> Vec<String> {
    const LISTENS: &str = "0A";
    let tcp = lines("/proc/net/tcp").into_iter().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.nth(1)?.to_owned();
        (words.nth(1) == Some(LISTENS)).then(|| format!("tcp {address}"))
    });
    let unix = lines("/proc/net/unix")
        .into_iter()
        .filter_map(|line| Some(line.split_whitespace().nth(7)?.to_owned()))
        .filter(|path| path.contains("aiso-"));
    tcp.chain(unix).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leak_is_noticed() {
        let before = Inventory(BTreeSet::from(["network device: lo".to_owned()]));
        let mut after = before.clone();
        assert!(after.leaked_since(&before).is_empty());
        after.0.insert("network device: tap0".to_owned());
        assert_eq!(after.leaked_since(&before), ["network device: tap0"]);
    }

    #[test]
    fn listening_socket_is_seen() {
        let before = Inventory::take();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = format!("{:04X}", listener.local_addr().unwrap().port());
        let leaked = Inventory::take().leaked_since(&before);
        assert!(leaked.iter().any(|thing| thing.contains(&port)), "{leaked:?}");
    }

    #[test]
    fn child_process_is_seen() {
        let before = Inventory::take();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let leaked = Inventory::take().leaked_since(&before);
        child.kill().unwrap();
        child.wait().unwrap();
        let process = format!("process: {} ", child.id());
        assert!(leaked.iter().any(|thing| thing.starts_with(&process)), "{leaked:?}");
    }

    #[test]
    fn empty_directory_is_no_leak() {
        let dir = std::env::temp_dir().join(format!("aiso-soak-test-{}", std::process::id()));
        fs::create_dir_all(dir.join("mail/inbox")).unwrap();
        let empty = holds_files(&dir);
        fs::write(dir.join("mail/inbox/1"), "x").unwrap();
        let full = holds_files(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!((empty, full), (false, true));
    }

    #[test]
    fn left_ledger_entries_are_seen() {
        let empty = json!({"workspaces": {}, "teams": {}, "sessions": [{"workspace_ids": []}]});
        assert!(left_entries(&empty).is_empty());
        let left =
            json!({"workspaces": {"a": {}}, "teams": {"t": {}}, "sessions": [{"workspace_ids": ["a"]}]});
        assert_eq!(left_entries(&left).len(), 3);
    }
}
