//! Several daemons share one cache of images, kernels and templates, as `storage.cache_dir` allows.

use agentiso_testkit::{TestHost, host_or_skip};
use serde_json::json;

/// The number that a process of the guest counts up to in memory.
fn count(host: &TestHost) -> u64 {
    let out = host.cli_ok(&["exec", "dev", "--", "cat /dev/shm/count"]);
    out.trim().parse().expect("a number")
}

#[test]
fn daemons_sharing_a_cache_leave_each_other_alone() {
    let hosts = [host_or_skip!(), host_or_skip!()];
    let clients = hosts.each_ref().map(TestHost::client);
    for client in &clients {
        let ws = client.workspace_with(json!({"name": "dev"}));
        ws.sh("(i=0; while :; do i=$((i+1)); echo $i > /dev/shm/next; mv /dev/shm/next /dev/shm/count; sleep 0.1; done) \
               >/dev/null 2>&1 & until test -e /dev/shm/count; do sleep 0.1; done");
    }
    let vms = hosts.each_ref().map(TestHost::vms);
    let before = hosts.each_ref().map(count);

    // The next daemon of the first host puts its own things in order, and only those.
    hosts[0].kill_daemon();
    for (host, before) in hosts.iter().zip(before) {
        assert!(count(host) > before, "the process goes on");
        host.cli_ok(&["check"]);
    }
    assert_eq!(hosts.each_ref().map(TestHost::vms), vms, "the VMs are the same");

    // A daemon that stops in order stops its own VMs.
    let before = count(&hosts[1]);
    hosts[0].stop_daemon();
    assert_eq!(hosts[0].vms(), Vec::<i32>::new());
    assert!(count(&hosts[1]) > before, "the process goes on");
    assert_eq!(hosts[1].vms(), vms[1]);
    hosts[0].cli_ok(&["start", "dev"]);
    assert_eq!(hosts[1].vms(), vms[1]);
}
