//! The QEMU of a real VM in its jail: the process state that the kernel reports, and operations that QEMU must fail to
//! do on request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestHost, host_or_skip, record_skip};
use serde_json::{Value, json};

const ANSWER: Duration = Duration::from_secs(60);

/// A QMP connection to a QEMU whose daemon was killed.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("QEMU listens");
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        let mut monitor = Self(BufReader::new(stream));
        monitor.ask("qmp_capabilities", json!({}));
        monitor
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let line = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "QEMU is gone");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer.get("return").is_some() || answer.get("error").is_some() {
                return answer;
            }
        }
    }

    fn refuses(&mut self, command: &str, arguments: Value) {
        let answer = self.ask(command, arguments.clone());
        assert!(answer.get("error").is_some(), "{command} {arguments}: {answer}");
    }

    fn cannot_open(&mut self, path: &str, read_only: bool) {
        let file = json!({"driver": "file", "filename": path});
        let node = json!({"driver": "raw", "node-name": "probe", "read-only": read_only, "file": file});
        self.refuses("blockdev-add", node);
    }
}

fn status(pid: i32, key: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{key}:")));
    line.unwrap_or_else(|| panic!("{key}: {status}")).trim().to_owned()
}

/// The user id of `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn jailed_vm_reaches_only_its_files() {
    let host = host_or_skip!();
    let root = rustix::process::geteuid().is_root();
    vm_reaches_its_own_files_only(&host, if root { "users" } else { "user-namespace" });
}

#[test]
fn ordinary_users_vm_is_jailed_too() {
    if !rustix::process::geteuid().is_root() {
        return record_skip("the test above is that of an ordinary user");
    }
    let host = host_or_skip!(HostOptions { user: Some(NOBODY), ..HostOptions::default() });
    vm_reaches_its_own_files_only(&host, "user-namespace");
}

#[test]
fn landlocked_vm_is_jailed_too() {
    if !rustix::process::geteuid().is_root() {
        return record_skip("only root can run a server as somebody else");
    }
    let environment = vec![("AGENTISO_FAULT_JAIL".to_owned(), "landlock".to_owned())];
    let host = host_or_skip!(HostOptions { user: Some(NOBODY), environment, ..HostOptions::default() });
    if checked(&host, "landlock")["verdict"] != "ok" {
        return record_skip("this kernel has no Landlock, or one from before Linux 6.7");
    }
    vm_reaches_its_own_files_only(&host, "landlock");
}

/// The result of `agentiso check` about the jail, with the detected jail overridden by `jail`.
fn checked(host: &TestHost, jail: &str) -> Value {
    let output = host.cli_in(&[("AGENTISO_FAULT_JAIL", jail)], &["check", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["checks"].as_array().unwrap().iter().find(|check| check["name"] == "jail").unwrap().clone()
}

/// Checks the state that the kernel reports for a QEMU in that jail.
fn assert_held(pid: i32, jail: &str) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&status(pid, set), 16), Ok(0), "{set}");
    }
    assert_eq!((status(pid, "NoNewPrivs"), status(pid, "Seccomp")), ("1".to_owned(), "2".to_owned()));
    // The filter that agentiso installs before QEMU starts, and QEMU's own.
    assert_eq!(status(pid, "Seccomp_filters"), "2");
    if jail == "users" {
        let uids = status(pid, "Uid");
        let uids: Vec<u32> = uids.split_whitespace().map(|uid| uid.parse().unwrap()).collect();
        assert!(uids.iter().all(|uid| *uid >= 0x7000_0000 && *uid == uids[0]), "{uids:?}");
        assert_eq!(status(pid, "Groups"), "");
    }
    if jail == "landlock" {
        return;
    }
    assert_eq!(u64::from_str_radix(&status(pid, "CapBnd"), 16), Ok(0));
    for namespace in ["mnt", "pid", "net", "ipc", "uts"] {
        let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/{namespace}")).unwrap();
        assert_ne!(of(&pid.to_string()), of("self"), "{namespace}");
    }
}

fn vm_reaches_its_own_files_only(host: &TestHost, jail: &str) {
    let client = host.client();
    let other = client.workspace_with(json!({"name": "neighbour"}));
    let ws = client.workspace_with(json!({"name": "inmate"}));
    assert_eq!(ws.info()["jail"], jail);
    let told = checked(host, "none of them");
    assert_eq!(told["verdict"], "ok", "it is the daemon's that counts: {told}");
    assert!(told["detail"].as_str().unwrap().starts_with(&format!("{jail}: ")), "{told}");
    let cmdline_of = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let pid = host.vms().into_iter().find(|pid| cmdline_of(pid).contains(&ws.id)).expect("it runs");
    assert_held(pid, jail);
    // Layers are added, frozen and merged while the VM runs.
    ws.sh("echo one > /root/file; sync");
    ws.tool("snapshot_create", json!({"name": "a"}));
    ws.sh("echo two >> /root/file; sync");
    ws.tool("snapshot_delete", json!({"snapshot_name": "a"}));
    assert_eq!(ws.sh("cat /root/file"), "one\ntwo");

    let data = host.data();
    let socket = data.join("run").join(&ws.id[..8]).join("qmp.sock");
    let disk_of = |id: &str| {
        let entries = std::fs::read_dir(data.join("workspaces").join(id)).unwrap().flatten();
        let files = entries.map(|entry| entry.path());
        let layers = files.filter(|path| path.extension().is_some_and(|kind| kind == "qcow2"));
        layers.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (own, others) = (disk_of(&ws.id), disk_of(&other.id));
    assert!(!own.is_empty() && !others.is_empty());
    let id = ws.id.clone();
    host.kill_daemon();
    let mut monitor = Monitor::connect(&socket);
    for path in ["/etc/shadow", "/etc/passwd", "/proc/self/mem", "/dev/vda"] {
        monitor.cannot_open(path, true);
    }
    for path in others.iter().chain(&own) {
        monitor.cannot_open(path, true);
        monitor.cannot_open(path, false);
    }
    monitor.cannot_open(host.state_file().to_str().unwrap(), true);
    monitor.cannot_open(socket.parent().unwrap().join("made").to_str().unwrap(), false);
    // Read-only descriptors cannot be opened for writing.
    let sets = monitor.ask("query-fdsets", json!({}));
    let frozen: Vec<u64> = sets["return"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|set| {
            set["fds"].as_array().unwrap().iter().all(|fd| fd["opaque"].as_str().unwrap().starts_with("ro:"))
        })
        .map(|set| set["fdset-id"].as_u64().unwrap())
        .collect();
    assert!(!frozen.is_empty(), "{sets}");
    for set in frozen {
        monitor.cannot_open(&format!("/dev/fdset/{set}"), false);
    }
    for target in [data.join("run/daemon.sock"), data.join("run").join(&other.id[..8]).join("qmp.sock")] {
        let address = json!({"type": "unix", "data": {"path": target}});
        let backend = json!({"type": "socket", "data": {"addr": address, "server": false}});
        monitor.refuses("chardev-add", json!({"id": "probe", "backend": backend}));
    }
    drop(monitor);

    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    let out = next.tool("exec", json!({"workspace_id": id, "command": "cat /root/file"})).json();
    assert_eq!(out["stdout"], "one\ntwo\n");
    next.tool("workspace_destroy", json!({"workspace_id": id}));
    next.tool("workspace_destroy", json!({"workspace_id": "neighbour"}));
    host.assert_no_workspaces_left();
}
