//! Workspaces and each other.

use std::time::Duration;

use agentiso_e2e::guest::{
    AT_ONCE, Capture, Wires, address, attempt, download, page, policy, serve, serve_endlessly,
};
use agentiso_e2e::internet::SERVER;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::host_or_skip;
use serde_json::json;

use crate::Backend;

/// A machine may put on its wire whatever it likes: in the name of another card or address, to the cards of others, in
/// pieces, or as a protocol that nobody expects. Two others, who may reach each other and the internet, see nothing of
/// it, are not led astray by it, and nothing arrives outside.
pub(crate) fn frames_in_the_name_of_another_reach_nobody(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let open = json!({"network_policy": {"allow_internet": true, "allow_inter_vm": true}});
    let (victim, somebody) = (client.workspace_with(open.clone()), client.workspace_with(open));
    let attacker = client.workspace();
    serve(&victim, 80, "0.0.0.0");
    let hello = || attempt(&somebody, json!(["say", address(&victim), 80, ""]));
    hello().is("hello\n");
    let captures = [&victim, &somebody].map(|ws| Capture::start(ws, &attacker));
    let wires = Wires { attacker: &attacker, victim: &victim, somebody: &somebody };
    let sent = wires.attack(SERVER);
    assert!(sent > 400, "only {sent} frames could be sent");
    // Both go on as if nothing had happened, and so does the attacker.
    hello().is("hello\n");
    page(&victim, "good.test").is("the page of good.test");
    page(&attacker, "good.test").fails_at_once(&["no address"]);
    for capture in captures {
        assert_eq!(capture.end(), Vec::<serde_json::Value>::new());
    }
    for text in ["FORGED", "HONEST"] {
        assert!(internet.asked_for(text).is_empty(), "{:?}", internet.asked());
    }
    let mac = attacker.sh("cat /sys/class/net/eth0/address");
    for ws in [&victim, &somebody] {
        let known = ws.sh("cat /proc/net/arp");
        assert!(!known.contains(&mac), "the attacker is taken for somebody: {known}");
    }

    // The same from one that has the internet itself, which is no right to be somebody else.
    policy(&attacker, json!({"allow_internet": true}));
    wires.attack(SERVER);
    page(&attacker, "good.test").is("the page of good.test");
    assert!(!internet.asked_for("HONEST").is_empty(), "what it sends in its own name arrives");
    assert!(internet.asked_for("FORGED").is_empty(), "{:?}", internet.asked());
}

/// Rules are asked for every packet: who may no longer reach another does not keep what is open, and what looks like
/// the answer to something needs something that it answers.
pub(crate) fn a_connection_between_workspaces_ends_with_what_allowed_it(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let [one, two] = ["one", "two"].map(|name| client.workspace_with(json!({"name": name})));
    serve_endlessly(&two, 80);
    let there = address(&two);
    let hello = || attempt(&one, json!(["http", there]));
    hello().is_refused();
    policy(&one, json!({"allow_inter_vm": true}));
    hello().is_refused();
    page(&one, "two").fails_at_once(&["no address"]);
    policy(&two, json!({"allow_inter_vm": true}));
    let closings = [json!({"allow_inter_vm": false}), json!({"allow_inter_vm": true, "allowed_ports": [81]})];
    for closing in closings {
        policy(&two, json!({"allow_inter_vm": true, "allowed_ports": []}));
        let running = download(&one, &there, 80, "-");
        policy(&two, closing);
        let ended = running.wait(Duration::from_secs(30));
        assert_ne!(ended["ended"], "timeout", "{ended}");
        assert!(ended["silent"].as_f64().is_some_and(|seconds| seconds < AT_ONCE), "{ended}");
        hello().is_refused();
    }
    // Nor does one of them find out whether there is anybody at an address.
    attempt(&one, json!(["http", "10.42.99.99"])).is_refused();
    drop(internet);
}

/// Whoever can reach a guest must not find something of ours there that takes orders.
pub(crate) fn nothing_of_ours_listens_in_a_guest(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_inter_vm": true}}));
    // State 0A listens; 07 is a socket without connections. The loopback's addresses are its own affair.
    let listening = ws
        .sh("cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 /proc/net/raw 2>/dev/null \
         | grep -E ' (0A|07) ' | grep -v -E ' (0100007F|00000000000000000000000001000000):' || true");
    assert_eq!(listening, "", "reachable from outside");
    let other = client.workspace_with(json!({"network_policy": {"allow_inter_vm": true}}));
    for port in [22, 80, 5000, 8080] {
        attempt(&other, json!(["say", address(&ws), port, ""])).is_refused();
    }
    drop(internet);
}
