//! Recovery after kill -9 of the daemon or a VM: what survives, and what is cleaned up.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use agentiso_testkit::{Process, TestHost, eventually, host_or_skip};
use rustix::process::Signal;
use serde_json::json;

fn adopt_all(host: &TestHost) -> agentiso_testkit::Client {
    let client = host.client();
    client.tool("workspace_adopt", json!({}));
    client
}

#[test]
fn killed_daemon_loses_nothing() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "survivor"}));
    ws.sh("(while :; do date +%s%N > /root/tick; sleep 0.1; done) >/dev/null 2>&1 & echo $! > /root/pid");
    let vms = host.vms();
    let (id, ip) = (ws.id.clone(), ws.created["ip"].clone());
    host.kill_daemon();
    assert_eq!(host.vms(), vms, "the VM runs on");

    let next = adopt_all(&host);
    let info = next.tool("workspace_info", json!({"workspace_id": "survivor"})).json();
    assert_eq!((&info["workspace_id"], &info["state"], &info["ip"]), (&json!(id), &json!("running"), &ip));
    let out = next
        .tool("exec", json!({"workspace_id": id, "command": "kill -0 $(cat /root/pid) && echo lives"}))
        .json();
    assert_eq!(out["stdout"], "lives\n");
    assert_eq!(host.vms(), vms, "and it is the same VM");
    next.tool("workspace_destroy", json!({"workspace_id": id}));
    host.assert_no_workspaces_left();
}

#[test]
fn stopped_daemon_stops_vms_and_keeps_disks() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "kept"}));
    ws.sh("echo here > /root/note");
    host.stop_daemon();
    assert_eq!(host.vms(), Vec::<i32>::new());
    let next = adopt_all(&host);
    assert_eq!(next.tool("workspace_info", json!({"workspace_id": "kept"})).json()["state"], "stopped");
    next.tool("workspace_start", json!({"workspace_id": "kept"}));
    let out = next.tool("exec", json!({"workspace_id": "kept", "command": "cat /root/note"})).json();
    assert_eq!(out["stdout"], "here\n");

    // Ctrl-C at a terminal (SIGINT) ends the daemon in the same way.
    let daemon = host.daemon().expect("a daemon runs");
    daemon.signal(Signal::INT);
    daemon.wait_gone(Duration::from_secs(90));
    assert_eq!(host.vms(), Vec::<i32>::new());
    assert_eq!(host.state()["workspaces"][&ws.id]["phase"], "stopped");
}

#[test]
fn killed_vm_is_noticed_and_can_restart() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.sh("echo here > /root/note; sync");
    let running = client.start_tool("exec", ws.with_id(json!({"command": "touch /begun; sleep 1000"})));
    eventually("the command runs", Duration::from_secs(60), || ws.exec("test -e /begun").exit_code == 0);
    Process::open(host.vms()[0]).expect("the VM runs").kill();
    let failed = running.wait_for(Duration::from_secs(20)).expect("the call ends at once");
    assert!(format!("{failed:?}").contains("isError"), "{failed:?}");
    eventually("the state turns", Duration::from_secs(10), || ws.state() == "stopped");
    ws.tool_error("exec", json!({"command": "true"})).mentions(&["not running"]);
    assert!(ws.tool("workspace_logs", json!({})).text.len() > 2, "the logs stay");
    ws.start();
    assert_eq!(ws.sh("cat /root/note"), "here");
}

#[test]
fn vm_dead_without_daemon_is_shown_as_stopped() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "dead"}));
    let id = ws.id.clone();
    let vm = Process::open(host.vms()[0]).expect("the VM runs");
    host.kill_daemon();
    vm.kill();
    let next = adopt_all(&host);
    eventually("the state turns", Duration::from_secs(20), || {
        next.tool("workspace_info", json!({"workspace_id": id})).json()["state"] == "stopped"
    });
}

/// Pauses a VM through QMP, as a daemon does for the last pages of a snapshot.
fn pause(host: &TestHost) {
    let run = std::fs::read_dir(host.data().join("run")).expect("a directory").flatten();
    let socket = run.map(|entry| entry.path().join("qmp.sock")).find(|path| path.exists());
    let mut qmp = UnixStream::connect(socket.expect("a VM")).expect("QEMU listens");
    let mut answers = BufReader::new(qmp.try_clone().expect("a descriptor")).lines();
    for command in ["qmp_capabilities", "stop"] {
        writeln!(qmp, "{{\"execute\": \"{command}\"}}").expect("QEMU reads");
        let answered = answers.by_ref().flatten().any(|line| line.contains("return"));
        assert!(answered, "{command}");
    }
}

#[test]
fn paused_vm_resumes_with_the_correct_clock() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "paused"}));
    ws.sh("true");
    host.kill_daemon();
    pause(&host);
    // The test needs time to pass while the VM is paused.
    std::thread::park_timeout(Duration::from_secs(4));
    let next = adopt_all(&host);
    let out = next.tool("exec", json!({"workspace_id": "paused", "command": "date +%s.%N"})).json();
    let guest: f64 = out["stdout"].as_str().expect("text").trim().parse().expect("seconds");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    assert!((now - guest).abs() < 2.0, "the clock is off by {} s", now - guest);
}

#[test]
fn frozen_vm_keeps_memory_across_daemon_restart() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "survivor"}));
    ws.sh("mkdir -p /dev/shm && mount -t tmpfs none /dev/shm; echo kept > /dev/shm/note");
    let vms = host.vms();
    let vm = Process::open(vms[0]).expect("the VM runs");
    host.kill_daemon();
    vm.signal(Signal::STOP);
    let next = adopt_all(&host);
    let info = || next.tool("workspace_info", json!({"workspace_id": "survivor"})).json();
    eventually("the reason", Duration::from_secs(60), || {
        info()["stop_reason"].as_str().is_some_and(|reason| reason.contains("cannot be reached"))
    });
    assert_eq!(info()["state"], "running");
    assert_eq!(host.vms(), vms, "nobody ended it");
    vm.signal(Signal::CONT);
    eventually("the VM", Duration::from_secs(90), || info()["stop_reason"].is_null());
    assert_eq!(shell(&host, "cat /dev/shm/note"), "kept");
    assert_eq!(host.vms(), vms);
}

/// Overwrites the command line of a process, as an attacker inside it could.
fn blank_command_line(pid: i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_ascii_whitespace().collect();
    // Fields 48 and 49 of proc(5); the first two are before the bracket.
    let [begin, end] = [45, 46].map(|at| fields[at].parse::<u64>().expect("an address"));
    let memory =
        std::fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).expect("its memory");
    memory.write_all_at(&vec![b'x'; (end - begin) as usize], begin).expect("it is written");
}

#[test]
fn disguised_vm_is_killed_by_next_daemon() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "survivor"}));
    ws.sh("echo kept > /root/note; sync");
    let vm = Process::open(host.vms()[0]).expect("the VM runs");
    host.kill_daemon();
    blank_command_line(vm.pid);
    assert!(host.vms().is_empty(), "it is not recognised");
    let next = adopt_all(&host);
    vm.wait_gone(Duration::from_secs(60));
    let info = || next.tool("workspace_info", json!({"workspace_id": "survivor"})).json();
    eventually("the state turns", Duration::from_secs(20), || info()["state"] == "stopped");
    assert!(info()["stop_reason"].as_str().expect("a reason").contains("command line"), "{}", info());
    next.tool("workspace_start", json!({"workspace_id": "survivor"}));
    assert_eq!(shell(&host, "cat /root/note"), "kept");
}

/// Runs a command in the only workspace through the CLI.
fn shell(host: &TestHost, command: &str) -> String {
    host.cli_ok(&["exec", "survivor", "--", "sh", "-c", command]).trim().to_owned()
}

#[test]
fn damaged_older_or_missing_ledger_loses_nothing() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "survivor"}));
    let counts = "(while :; do date +%s%N > /root/tick; sleep 0.1; done) >/dev/null 2>&1 & echo $!";
    let pid = ws.sh(counts);
    let lives = format!("kill -0 {pid} && cat /root/note");
    ws.sh("echo one > /root/note; sync");
    ws.tool("snapshot", json!({"action": "create", "name": "live", "include_memory": true}));
    ws.sh("echo two > /root/note; sync");
    let (id, vms) = (ws.id.clone(), host.vms());
    let description = host.data().join("workspaces").join(&id).join("workspace.json");

    // Case 1: one byte of the ledger is damaged.
    host.kill_daemon();
    let mut bytes = std::fs::read(host.state_file()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] = 0;
    std::fs::write(host.state_file(), bytes).unwrap();
    assert_eq!(shell(&host, &lives), "two");
    assert_eq!(host.vms(), vms, "the same VM, and the same process in it");
    let status = host.cli_ok(&["status"]);
    assert!(status.contains("was read from its directory"), "{status}");

    // Case 2: the ledger is of schema 4, which had no descriptions.
    host.kill_daemon();
    std::fs::remove_file(&description).unwrap();
    let mut state = host.state();
    state["schema_version"] = json!(4);
    for field in ["revision", "checksum"] {
        state.as_object_mut().unwrap().remove(field);
    }
    std::fs::write(host.state_file(), state.to_string()).unwrap();
    assert_eq!(shell(&host, &lives), "two");
    assert_eq!(host.vms(), vms);
    assert!(description.exists());

    // Case 3: there is no ledger. Nothing is listed, nothing is lost, and the workspace is recovered with its
    // processes.
    host.kill_daemon();
    std::fs::remove_file(host.state_file()).unwrap();
    assert_eq!(host.client().tool("workspace_list", json!({})).text, "[]");
    assert_eq!((host.vms(), host.workspace_dirs()), (vms.clone(), 1));
    let listed = host.cli_ok(&["recover"]);
    assert!(
        listed.contains(&id) && listed.contains("survivor") && listed.contains("no state file"),
        "{listed}"
    );
    assert!(host.cli_ok(&["status"]).contains("see agentiso recover"));
    host.cli_ok(&["recover", "survivor"]);
    assert_eq!(shell(&host, &lives), "two");
    assert_eq!(host.vms(), vms);
    host.cli_ok(&["restore", "survivor", "live"]);
    assert_eq!(shell(&host, &lives), "one", "as it was in the snapshot, processes included");
    host.cli_ok(&["rm", "survivor"]);
    host.assert_no_workspaces_left();
}

#[test]
fn unreadable_ledger_is_kept_aside() {
    let host = host_or_skip!();
    std::fs::create_dir_all(host.data()).unwrap();
    std::fs::write(host.state_file(), "{ not json").unwrap();
    let client = host.client();
    assert_eq!(client.tool("workspace_list", json!({})).text, "[]");
    let kept = std::fs::read_dir(host.data()).unwrap().flatten().any(|entry| {
        entry.path() != host.state_file()
            && std::fs::read_to_string(entry.path()).is_ok_and(|t| t == "{ not json")
    });
    assert!(kept, "the unreadable file is gone");
}

#[test]
fn ledger_has_the_documented_shape() {
    use std::os::unix::fs::PermissionsExt;
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let state = host.state();
    assert!(state["schema_version"].as_u64().unwrap() >= 1);
    assert_eq!(state["workspaces"].as_object().unwrap().keys().collect::<Vec<_>>(), [&ws.id]);
    assert_eq!(state["sessions"][0]["workspace_ids"], json!([ws.id]));
    let mode = std::fs::metadata(host.state_file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let tmp: Vec<_> = std::fs::read_dir(host.data())
        .unwrap()
        .flatten()
        .map(|e| e.file_name().into_string().unwrap())
        .filter(|n| n.contains("tmp"))
        .collect();
    assert!(tmp.is_empty(), "{tmp:?}");
}

#[test]
fn second_daemon_names_the_running_one() {
    let host = host_or_skip!();
    let _client = host.client();
    let output = host.cli(&["daemon"]);
    assert!(!output.status.success());
    let pid = host.daemon().unwrap().pid.to_string();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains(&pid), "{stderr}");
}

#[test]
fn cancelled_create_leaves_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    client.workspace().destroy();
    for wait_ms in [0, 20, 60, 150, 300, 600] {
        let pending = client.start_tool("workspace_create", json!({"name": "never"}));
        let _answered_already = pending.wait_for(Duration::from_millis(wait_ms));
        client.cancel(&pending);
        // A cancellation may come too late; then the workspace is complete.
        eventually("the create ends one way or the other", Duration::from_secs(60), || {
            let list = client.tool("workspace_list", json!({})).json();
            if list[0]["state"] == "running" {
                // It may be being removed already; then this destroy fails.
                client.try_tool("workspace_destroy", json!({"workspace_id": "never"}));
            }
            list.as_array().unwrap().is_empty() && host.vms().is_empty()
        });
    }
    host.assert_no_workspaces_left();
}
