//! The warm pool: its VMs are handed over at once, are not listed, and end with the daemon.

use std::time::{Duration, Instant};

use agentiso_e2e::internet::{OTHER_SERVER, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Client, HostOptions, TestHost, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

const POOL: &str = "[pool]\nenabled = true\nmin_size = 1\ntarget_free = 1\n";

fn pooled() -> TestHost {
    TestHost::start_with(HostOptions { config: POOL.to_owned(), ..HostOptions::default() })
}

/// Creates workspaces until one comes from the warm pool.
fn claimed<'a>(client: &'a Client, arguments: &Value) -> TestWorkspace<'a> {
    let mut found = None;
    eventually("one comes from the pool", Duration::from_secs(110), || {
        let made = client.workspace_with(arguments.clone());
        match made.created["from_pool"] == true {
            true => found = Some(made),
            false => made.destroy(),
        }
        found.is_some()
    });
    found.expect("one was found")
}

/// Whether a program in the guest can connect to port 80 of an address.
fn reaches(ws: &TestWorkspace<'_>, address: &str) -> bool {
    let connect = "use Socket; socket(S, PF_INET, SOCK_STREAM, 6); connect(S, sockaddr_in(80, inet_aton($ARGV[0]))) or exit 1";
    ws.exec(&format!("perl -e '{connect}' {address}")).exit_code == 0
}

/// Connects a client. Neither filling nor sweeping the pool may delay the handshake beyond the time that clients allow.
fn greeted(host: &TestHost) -> Client {
    const HELLO: Duration = Duration::from_secs(15);
    let began = Instant::now();
    let client = host.client();
    let took = began.elapsed();
    assert!(took < HELLO, "the handshake took {took:?}");
    client
}

/// Whether the console of a pool VM says that the guest is up.
fn stands_ready(host: &TestHost) -> bool {
    let workspaces = std::fs::read_dir(host.data().join("workspaces")).into_iter().flatten().flatten();
    workspaces
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("console.log")).ok())
        .any(|console| console.contains("ready as standby"))
}

#[test]
fn pool_vm_equals_a_freshly_made_one() {
    drop(host_or_skip!());
    let host = pooled();
    let client = greeted(&host);
    eventually("a VM stands ready", Duration::from_secs(110), || host.vms().len() == 1);
    assert_eq!(client.tool("workspace_list", json!({})).json(), json!([]), "nobody sees it");
    // The process exists before its guest is up.
    eventually("its guest is up", Duration::from_secs(110), || stands_ready(&host));
    let mut made = Vec::new();
    eventually("one comes from the pool", Duration::from_secs(110), || {
        made.push(client.tool("workspace_create", json!({})).json());
        made.last().is_some_and(|created| created["from_pool"] == true)
    });
    let created = made.last().expect("one was made");
    let id = json!({ "workspace_id": created["workspace_id"] });
    let shell = |command: &str| {
        let mut arguments = id.clone();
        arguments["command"] = json!(command);
        client.tool("exec", arguments).json()["stdout"].as_str().expect("text").trim().to_owned()
    };
    assert_eq!(shell("hostname"), created["name"].as_str().expect("a name"));
    assert_eq!(shell("cat /etc/hostname"), shell("hostname"));
    let address = created["ip"].as_str().expect("an address");
    assert!(shell("cat /proc/net/fib_trie").contains(address));
    let machine_id = created["workspace_id"].as_str().expect("an id").replace('-', "");
    assert_eq!(shell("cat /etc/machine-id"), machine_id);
    let logs = client.tool("workspace_logs", id.clone()).json();
    assert!(logs["console"].is_string(), "{logs}");
    // A workspace of another size does not come from the pool.
    let other = client.tool("workspace_create", json!({ "memory_mb": 320 })).json();
    assert_eq!(other["from_pool"], false);
    for workspace in made.iter().chain([&other]) {
        client.tool("workspace_destroy", json!({ "workspace_id": workspace["workspace_id"] }));
    }
}

#[test]
fn warm_pool_is_swept_after_stop_or_crash() {
    drop(host_or_skip!());
    let host = pooled();
    let client = greeted(&host);
    eventually("a VM stands ready", Duration::from_secs(110), || host.vms().len() == 1);
    let before = host.vms();
    host.kill_daemon();
    drop(client);
    let client = greeted(&host);
    eventually("the old one is swept and another made", Duration::from_secs(110), || {
        let now = host.vms();
        now.len() == 1 && now != before
    });
    assert_eq!(client.tool("workspace_list", json!({})).json(), json!([]));
    drop(client);
    host.stop_daemon();
    eventually("nothing is left", Duration::from_secs(60), || host.vms().is_empty());
}

#[test]
fn claimed_vm_has_own_policy_clock_and_randomness() {
    let internet = internet_or_skip!();
    let host = host_or_skip!(internet.host_options(POOL));
    let client = host.client();
    let policy = json!({ "network_policy": { "allow_cidrs": [format!("{SERVER}/32")] } });
    let first = claimed(&client, &policy);
    assert!(reaches(&first, SERVER), "what is allowed is reached");
    assert!(!reaches(&first, OTHER_SERVER), "and nothing else");
    let second = claimed(&client, &json!({}));
    assert!(!reaches(&second, SERVER), "a policy is one workspace's");
    for ws in [&first, &second] {
        let now =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let before = now();
        let there: f64 = ws.sh("date +%s.%N").parse().expect("a time");
        assert!(before - there <= 1.0 && there - now() <= 1.0, "the clock says {there}, not {before}");
    }
    let own = [
        "cat /sys/class/net/eth0/address",
        "cat /etc/machine-id",
        "od -An -tx1 -N32 /dev/urandom",
        "cat /proc/sys/kernel/random/uuid",
        "python3 -c 'import secrets; print(secrets.token_hex(32))'",
    ];
    for command in own {
        assert_ne!(first.sh(command), second.sh(command), "{command}");
    }
    first.destroy();
    second.destroy();
}

/// The daemon kills itself at the step that this variable names.
const FAULT: &str = "AGENTISO_FAULT";

#[test]
fn crash_during_claim_leaves_vm_whole_or_gone() {
    drop(host_or_skip!());
    let host = pooled();
    for step in ["claim.taken", "claim.identified", "claim.saved"] {
        host.stop_daemon();
        host.cli_in(&[(FAULT, step)], &["ps"]);
        eventually("the daemon dies of a claim", Duration::from_secs(110), || {
            let made = host.cli(&["create", "web"]);
            // A workspace that did not come from the pool has not passed the step.
            if made.status.success() {
                host.cli_ok(&["rm", "web"]);
            }
            !made.status.success()
        });
        eventually("the daemon is dead", Duration::from_secs(30), || host.daemon().is_none());
        let all: Value = serde_json::from_str(&host.cli_ok(&["ps", "--json"])).expect("JSON");
        let names: Vec<&str> =
            all.as_array().expect("a list").iter().filter_map(|ws| ws["name"].as_str()).collect();
        assert_eq!(names, if step == "claim.saved" { vec!["web"] } else { Vec::new() }, "{step}");
        if !names.is_empty() {
            assert_eq!(host.cli_ok(&["exec", "web", "--", "hostname"]), "web\n");
            host.cli_ok(&["rm", "web"]);
        }
        // Only the VM of the pool and its directory are left, and nothing of the claimed one.
        eventually("only the pool's own is left", Duration::from_secs(60), || {
            host.vms().len() == 1 && host.workspace_dirs() == 1
        });
    }
    host.stop_daemon();
    host.assert_no_workspaces_left();
}
