//! Changes of the policy: their effect on open flows, and the refusal of malformed rules.

use std::time::Duration;

use agentiso_e2e::guest::{AT_ONCE, attempt, download, page, policy};
use agentiso_e2e::internet::SERVER;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// Open flows are judged by the current policy, not by the one under which they were opened.
pub(crate) fn tightened_policy_ends_open_flows_at_once(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test:80"]}}));
    let running = download(&ws, "good.test", 80, "good.test");
    // Adding another rule or repeating the same one does not end the flow.
    policy(&ws, json!({"allow_domains": ["good.test:80", "other.test"]}));
    assert!(!running.has_ended());
    policy(&ws, json!({"allow_domains": ["other.test"]}));
    let ended = running.wait(Duration::from_secs(20));
    assert_ne!(ended["ended"], "timeout", "{ended}");
    assert!(ended["silent"].as_f64().is_some_and(|seconds| seconds < AT_ONCE), "{ended}");
    page(&ws, "good.test").fails_at_once(&["no address"]);
    page(&ws, SERVER).is_refused();
    eventually("the server was told", Duration::from_secs(10), || {
        !internet.asked_for(&format!("broken {SERVER}")).is_empty()
    });

    // The same for rules by address, and for UDP.
    policy(&ws, json!({"allow_cidrs": [SERVER]}));
    attempt(&ws, json!(["udp", SERVER, 9, "open"])).is("got open");
    let running = download(&ws, SERVER, 80, SERVER);
    policy(&ws, json!({"deny_cidrs": [format!("{SERVER}:80")]}));
    let ended = running.wait(Duration::from_secs(20));
    assert!(ended["silent"].as_f64().is_some_and(|seconds| seconds < AT_ONCE), "{ended}");
    attempt(&ws, json!(["udp", SERVER, 9, "still open"])).is("got still open");
    policy(&ws, json!({"allow_cidrs": []}));
    attempt(&ws, json!(["udp", SERVER, 9, "shut"])).fails_at_once(&["unreachable", "refused"]);
    assert!(internet.asked_for("shut").is_empty());
}

/// Names, addresses and ids from a client end up in rules, file names and command lines. Malformed ones are refused
/// before that and change nothing.
pub(crate) fn malformed_rules_are_refused_and_change_nothing(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test"]}}));
    let before = ws.info()["network"].clone();
    let hostile = [
        json!({"allow_domains": ["a.test; flush ruleset"]}),
        json!({"allow_domains": ["a.test\nb.test"]}),
        json!({"allow_domains": ["$(reboot).test"]}),
        json!({"allow_domains": ["*"]}),
        json!({"allow_domains": ["a.*.test"]}),
        json!({"allow_domains": ["a\u{0}.test"]}),
        json!({"allow_domains": [format!("{}.test", "a".repeat(64))]}),
        json!({"deny_domains": ["a.test:0"]}),
        json!({"deny_domains": ["a.test:80 accept"]}),
        json!({"allow_cidrs": ["10.0.0.0/8 accept"]}),
        json!({"allow_cidrs": ["10.0.0.0/33"]}),
        json!({"allow_cidrs": ["1.2.3"]}),
        json!({"allow_cidrs": ["::/0"]}),
        json!({"deny_cidrs": ["0x0a000000/8"]}),
        json!({"deny_cidrs": ["10.0.0.1:80-90;"]}),
        json!({"allow_cidrs": [17]}),
        json!({"allowed_ports": [0]}),
        json!({"allowed_ports": [65536]}),
        json!({"allowed_ports": ["80"]}),
        json!({"bandwidth_mbps": -1}),
        json!({"allow_internet": "yes"}),
    ];
    for change in hostile {
        ws.tool_error("network_policy", change);
    }
    let nobody = json!({"workspace_id": "x; nft flush ruleset", "allow_internet": true});
    client.tool_error("network_policy", nobody);
    assert_eq!(ws.info()["network"], before);
    page(&ws, "good.test").is("the page of good.test");
    page(&ws, "other.test").fails_at_once(&["no address"]);
}
