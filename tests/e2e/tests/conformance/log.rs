//! The network log has the same content on every backend.

use std::time::Duration;

use agentiso_e2e::guest::{address, attempt, download, echo, log, page, policy, serve_endlessly, try_all};
use agentiso_e2e::internet::{KEEPING_PORT, OTHER_SERVER, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// The time within which a record must appear in the log.
const SOON: Duration = Duration::from_secs(10);

/// The log lines about one endpoint, without the time and the guest's port.
fn lines(ws: &TestWorkspace<'_>, place: &str) -> Vec<String> {
    let about = format!(" {place} ");
    let log = log(ws).lines().map(|line| format!("{line} ")).collect::<Vec<_>>();
    let log = log.iter().filter(|line| line.contains(&about) || line.contains(&format!(" {place}: ")));
    log.map(|line| plain(line)).collect()
}

fn plain(line: &str) -> String {
    let (_time, rest) = line.split_once(' ').unwrap_or_default();
    let mut words = rest.split_whitespace();
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        if word != "from" {
            plain.push(word.to_owned());
            continue;
        }
        // Of "from port 40000:" only the final punctuation is kept.
        let port = words.nth(1).unwrap_or_default();
        if let Some(last) = plain.last_mut() {
            last.push_str(port.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
    }
    plain.join(" ")
}

/// Waits until the lines about an endpoint begin with these texts; a reason may follow.
#[track_caller]
fn says(ws: &TestWorkspace<'_>, place: &str, expected: &[&str]) {
    let fits = || {
        let lines = lines(ws, place);
        lines.len() == expected.len()
            && expected.iter().zip(&lines).all(|(start, line)| line.starts_with(start))
    };
    eventually(&format!("{expected:?} and not {:#?}", lines(ws, place)), SOON, fits);
}

/// Every opened, closed and refused flow is logged with its name, rule and byte counts, to the outside and between
/// workspaces, over TCP and UDP. Flows closed by a policy change or by the end of a VM are logged as closed.
pub(crate) fn network_log_records_opened_closed_and_refused_flows(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let rules = json!({"allow_domains": ["good.test"], "allow_inter_vm": true});
    let one = client.workspace_with(json!({"name": "one", "network_policy": rules}));
    let rules = json!({"allow_inter_vm": true, "allowed_ports": [7, 8080]});
    let two = client.workspace_with(json!({"name": "two", "network_policy": rules}));
    echo(&two, 7);
    serve_endlessly(&two, 8080);
    two.snapshot_with_memory("before");
    let there = address(&two);

    // To the outside.
    page(&one, "good.test").is("the page of good.test");
    let request = "GET / HTTP/1.0\r\nHost: good.test\r\n\r\n".len();
    let web = format!("tcp {SERVER}:80 (good.test) by allow_domains good.test");
    says(
        &one,
        &format!("tcp {SERVER}:80"),
        &[&format!("opened {web}"), &format!("closed {web}, {request} bytes up, ")],
    );
    let closed = lines(&one, &format!("tcp {SERVER}:80")).remove(1);
    let down: usize = closed.split_whitespace().rev().nth(2).and_then(|word| word.parse().ok()).unwrap();
    assert!((22..2000).contains(&down), "the page with its head: {closed}");
    attempt(&one, json!(["udp", "good.test", KEEPING_PORT, "a question"])).is("got a question");
    let datagrams = format!("udp {SERVER}:{KEEPING_PORT} (good.test) by allow_domains good.test");
    says(&one, &format!("udp {SERVER}:{KEEPING_PORT}"), &[&format!("opened {datagrams}")]);

    // To the other workspace, by its name.
    let words = "x".repeat(100_000);
    attempt(&one, json!(["say", "two", 7, words])).is(&format!("got {words}"));
    let stream = format!("tcp {there}:7 (two) by allow_inter_vm");
    says(
        &one,
        &format!("tcp {there}:7"),
        &[&format!("opened {stream}"), &format!("closed {stream}, 100000 bytes up, 100004 bytes down")],
    );
    attempt(&one, json!(["udp", "two", 7, "hi"])).is("got hi");
    let neighbour = format!("udp {there}:7 (two) by allow_inter_vm");
    says(&one, &format!("udp {there}:7"), &[&format!("opened {neighbour}")]);

    // Refusals, directly after a flow between the two was allowed: the bridge's kernel reports less about other flows
    // then.
    let tried = try_all(
        &one,
        json!([
            ["say", "two", 7, "hi"],
            ["udp", OTHER_SERVER, 9, "x"],
            ["http", OTHER_SERVER],
            ["http", there],
            ["udp", there, 9, "x"]
        ]),
    );
    let [passed, refused @ ..] = &tried[..] else { panic!("nothing was tried") };
    passed.is("got hi");
    for tried in refused {
        tried.fails_at_once(&["refused", "unreachable"]);
    }
    let why = "is not allowed: no name in allow_domains was resolved to it";
    for place in [format!("tcp {OTHER_SERVER}:80"), format!("udp {OTHER_SERVER}:9")] {
        let to = place.split_once(' ').unwrap().1;
        says(&one, &place, &[&format!("refused {place}: {to} {why}")]);
    }
    for place in [format!("tcp {there}:80"), format!("udp {there}:9")] {
        let port = place.rsplit(':').next().unwrap();
        let why = format!("port {port} is not among the other VM's allowed_ports");
        says(&one, &place, &[&format!("refused {place}: {why}")]);
    }

    // A policy change closes flows and is logged as the reason.
    policy(&one, json!({"allow_domains": []}));
    let ended =
        format!("closed {datagrams}, 10 bytes up, 14 bytes down: good.test ({SERVER}:{KEEPING_PORT}) is not");
    says(&one, &format!("udp {SERVER}:{KEEPING_PORT}"), &[&format!("opened {datagrams}"), &ended]);
    // The end of a VM closes flows as well.
    let _running = download(&one, &there, 8080, "-");
    two.restore("before");
    let gone = "the other VM is gone";
    let ended = format!("closed {neighbour}, 2 bytes up, 6 bytes down: {gone}");
    says(&one, &format!("udp {there}:7"), &[&format!("opened {neighbour}"), &ended]);
    let long = format!("tcp {there}:8080 (two) by allow_inter_vm");
    let told = lines(&one, &format!("tcp {there}:8080"));
    assert_eq!(told[0], format!("opened {long}"));
    assert!(told[1].starts_with(&format!("closed {long}, ")) && told[1].ends_with(gone), "{told:?}");
    assert!(!log(&two).contains("allow_inter_vm"), "it has opened nothing: {}", log(&two));
    drop(internet);
}
