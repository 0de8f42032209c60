//! Rules by name: allowed and forbidden names, DNS queries, and changes of the policy.

use agentiso_e2e::guest::{AT_ONCE, attempt, page, policy, try_all};
use agentiso_e2e::internet::{OTHER_SERVER, RESOLVER, SERVER, TELLING_PORT};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{LONG, eventually, host_or_skip};
use serde_json::{Value, json};

use crate::Backend;

/// The outcomes of a connection that names another host than it was opened for.
const CUT: [&str; 2] = ["closed", "reset"];

/// DNS record types by their numbers.
const A: u16 = 1;
const NULL: u16 = 10;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const HTTPS: u16 = 65;

/// A request that leaves the connection open for another.
fn request(host: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nbody")
}

pub(crate) fn allowed_name_does_not_open_other_names(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws =
        client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test", "www.good.test"]}}));
    let tried = try_all(
        &ws,
        json!([
            ["http", SERVER],
            ["http", "good.test"],
            ["http", "www.good.test"],
            ["tls", "good.test", "good.test"],
            ["http", SERVER, "good.test"],
            // Another name of the same address, and another address.
            ["http", "bad.test"],
            ["http", "other.test"],
            ["http", OTHER_SERVER],
            // A request or handshake that names another host, or none.
            ["http", "good.test", "bad.test"],
            ["http", "good.test", SERVER],
            ["tls", "good.test", "bad.test"],
            ["tls", "good.test", null],
            ["http", "good.test", "good.test.bad.test"],
            // A second request on the same connection.
            ["say", "good.test", TELLING_PORT, format!("{}{}", request("good.test"), request("bad.test"))],
        ]),
    );
    tried[0].is_refused();
    tried[1].is("the page of good.test");
    tried[2].is("the page of www.good.test");
    tried[3].is("the page of good.test");
    tried[4].is("the page of good.test");
    tried[5].fails_at_once(&["no address"]);
    tried[6].fails_at_once(&["no address"]);
    tried[7].is_refused();
    for lie in &tried[8..] {
        lie.fails_at_once(&CUT);
    }
    let both = format!("{}{}", request("good.test"), request("www.good.test"));
    attempt(&ws, json!(["say", "good.test", TELLING_PORT, both])).is("closed");
    let has_come = || !internet.asked_for("Host: www.good.test").is_empty();
    eventually("a second request that may be there is let through", LONG, has_come);
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
    assert!(internet.asked_for(OTHER_SERVER).is_empty(), "{:?}", internet.asked());

    // QUIC is refused because it hides the host name.
    policy(&ws, json!({"allow_domains": ["good.test"]}));
    attempt(&ws, json!(["udp", "good.test", 443, "x"])).fails_at_once(&["unreachable", "refused"]);
    assert_eq!(attempt(&ws, json!(["udp", "good.test", 9, "x"])).result, "got x");
}

/// A DNS query can carry data to the operator of the name's server (DNS tunnelling). Queries for names that are not
/// allowed never leave the host, whether the guest has allowed names or is offline.
pub(crate) fn forbidden_dns_queries_never_leave_the_host(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace();
    let secret = "s3cret".repeat(10);
    for allowed in [json!([]), json!(["good.test"])] {
        policy(&ws, json!({"allow_domains": allowed}));
        let names = (0..10).map(|n| format!("{n}.{secret}.{secret}.{secret}.tunnel.test"));
        let mut asked: Vec<Value> = names
            .flat_map(|name| [A, NULL, MX, TXT, AAAA, HTTPS].map(|kind| json!(["query", name, kind])))
            .collect();
        // A subdomain of an allowed name is not allowed.
        asked.push(json!(["query", "tunnel.good.test", TXT]));
        let count = asked.len();
        // Around the gateway: directly to the host's resolver and to a public one.
        asked.push(json!(["query", "x.tunnel.test", A, RESOLVER]));
        asked.push(json!(["query", "x.tunnel.test", A, SERVER]));
        asked.push(json!(["say", RESOLVER, 53, "tunnel"]));
        asked.push(json!(["say", SERVER, 53, "tunnel"]));
        let tried = try_all(&ws, Value::Array(asked));
        for refused in &tried[..count] {
            refused.fails_at_once(&["code 5, 0 records"]);
        }
        for around in &tried[count..] {
            around.fails_at_once(&["unreachable", "refused"]);
        }
    }
    assert!(internet.asked_for("tunnel").is_empty(), "{:?}", internet.asked());

    // There is no IPv6, and no query pretends otherwise.
    policy(&ws, json!({"allow_internet": true}));
    let tried = try_all(
        &ws,
        json!([
            ["query", "good.test", AAAA],
            ["six", "2001:db8::1", 80],
            ["six", "fe80::1", 80],
            ["query", "good.test", A],
        ]),
    );
    tried[0].is("code 0, 0 records");
    tried[1].fails_at_once(&["unreachable"]);
    assert!(tried[2].seconds < AT_ONCE && tried[2].result != "connected", "{:?}", tried[2]);
    tried[3].is("code 0, 1 records");
    // An IPv4-mapped address follows the rules of IPv4.
    policy(&ws, json!({"allow_internet": false, "allow_domains": []}));
    attempt(&ws, json!(["six", "::ffff:203.0.113.10", 80])).fails_at_once(&["refused", "unreachable"]);
}

/// A policy change applies to names at once: neither earlier answers nor cached refusals stay valid.
pub(crate) fn names_follow_the_policy_at_once(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace();
    for _ in 0..2 {
        page(&ws, "good.test").fails_at_once(&["no address"]);
        policy(&ws, json!({"allow_domains": ["good.test"]}));
        page(&ws, "good.test").is("the page of good.test");
        policy(&ws, json!({"allow_domains": ["other.test"]}));
        page(&ws, "good.test").fails_at_once(&["no address"]);
        page(&ws, SERVER).is_refused();
        page(&ws, "other.test").is("the page of other.test");
        policy(&ws, json!({"allow_domains": []}));
    }
    policy(&ws, json!({"allow_internet": true, "deny_domains": ["good.test"]}));
    page(&ws, "good.test").fails_at_once(&["no address"]);
    page(&ws, "other.test").is("the page of other.test");
    // `allow_internet`, off and on again.
    policy(&ws, json!({"deny_domains": []}));
    for _ in 0..2 {
        policy(&ws, json!({"allow_internet": false}));
        page(&ws, "other.test").fails_at_once(&["no address"]);
        page(&ws, SERVER).is_refused();
        policy(&ws, json!({"allow_internet": true}));
        page(&ws, "other.test").is("the page of other.test");
        page(&ws, SERVER).is(&format!("the page of {SERVER}"));
    }
}
