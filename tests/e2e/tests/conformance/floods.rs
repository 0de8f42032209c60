//! Network load without limit: it affects the workspace that causes it, and no other.

use std::time::{Duration, Instant};

use agentiso_e2e::guest::{AT_ONCE, flood, flows, page, slow_requests};
use agentiso_e2e::internet::{HELLO_PORT, KEEPING_PORT, SERVER, SILENT, TELLING_PORT};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// The seconds that a neighbour may wait for a page during the load. Both share the host's processors.
const UNDISTURBED: f64 = 5.0;

/// The number of connections that a workspace can hold open at least.
const HUNDREDS: u64 = 256;

/// Asserts that the neighbour can still run commands and fetch pages.
fn is_undisturbed(neighbour: &TestWorkspace<'_>) {
    let page = page(neighbour, "good.test");
    page.is("the page of good.test");
    assert!(page.seconds < UNDISTURBED, "{page:?}");
    let begun = Instant::now();
    neighbour.sh("true");
    assert!(begun.elapsed().as_secs_f64() < UNDISTURBED, "{:?}", begun.elapsed());
}

pub(crate) fn ten_thousand_connections_open_without_disturbing_neighbours(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let [busy, neighbour] = [(); 2].map(|()| client.workspace_with(json!({"allow_internet": true})));
    let running = flows(&busy, "churn", SERVER, HELLO_PORT, 10_000);
    is_undisturbed(&neighbour);
    let ends = running.wait(Duration::from_secs(400));
    assert_eq!(ends["opened"], 10_000, "{ends}");
    page(&busy, "good.test").is("the page of good.test");
}

/// A guest must not exhaust resources that all workspaces share: connections, descriptors, the resolver.
pub(crate) fn excess_connections_hurt_only_their_own_workspace(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let [busy, neighbour] = [(); 2].map(|()| client.workspace_with(json!({"allow_internet": true})));
    // The server keeps its ends of the connections open. They are only closed once the guest's kernel has dropped its
    // own ends: after 5 seconds instead of a minute.
    busy.sh("echo 5 > /proc/sys/net/ipv4/tcp_fin_timeout");
    let held = flows(&busy, "hold", SERVER, KEEPING_PORT, 1500);
    is_undisturbed(&neighbour);
    busy.sh("true");
    let ends = held.end();
    assert!(ends["opened"].as_u64().is_some_and(|opened| opened >= HUNDREDS), "{ends}");
    assert_eq!(ends["other"], 0, "what is too much is refused, not left waiting: {ends}");
    assert!(ends["slowest_refusal"].as_f64().is_some_and(|seconds| seconds < AT_ONCE), "{ends}");
    eventually("there is room again", Duration::from_secs(150), || {
        page(&busy, "good.test").result == "the page of good.test"
    });

    // Connections to a server that never answers.
    let begun = flows(&busy, "begin", SILENT, 80, 1000);
    is_undisturbed(&neighbour);
    begun.end();
    eventually("there is room again", Duration::from_secs(60), || {
        page(&busy, "good.test").result == "the page of good.test"
    });
}

pub(crate) fn frame_flood_hurts_only_its_own_workspace(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let [busy, neighbour] = [(); 2].map(|()| client.workspace_with(json!({"allow_internet": true})));
    let flooding = flood(&busy, SERVER);
    is_undisturbed(&neighbour);
    is_undisturbed(&neighbour);
    let sent = flooding.end();
    assert!(sent["sent"].as_u64().is_some_and(|sent| sent > 1000), "{sent}");
    eventually("it is served again", Duration::from_secs(60), || {
        page(&busy, "good.test").result == "the page of good.test"
    });
}

/// A client that sends its request very slowly and never completes it (slowloris) does not hold anything for long:
/// neither a connection that has not named its server yet, nor the resolver.
pub(crate) fn unfinished_requests_are_dropped(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test"]}}));
    let slow = slow_requests(&ws, "good.test", TELLING_PORT);
    is_undisturbed(&ws);
    let ends = slow.wait(Duration::from_secs(90));
    assert_eq!((&ends["opened"], &ends["left"]), (&json!(60), &json!(0)), "{ends}");
    assert!(internet.asked_for("told").is_empty(), "{:?}", internet.asked());
    is_undisturbed(&ws);
}
