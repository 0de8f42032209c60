//! What a workspace may reach goes with it through everything that ends one machine and begins another.

use std::time::{Duration, Instant};

use agentiso_e2e::guest::{policy, serve_endlessly, try_all};
use agentiso_e2e::internet::{OTHER_SERVER, SERVER, TELLING_PORT};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// What a machine may reach.
#[derive(Clone, Copy, Debug)]
enum May {
    Nothing,
    /// `good.test`, and nothing else.
    Good,
}

impl May {
    /// Asks for it from within, by every way that another machine of the same name, address or memory might have open.
    fn is_all_of(self, ws: &TestWorkspace<'_>) {
        let network = &ws.info()["network"];
        let told = match self {
            Self::Nothing => json!([]),
            Self::Good => json!(["good.test"]),
        };
        let told_of = network.get("allow_domains").unwrap_or(&json!([])).clone();
        assert_eq!((&told_of, &network["allow_internet"]), (&told, &json!(false)), "{}", ws.name);
        let tried = try_all(
            ws,
            json!([
                ["http", "good.test"],
                ["http", "bad.test"],
                ["http", OTHER_SERVER],
                ["http", SERVER, "bad.test"],
            ]),
        );
        match self {
            Self::Nothing => {
                tried[0].fails_at_once(&["no address"]);
                tried[3].is_refused();
            }
            Self::Good => {
                tried[0].is("the page of good.test");
                tried[3].fails_at_once(&["closed", "reset"]);
            }
        }
        tried[1].fails_at_once(&["no address"]);
        tried[2].is_refused();
    }
}

/// A machine that is made again, from its disk or with its memory, in its own place or as a copy, has the rules of its
/// workspace: not those of a machine without any, and none that it had in the meantime.
pub(crate) fn a_policy_goes_with_a_workspace_through_snapshots_forks_and_restarts(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let open = json!({"name": "open", "network_policy": {"allow_domains": ["good.test"]}});
    for (ws, may) in [(client.workspace_with(open), May::Good), (client.workspace(), May::Nothing)] {
        may.is_all_of(&ws);
        ws.snapshot("disk");
        ws.snapshot_with_memory("memory");
        for snapshot in ["memory", "disk"] {
            ws.restore(snapshot);
            may.is_all_of(&ws);
            let fork = ws.fork(snapshot);
            may.is_all_of(&fork);
            fork.stop();
            fork.start();
            may.is_all_of(&fork);
            // What is changed of one is not changed of the other.
            policy(&fork, json!({"allow_domains": ["good.test", "bad.test"]}));
            may.is_all_of(&ws);
            fork.destroy();
        }
        ws.stop();
        ws.start();
        may.is_all_of(&ws);

        // A snapshot is a state of the machine; whom it may talk to is decided outside of it, and stays decided.
        let (changed, then) = match may {
            May::Good => (json!([]), May::Nothing),
            May::Nothing => (json!(["good.test"]), May::Good),
        };
        policy(&ws, json!({"allow_domains": changed}));
        for snapshot in ["memory", "disk"] {
            ws.restore(snapshot);
            then.is_all_of(&ws);
        }
        let fork = ws.fork("memory");
        then.is_all_of(&fork);
        fork.destroy();
        ws.destroy();
    }
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
    test.assert_no_workspaces_left();
}

/// Whoever is connected to a machine that goes learns of it at once, inside and outside, and whoever comes too late is not
/// kept waiting.
pub(crate) fn what_a_machine_had_open_ends_with_it(backend: Backend) {
    const SOON: Duration = Duration::from_secs(5);
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let rules = json!({"allow_cidrs": [format!("{SERVER}:{TELLING_PORT}")]});
    let ws = client.workspace_with(json!({"network_policy": rules}));
    serve_endlessly(&ws, 8080);
    let added = ws.tool("port_forward", json!({"action": "add", "guest_port": 8080})).json();
    let port = added["host_port"].as_u64().unwrap();
    ws.snapshot_with_memory("before");
    ws.write("/root/talk.py", TALK);
    ws.sh(&format!("nohup python3 /root/talk.py {SERVER} {TELLING_PORT} > /dev/null 2>&1 &"));
    eventually("the server is told something", SOON * 4, || !internet.asked_for("told").is_empty());

    let ended = std::thread::scope(|scope| {
        let listening = scope.spawn(|| (internet.greeting_at_host("127.0.0.1", port), Instant::now()));
        let logged = || agentiso_e2e::guest::log(&ws).contains("by port_forward");
        eventually("the client is connected", SOON * 4, logged);
        let began = Instant::now();
        ws.restore("before");
        let took = began.elapsed();
        let (said, ended) = listening.join().unwrap();
        assert_eq!(said, "reset");
        (ended - began).saturating_sub(took)
    });
    assert!(ended < SOON, "the client waited {ended:?} longer than the restore took");
    eventually("the server is told of the end", SOON, || !internet.asked_for("reset").is_empty());
    assert!(internet.asked_for("ended").is_empty(), "{:?}", internet.asked());

    // What was in its memory serves others.
    let hear = format!(
        "python3 -c \"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(5))\" || true"
    );
    let greets = || internet.sh_at_host(&hear).contains("hello");
    eventually("the machine that was restored answers", SOON * 4, greets);
    ws.stop();
    let began = Instant::now();
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), "reset");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Says something and keeps the connection.
const TALK: &str = "
import socket, sys, time
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
stream.sendall(b'here')
time.sleep(1000)
";

/// A machine outlives its daemon, and its rules with it.
pub(crate) fn a_policy_holds_after_a_daemon_that_was_killed(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let open = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test"]}}));
    let closed = client.workspace();
    May::Good.is_all_of(&open);
    May::Nothing.is_all_of(&closed);
    let machines = test.machines();
    test.kill_daemon();
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    assert_eq!(test.machines(), machines, "they have not been started again");
    for (before, may) in [(open, May::Good), (closed, May::Nothing)] {
        may.is_all_of(&next.existing(&before.id));
    }
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
}
