//! The bridge backend: workspaces at a bridge of the host's kernel. The host and "the internet" are network namespaces
//! of the test.

use std::time::Duration;

use agentiso_e2e::internet::{HOST, Internet, METADATA, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Process, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// The network links of the host that agentiso made.
fn links(internet: &Internet) -> String {
    internet.sh_at_host("ip -o link show | cut -d: -f2 | cut -d@ -f1 | grep -E 'aiso|br-' || true")
}

/// Lines of the `[network]` section.
const BRIDGE: &str = "backend = \"bridge\"\n";

/// The smallest image has no curl.
const FETCH: &str = r#"
use Socket; my ($name, $as) = @ARGV; my $at = inet_aton($name) or die "no address\n";
socket(S, PF_INET, SOCK_STREAM, 6); connect(S, sockaddr_in(80, $at)) or die "$!\n";
select(S); $| = 1; print S "GET / HTTP/1.0\r\nHost: ".($as || $name)."\r\n\r\n"; select(STDOUT);
my @lines = <S>; die "closed\n" unless @lines; print $lines[-1];
"#;

fn fetch(ws: &TestWorkspace<'_>, name: &str) -> String {
    ws.sh(&format!("perl -e '{}' {name} 2>&1 || true", FETCH.trim()))
}

fn policy(ws: &TestWorkspace<'_>, change: Value) {
    ws.tool("network_policy", change);
}

#[test]
fn bridge_workspace_keeps_its_policy_after_daemon_kill() {
    let internet = internet_or_skip!();
    let links = || links(&internet);
    let test = host_or_skip!(internet.host_options(BRIDGE));
    let client = test.client();
    let ws = client.workspace();
    assert!(links().contains("br-agentiso") && links().contains("aiso"), "{}", links());
    assert!(test.cli_ok(&["status"]).contains("network: bridge"));
    assert_eq!(fetch(&ws, "good.test"), "no address");
    assert_eq!(fetch(&ws, SERVER), "Connection refused");
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    assert_eq!(fetch(&ws, "good.test"), "the page of good.test");
    assert_eq!(fetch(&ws, "bad.test"), "no address");
    assert_eq!(fetch(&ws, "good.test bad.test"), "closed");
    policy(&ws, json!({"allow_internet": true, "allow_domains": []}));
    assert_eq!(fetch(&ws, SERVER), format!("the page of {SERVER}"));
    for special in [METADATA, "10.42.0.1", HOST] {
        assert_eq!(fetch(&ws, special), "Connection refused", "{special}");
    }
    let log = ws.tool("workspace_logs", json!({"log_type": "network"})).json();
    let log = log["network"].as_str().unwrap();
    assert!(log.contains("an address of the host itself"), "{log}");

    // Its network card stays connected, its rules hold, and the next daemon takes both over.
    let before = links();
    test.kill_daemon();
    assert_eq!(links(), before);
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    let command = format!("perl -e '{}' good.test", FETCH.trim());
    let page = next.tool("exec", json!({"workspace_id": ws.id, "command": command})).json();
    assert_eq!(page["stdout"], "the page of good.test");
    assert_eq!(links(), before);
    next.tool("workspace_destroy", json!({"workspace_id": ws.id}));
    assert!(!links().contains("aiso"), "{}", links());
    test.stop_daemon();
    eventually("nothing is left", Duration::from_secs(20), || links().is_empty());
}

#[test]
fn quarantined_vm_leaves_no_device_when_it_ends() {
    let internet = internet_or_skip!();
    let links = || links(&internet);
    let test = host_or_skip!(internet.host_options(BRIDGE));
    let client = test.client();
    let ws = client.workspace_with(json!({"name": "kept"}));
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    ws.sh("echo here > /root/note; sync");
    let (ip, id) = (ws.created["ip"].as_str().unwrap().to_owned(), ws.id.clone());
    let vm = Process::open(test.vms()[0]).expect("the VM runs");
    test.kill_daemon();
    std::fs::remove_file(test.state_file()).unwrap();
    assert!(test.cli_ok(&["recover"]).contains(&id));
    assert!(links().contains("aiso"), "it runs on: {}", links());

    vm.kill();
    eventually("its device goes", Duration::from_secs(20), || !links().contains("aiso"));
    let neighbours = || internet.sh_at_host("ip neigh show dev br-agentiso nud permanent");
    eventually("its address goes", Duration::from_secs(20), || !neighbours().contains(&ip));
    assert_eq!(test.workspace_dirs(), 1);

    test.cli_ok(&["recover", "kept"]);
    test.cli_ok(&["start", "kept"]);
    let fetched = format!("cat /root/note; perl -e '{}' good.test", FETCH.trim());
    let told = test.cli_ok(&["exec", "kept", "--", "sh", "-c", &fetched]);
    assert_eq!(told.trim(), "here\nthe page of good.test");
    assert!(test.cli_ok(&["ps"]).contains(&ip));
}

#[test]
fn bridge_workspaces_connect_and_forwards_reach_them() {
    let internet = internet_or_skip!();
    let links = || links(&internet);
    let test = host_or_skip!(internet.host_options(BRIDGE));
    let client = test.client();
    let [one, two] =
        [client.workspace_with(json!({"name": "one"})), client.workspace_with(json!({"name": "two"}))];
    two.sh(
        "cat > /root/serve.pl <<'X'\nuse Socket; socket(S, PF_INET, SOCK_STREAM, 6); bind(S, sockaddr_in(80, INADDR_ANY)) or die; \
         listen(S, 5); while (accept(C, S)) { print C \"hello\\n\"; close C }\nX\nnohup perl /root/serve.pl >/dev/null 2>&1 &",
    );
    let hello = |name: &str| {
        one.sh(&format!(
            "perl -e 'use Socket; my $at = inet_aton(shift) or die \"no address\\n\"; socket(S, PF_INET, SOCK_STREAM, 6); \
             connect(S, sockaddr_in(80, $at)) or die \"$!\\n\"; print <S>' {name} 2>&1 || true"
        ))
    };
    let ip = two.created["ip"].as_str().unwrap().to_owned();
    assert_eq!(hello(&ip), "Connection refused");
    for ws in [&one, &two] {
        policy(ws, json!({"allow_inter_vm": true}));
    }
    eventually("both allow it", Duration::from_secs(20), || hello(&ip) == "hello");
    assert_eq!(hello("two"), "hello");

    let added = two.tool("port_forward", json!({"action": "add", "guest_port": 80})).json();
    let port = added["host_port"].as_u64().unwrap();
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), "hello\n");

    // A fork is a separate VM with its own address.
    two.snapshot_with_memory("served");
    let three = two.fork_with("served", json!({"new_name": "three"}));
    assert_ne!(three.created["ip"], json!(ip));
    assert_eq!(hello("three"), "hello");
    test.stop_daemon();
    eventually("nothing is left", Duration::from_secs(60), || links().is_empty());
}
