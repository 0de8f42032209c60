//! A daemon of an ordinary user, with images that root has built: it can do everything, and all its files belong to
//! that user.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestHost, TestWorkspace, eventually, host_or_skip, record_skip};
use serde_json::json;

/// The user id of `nobody`.
const NOBODY: u32 = 65534;

/// A process that counts and keeps its count only in memory.
const COUNT: &str = "nohup sh -c 'n=0; while :; do n=$((n+1)); echo $n > /run/n; mv /run/n /run/count; sleep 0.1; done' \
                     >/dev/null 2>&1 &";

fn count(ws: &TestWorkspace<'_>) -> u64 {
    ws.sh("cat /run/count 2>/dev/null || echo 0").parse().expect("a number")
}

fn counts_on(ws: &TestWorkspace<'_>) {
    let from = count(ws);
    eventually("the process goes on", Duration::from_secs(60), || count(ws) > from);
}

/// The user ids of a process (real, effective, saved, file system) and its effective capabilities.
fn owners(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("CapEff:")).collect()
}

/// The files below a directory that belong to other users.
fn of_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let meta = entry.path().symlink_metadata().expect("it is there");
        if meta.uid() != NOBODY {
            found.push(entry.path().display().to_string());
        }
        if meta.is_dir() {
            found.extend(of_others(&entry.path()));
        }
    }
    found
}

#[test]
fn ordinary_user_restores_and_forks_with_memory() {
    if !rustix::process::geteuid().is_root() {
        return record_skip("only root can run a server as somebody else");
    }
    let host = host_or_skip!(HostOptions { user: Some(NOBODY), ..HostOptions::default() });
    vms_live_with_memory(&host, "user-namespace");
}

#[test]
fn landlocked_vms_restore_and_fork_with_memory() {
    if !rustix::process::geteuid().is_root() {
        return record_skip("only root can run a server as somebody else");
    }
    let environment = vec![("AGENTISO_FAULT_JAIL".to_owned(), "landlock".to_owned())];
    let host = host_or_skip!(HostOptions { user: Some(NOBODY), environment, ..HostOptions::default() });
    if host.cli_ok(&["check", "--json"]).contains("before Linux 6.7") {
        return record_skip("this kernel has no Landlock, or one from before Linux 6.7");
    }
    vms_live_with_memory(&host, "landlock");
}

fn vms_live_with_memory(host: &TestHost, jail: &str) {
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    assert_eq!(source.info()["jail"], jail);
    source.sh(COUNT);
    counts_on(&source);
    source.write("/workspace/file", "first\n");
    assert_eq!(source.snapshot_with_memory("memory").json()["has_memory"], true);
    let taken = count(&source);
    source.write("/workspace/file", "second\n");
    source.snapshot("disk");
    eventually("it counted on", Duration::from_secs(60), || count(&source) > taken + 30);

    let reached = count(&source);
    source.restore("memory").mentions(&["processes go on"]);
    let back = count(&source);
    assert!((1..reached).contains(&back), "it counted to {reached} and is back at {back}");
    assert_eq!(source.read("/workspace/file"), "first\n");
    counts_on(&source);

    let fork = source.fork_with("memory", json!({"new_name": "fork"}));
    counts_on(&fork);
    assert_eq!(
        (fork.sh("hostname"), fork.read("/workspace/file")),
        ("fork".to_owned(), "first\n".to_owned())
    );
    let from_disk = source.fork("disk");
    assert_eq!(from_disk.read("/workspace/file"), "second\n");

    let daemon = host.daemon().expect("a daemon runs").pid;
    assert_eq!(host.vms().len(), 3);
    for pid in host.vms().into_iter().chain([daemon]) {
        let nobody = "Uid:\t65534\t65534\t65534\t65534CapEff:\t0000000000000000";
        assert_eq!(owners(pid), nobody, "process {pid}");
    }
    assert_eq!(of_others(&host.data()), Vec::<String>::new());

    // The user's next daemon takes over all workspaces.
    host.kill_daemon();
    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    for name in ["fork", "source"] {
        let ws = next.existing(name);
        counts_on(&ws);
        ws.destroy();
    }
    next.existing(&from_disk.name).destroy();
    host.assert_no_workspaces_left();
}
