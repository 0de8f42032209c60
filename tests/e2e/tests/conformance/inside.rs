//! Addresses that `allow_internet` never opens: the host and its services, private networks, and the cloud's metadata
//! service.

use std::time::Duration;

use agentiso_e2e::guest::{attempt, page, policy, try_all};
use agentiso_e2e::internet::{HOST, HOST_PORT, METADATA, NOT_PUBLIC, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{eventually, host_or_skip};
use serde_json::{Value, json};

use crate::Backend;

/// A guest must not reach services of the host, whether they listen on its addresses or on the gateway's.
pub(crate) fn allow_internet_never_opens_internal_addresses(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"allow_internet": true}));
    page(&ws, SERVER).is(&format!("the page of {SERVER}"));

    let addresses = NOT_PUBLIC.iter().copied().chain([HOST, "10.42.0.1"]);
    let mut asked: Vec<Value> = Vec::new();
    for address in addresses.clone() {
        asked.push(json!(["http", address]));
        asked.push(json!(["http", address, "good.test", HOST_PORT]));
        asked.push(json!(["tls", address, "good.test"]));
    }
    for tried in try_all(&ws, Value::Array(asked)) {
        tried.is_refused();
    }
    let mut asked: Vec<Value> = addresses.clone().map(|address| json!(["udp", address, 9, "x"])).collect();
    asked.extend(NOT_PUBLIC.iter().map(|address| json!(["ping", address])));
    for tried in try_all(&ws, Value::Array(asked)) {
        tried.fails_at_once(&["unreachable", "refused"]);
    }
    // HTTP redirects to internal addresses are refused too.
    let redirect = |to: &str| attempt(&ws, json!(["follow", format!("http://good.test/redirect/{to}/")]));
    redirect("other.test").is("the page of other.test");
    redirect(METADATA).is_refused();
    redirect(&format!("{HOST}:{HOST_PORT}")).is_refused();
    for address in NOT_PUBLIC {
        assert!(internet.asked_for(&format!("http {address}")).is_empty(), "{:?}", internet.asked());
    }
    assert!(internet.asked_at_home().is_empty(), "{:?}", internet.asked_at_home());

    // A CIDR rule opens exactly the internal address and port that it names.
    policy(&ws, json!({"allow_cidrs": ["192.168.77.1:80"]}));
    page(&ws, "192.168.77.1").is("the page of 192.168.77.1");
    page(&ws, "10.0.0.7").is_refused();
    attempt(&ws, json!(["tls", "192.168.77.1", "good.test"])).is_refused();
    policy(&ws, json!({"allow_cidrs": ["0.0.0.0/0"]}));
    page(&ws, "192.168.77.1").is_refused();
    page(&ws, METADATA).is_refused();
}

/// DNS rebinding: the owner of a name can give it any address, and another one on the next query.
pub(crate) fn names_of_internal_addresses_do_not_resolve(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws =
        client.workspace_with(json!({"network_policy": {"allow_domains": ["*.rebind.test", "good.test"]}}));
    for internet_too in [false, true] {
        policy(&ws, json!({"allow_internet": internet_too}));
        let tried = try_all(
            &ws,
            json!([
                ["http", "loopback.rebind.test", null, HOST_PORT],
                ["http", "private.rebind.test"],
                ["http", "host.rebind.test", null, HOST_PORT],
                ["http", "metadata.rebind.test"],
                ["resolve", "both.rebind.test"],
                ["http", "192.168.77.1", "private.rebind.test"],
                ["http", HOST, "host.rebind.test", HOST_PORT],
            ]),
        );
        for named in &tried[..4] {
            named.fails_at_once(&["no address"]);
        }
        tried[4].is(SERVER);
        for literal in &tried[5..] {
            literal.is_refused();
        }
    }
    // The name resolves first to a public address, then to the loopback, a private network and the host.
    page(&ws, "flip.rebind.test").is("the page of flip.rebind.test");
    eventually("the name has led everywhere", Duration::from_secs(60), || {
        page(&ws, "flip.rebind.test");
        internet.asked_for("dns flip.rebind.test").len() >= 4
    });
    page(&ws, "flip.rebind.test").fails_at_once(&["no address"]);
    assert!(internet.asked_at_home().is_empty(), "{:?}", internet.asked_at_home());
    for address in NOT_PUBLIC {
        assert!(internet.asked_for(&format!("http {address}")).is_empty(), "{:?}", internet.asked());
    }
}
