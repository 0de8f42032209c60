//! VMs restored from one template share no identity.

use std::time::{SystemTime, UNIX_EPOCH};

use agentiso_testkit::{TestWorkspace, host_or_skip};
use serde_json::json;

/// Values that must differ between two VMs, by name.
const OF_ITS_OWN: [(&str, &str); 9] = [
    ("host name", "hostname"),
    ("/etc/hostname", "cat /etc/hostname"),
    ("machine id", "cat /etc/machine-id"),
    ("MAC address", "cat /sys/class/net/eth0/address"),
    (
        "IP address",
        "cat /proc/net/fib_trie | grep -o '10\\.42\\.0\\.[0-9]*' | sort -u | grep -vE '\\.(0|1)$' | head -1",
    ),
    ("urandom", "od -An -tx1 -N32 /dev/urandom | tr -d ' \\n'"),
    ("getrandom", "python3 -c 'import os; print(os.getrandom(32).hex())'"),
    ("python secrets", "python3 -c 'import secrets; print(secrets.token_hex(32))'"),
    ("uuid", "cat /proc/sys/kernel/random/uuid"),
];

fn seconds_off(ws: &TestWorkspace<'_>) -> f64 {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let guest: f64 = ws.sh("date +%s.%N").parse().unwrap();
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    if guest < before { before - guest } else { (guest - after).max(0.0) }
}

#[test]
fn siblings_of_one_template_share_no_identity() {
    let host = host_or_skip!();
    let client = host.client();
    // The template is made in the background during the first create at the latest; all others come from it.
    let vms: Vec<_> =
        (0..3).map(|i| client.workspace_with(json!({"name": format!("sibling-{i}")}))).collect();
    for (what, command) in OF_ITS_OWN {
        let values: Vec<_> = vms.iter().map(|m| m.sh(command)).collect();
        assert!(values.iter().all(|v| !v.is_empty()), "{what}: {values:?}");
        let distinct: std::collections::HashSet<_> = values.iter().collect();
        assert_eq!(distinct.len(), values.len(), "{what} is shared: {values:?}");
    }
    for vm in &vms {
        assert_eq!(vm.sh("hostname"), vm.name);
        assert!(seconds_off(vm) < 1.0, "the clock is off by {} s", seconds_off(vm));
        assert_eq!(vm.sh("getent hosts $(hostname) | wc -l"), "1", "its own name resolves");
        let ip = vm.created["ip"].as_str().unwrap();
        assert_eq!(
            vm.sh(&format!("grep -c {ip} /proc/net/fib_trie | head -1")).parse::<u32>().unwrap().min(1),
            1
        );
    }
    vms[0].write("/root/only-here", "x");
    assert_eq!(vms[1].exec("test -e /root/only-here").exit_code, 1, "disks are shared");
}

#[test]
fn restarted_vm_keeps_identity_but_not_randomness() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let identity = "hostname; cat /etc/machine-id /sys/class/net/eth0/address";
    let random = "od -An -tx1 -N32 /dev/urandom";
    let (before, noise) = (ws.sh(identity), ws.sh(random));
    ws.stop();
    ws.start();
    assert_eq!(ws.sh(identity), before);
    assert_ne!(ws.sh(random), noise);
    assert!(seconds_off(&ws) < 1.0);
}
