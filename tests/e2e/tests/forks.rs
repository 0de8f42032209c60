//! Forks: new workspaces from a snapshot, each with its own identity.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use agentiso_testkit::{HostOptions, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// Values that must differ between two VMs, by name.
const OF_ITS_OWN: [(&str, &str); 9] = [
    ("host name", "hostname"),
    ("machine id", "cat /etc/machine-id"),
    ("MAC address", "cat /sys/class/net/eth0/address"),
    (
        "IP address",
        "grep -o '10\\.42\\.0\\.[0-9]*' /proc/net/fib_trie | sort -u | grep -vE '\\.(0|1)$' | head -1",
    ),
    ("urandom", "od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'"),
    ("getrandom", "python3 -c 'import os; print(os.getrandom(32).hex())'"),
    ("uuid", "cat /proc/sys/kernel/random/uuid"),
    ("secrets", "python3 -c 'import secrets; print(secrets.token_hex(32))'"),
    ("uuid4", "python3 -c 'import uuid; print(uuid.uuid4())'"),
];

/// Draws random numbers on request, with libraries and files that were loaded before the snapshot.
const DRAW: &str = r#"
import os, secrets, time, uuid
secrets.token_hex(1), uuid.uuid4()
open("/run/ready", "w").close()
while not os.path.exists("/run/draw"): time.sleep(0.05)
with open("/run/drawing", "w") as out: print(secrets.token_hex(32), uuid.uuid4(), file=out)
os.rename("/run/drawing", "/run/drawn")
"#;

#[test]
fn forked_process_draws_different_random_numbers() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.write("/root/draw.py", DRAW);
    source.sh("nohup python3 /root/draw.py >/dev/null 2>&1 & while [ ! -e /run/ready ]; do sleep 0.1; done");
    source.snapshot_with_memory("m");
    let forks = source.fork_many("m", 2, "twin");
    let drawn = |vm: &TestWorkspace<'_>| {
        vm.sh("touch /run/draw; while [ ! -e /run/drawn ]; do sleep 0.05; done; cat /run/drawn")
    };
    let all: Vec<String> = forks.iter().chain([&source]).map(drawn).collect();
    let words: BTreeSet<&str> = all.iter().flat_map(|line| line.split_whitespace()).collect();
    assert_eq!(words.len(), 2 * 3, "{all:?}");
}

/// Answers every message with its running number.
const COUNT: &str = r#"
import socket
listener = socket.create_server(("0.0.0.0", 8000))
connection, _ = listener.accept()
count = 0
while piece := connection.recv(100):
    count += 1
    connection.sendall(b"%d %s" % (count, piece))
"#;

#[test]
fn source_connection_survives_snapshot_and_forks() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.write("/root/count.py", COUNT);
    // Port 8000, as the kernel writes it.
    source.sh("nohup python3 /root/count.py >/dev/null 2>&1 & until grep -q ':1F40 ' /proc/net/tcp; do sleep 0.1; done");
    let forward = source.tool("port_forward", json!({"action": "add", "guest_port": 8000})).json();
    let port = u16::try_from(forward["host_port"].as_u64().expect("a port")).expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a deadline");
    let mut say = |word: &str| {
        stream.write_all(word.as_bytes()).expect("it is sent");
        let mut answer = [0; 100];
        let count = stream.read(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    assert_eq!(say("before"), "1 before");
    source.snapshot_with_memory("m");
    assert_eq!(say("copied"), "2 copied");
    let forks = source.fork_many("m", 2, "twin");
    // The forks have this connection in their memory too, but do not answer on it.
    assert_eq!(say("forked"), "3 forked");
    for fork in forks {
        assert_eq!(fork.sh("hostname"), fork.name);
        fork.destroy();
    }
    assert_eq!(say("alone"), "4 alone");
}

fn assert_no_identity_is_shared(vms: &[&TestWorkspace<'_>]) {
    for (what, command) in OF_ITS_OWN {
        let mut values: Vec<_> = vms.iter().map(|vm| vm.sh(command)).collect();
        assert!(values.iter().all(|value| !value.is_empty()), "{what}: {values:?}");
        values.sort();
        let all = values.len();
        values.dedup();
        assert_eq!(values.len(), all, "{what} is shared");
    }
    for vm in vms {
        assert_eq!(vm.sh("hostname"), vm.name);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn memory_fork_keeps_processes_with_new_identity() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    let pid = source.sh("nohup sleep 100000 >/dev/null 2>&1 & echo $!");
    let identity = "hostname; cat /etc/machine-id /sys/class/net/eth0/address";
    let before = source.sh(identity);
    source.write("/workspace/shared", "common\n");
    source.snapshot_with_memory("m");
    // The clock in the snapshot is 3 seconds behind by the time of the fork.
    source.sh("sleep 3");
    let a = source.fork_with("m", json!({"new_name": "a"}));
    let b = source.fork_with("m", json!({"new_name": "b"}));
    for fork in [&a, &b] {
        assert_eq!(fork.sh(&format!("tr '\\0' ' ' < /proc/{pid}/cmdline")), "sleep 100000 ");
        assert_eq!(fork.read("/workspace/shared"), "common\n");
        assert_eq!(fork.created["forked_from"]["source_workspace_id"], source.id.as_str());
        assert_clock_is_right(fork);
    }
    assert_no_identity_is_shared(&[&source, &a, &b]);
    assert_eq!(source.sh(identity), before, "the source is untouched");

    a.write("/workspace/shared", "mine\n");
    source.write("/workspace/shared", "yours\n");
    assert_eq!(a.read("/workspace/shared"), "mine\n");
    assert_eq!(b.read("/workspace/shared"), "common\n");
}

#[test]
fn unprivileged_daemon_snapshots_restores_and_forks() {
    let host = host_or_skip!(HostOptions { privileged: false, ..HostOptions::default() });
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    let daemon = host.daemon().expect("a daemon runs").pid;
    let status = std::fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    let capabilities = u64::from_str_radix(capabilities, 16).unwrap();
    assert_eq!(capabilities & !agentiso_testkit::UNPRIVILEGED_CAPABILITIES, 0, "it has privileges");
    source.sh("echo 1 > /run/counter; nohup sh -c 'while sleep 0.2; do echo x >> /run/counter; done' >/dev/null 2>&1 &");
    source.snapshot("disk");
    source.snapshot_with_memory("memory");
    let fork = source.fork("memory");
    let count = |vm: &TestWorkspace<'_>| vm.sh("wc -l < /run/counter").parse::<u32>().unwrap();
    let before = count(&fork);
    eventually("the fork's process goes on", Duration::from_secs(20), || count(&fork) > before);
    source.restore("memory");
    assert!(count(&source) >= 1, "its process was there");
    source.restore("disk");
    assert_eq!(source.exec("test -e /run/counter").exit_code, 1, "a disk has no processes");
    assert_no_identity_is_shared(&[&source, &fork]);
    source.destroy();
    fork.destroy();
    host.assert_no_workspaces_left();
}

/// The largest permitted error of a guest's clock, in seconds.
const CLOCK_MAY_BE_OFF: f64 = 1.0;

/// Reads the host's clock before and after the guest's, so that the duration of the call does not matter.
fn assert_clock_is_right(vm: &TestWorkspace<'_>) {
    let before = host_seconds();
    let there: f64 = vm.sh("date +%s.%N").parse().expect("a time");
    let after = host_seconds();
    let off = (before - there).max(there - after);
    assert!(off <= CLOCK_MAY_BE_OFF, "{}: the clock is off by {off} s", vm.name);
}

fn host_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn fork_of_a_fork_outlives_both_sources() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.sh("echo first > /root/story");
    source.snapshot("s");
    source.stop();
    let child = source.fork_with("s", json!({"new_name": "child"}));
    child.sh("echo second >> /root/story");
    child.snapshot("s");
    let grandchild = child.fork_with("s", json!({"new_name": "grandchild"}));
    let origin = grandchild.info()["forked_from"].clone();
    let expected =
        json!({"source_workspace_id": child.id, "source_workspace_name": "child", "snapshot_name": "s"});
    assert_eq!(origin, expected);
    assert_eq!(source.state(), "stopped");

    let refused = source.tool_error("snapshot", json!({"action": "delete", "name": "s"}));
    assert_eq!(refused.code(), "snapshot_in_use");
    refused.mentions(&["child", "workspace_destroy"]);
    source.destroy();
    child.destroy();
    assert_eq!(grandchild.sh("cat /root/story"), "first\nsecond");
    grandchild.stop();
    grandchild.start();
    assert_eq!(grandchild.sh("cat /root/story"), "first\nsecond");
    grandchild.snapshot("later");
    grandchild.restore("later");
    grandchild.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn multiple_forks_are_numbered_and_set_up() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.snapshot_with_memory("m");
    let taken = source.fork_with("m", json!({"new_name": "idea-2"}));
    let fork = json!({"snapshot_name": "m", "count": 3, "name_prefix": "idea",
        "setup_commands": ["echo \"$(hostname)\" > /root/setup", "test -s /root/setup"]});
    let made = source.tool("workspace_fork", fork).json();
    assert_eq!((&made["success_count"], &made["failure_count"]), (&json!(2), &json!(1)), "{made}");
    assert_eq!(names(&made["workers"]), ["idea-1", "idea-3"]);
    assert_eq!((&made["failures"][0]["index"], &made["failures"][0]["name"]), (&json!(2), &json!("idea-2")));
    for worker in made["workers"].as_array().unwrap() {
        let read = json!({"workspace_id": worker["workspace_id"], "path": "/root/setup"});
        assert_eq!(client.tool("file_read", read).text.trim(), worker["name"].as_str().unwrap());
    }
    assert_eq!(taken.exec("test -e /root/setup").exit_code, 1);
    assert_eq!(source.snapshots()[0]["forks"], json!(["idea-1", "idea-2", "idea-3"]));
}

#[test]
fn failed_or_cancelled_fork_leaves_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.snapshot("s");
    let failing =
        json!({"snapshot_name": "s", "setup_commands": ["true", "echo no luck >&2; exit 3", "true"]});
    let failed = source.tool_error("workspace_fork", failing);
    assert_eq!(failed.code(), "setup_failed");
    failed.mentions(&["2", "3", "no luck"]);

    let waiting = json!({"snapshot_name": "s", "new_name": "cancelled", "setup_commands": ["sleep 600"]});
    let pending = client.start_tool("workspace_fork", source.with_id(waiting));
    eventually("the fork is under way", Duration::from_secs(60), || {
        names(&client.tool("workspace_list", json!({})).json()).contains(&"cancelled")
    });
    client.cancel(&pending);
    eventually("only the source is left", Duration::from_secs(60), || {
        names(&client.tool("workspace_list", json!({})).json()) == ["source"] && host.workspace_dirs() == 1
    });
    source.delete_snapshot("s");
    source.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn bad_fork_requests_create_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    let source = client.workspace_with(json!({"name": "source"}));
    source.snapshot("golden");
    let refused = |arguments: Value| source.tool_error("workspace_fork", arguments);
    refused(json!({"count": 0, "new_name": "a b", "name_prefix": "../x", "setup_commands": "true"}))
        .mentions(&["snapshot_name", "count", "new_name", "name_prefix", "setup_commands"]);
    refused(json!({"snapshot_name": "golden", "count": 21})).mentions(&["between 1 and 20"]);
    let missing = refused(json!({"snapshot_name": "goldne"}));
    assert_eq!(missing.code(), "snapshot_not_found");
    missing.mentions(&["did you mean \"golden\""]);
    let taken = refused(json!({"snapshot_name": "golden", "new_name": "source"}));
    assert_eq!(taken.code(), "name_taken");
    let many = refused(json!({"snapshot_name": "goldne", "count": 5}));
    assert_eq!(many.code(), "snapshot_not_found");
    let nobody =
        client.tool_error("workspace_fork", json!({"workspace_id": "soruce", "snapshot_name": "golden"}));
    nobody.mentions(&["soruce", "source"]);
    assert_eq!(names(&client.tool("workspace_list", json!({})).json()), ["source"]);
}

#[test]
fn cli_forks_appear_in_the_tree() {
    let host = host_or_skip!();
    host.cli_ok(&["create", "box"]);
    host.cli_ok(&["snapshot", "create", "box", "clean"]);
    host.cli_ok(&["fork", "box", "clean", "twin", "--setup", "echo hi > /root/hi"]);
    assert_eq!(host.cli_ok(&["exec", "twin", "--", "cat", "/root/hi"]), "hi\n");
    let many: Value = serde_json::from_str(
        &host.cli_ok(&["fork", "box", "clean", "--count", "2", "--prefix", "p", "--json"]),
    )
    .unwrap();
    assert_eq!(names(&many["workers"]), ["p-1", "p-2"]);
    let tree = host.cli_ok(&["tree"]);
    let lines: Vec<&str> =
        tree.lines().skip(1).map(|line| line.split("  running").next().unwrap().trim_end()).collect();
    assert!(lines[0].starts_with("● box") && lines[1].starts_with("└─ @clean"), "{tree}");
    for name in ["twin", "p-1", "p-2"] {
        assert!(
            lines.iter().any(|line| line.starts_with("   ") && line.ends_with(&format!("● {name}"))),
            "{tree}"
        );
    }
    let refused = host.cli(&["snapshot", "rm", "box", "clean"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("twin"), "{refused:?}");
    host.cli_ok(&["rm", "box"]);
    let tree = host.cli_ok(&["tree", "twin"]);
    assert!(tree.contains("forked from box @clean (removed)"), "{tree}");
    assert_eq!(host.cli_ok(&["exec", "twin", "--", "hostname"]), "twin\n");
    host.cli_ok(&["rm", "--all"]);
    host.assert_no_workspaces_left();
}
