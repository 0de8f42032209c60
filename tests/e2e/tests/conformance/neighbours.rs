//! Traffic between workspaces: forged frames, connections, and listeners in a guest.

use std::time::Duration;

use agentiso_e2e::guest::{
    AT_ONCE, AttackSetup, Capture, address, attempt, download, page, policy, serve, serve_endlessly,
};
use agentiso_e2e::internet::SERVER;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::host_or_skip;
use serde_json::json;

use crate::Backend;

/// A guest can send any frame: with another MAC or IP address, to the cards of others, fragmented, or in an unknown
/// protocol. Two other workspaces, which may reach each other and the internet, receive none of these frames and learn
/// no wrong addresses, and nothing arrives outside.
pub(crate) fn forged_frames_reach_nobody(backend: Backend) {
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
    let setup = AttackSetup { attacker: &attacker, victim: &victim, somebody: &somebody };
    let sent = setup.attack(SERVER);
    assert!(sent > 400, "only {sent} frames could be sent");
    // Both neighbours and the attacker still work as before.
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

    // The same from an attacker with internet access, which must not allow forged addresses either.
    policy(&attacker, json!({"allow_internet": true}));
    setup.attack(SERVER);
    page(&attacker, "good.test").is("the page of good.test");
    assert!(!internet.asked_for("HONEST").is_empty(), "what it sends in its own name arrives");
    assert!(internet.asked_for("FORGED").is_empty(), "{:?}", internet.asked());
}

/// Rules apply to every packet: closing a policy ends open connections, and a packet that looks like an answer needs a
/// connection that it answers.
pub(crate) fn inter_vm_connection_ends_when_policy_closes(backend: Backend) {
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
    // An unused address is refused in the same way, so addresses cannot be scanned.
    attempt(&one, json!(["http", "10.42.99.99"])).is_refused();
    drop(internet);
}

/// A guest has no reachable listener of agentiso that could accept commands.
pub(crate) fn nothing_listens_in_a_fresh_guest(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_inter_vm": true}}));
    // State 0A is a listening socket, 07 one without a connection. Loopback addresses do not count.
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
