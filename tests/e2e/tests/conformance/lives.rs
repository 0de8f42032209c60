//! A workspace keeps its policy across everything that ends one VM and starts another.

use std::time::{Duration, Instant};

use agentiso_e2e::guest::{policy, serve_endlessly, try_all};
use agentiso_e2e::internet::{OTHER_SERVER, SERVER, TELLING_PORT};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// The expected policy of a workspace.
#[derive(Clone, Copy, Debug)]
enum Reach {
    Nothing,
    /// Only `good.test`.
    Good,
}

impl Reach {
    /// Checks the policy from within the guest, by every way that another VM of the same name, address or memory might
    /// have open.
    fn assert_on(self, ws: &TestWorkspace<'_>) {
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

/// A VM that is restored or forked, from disk or with memory, has the current rules of its workspace: neither no rules,
/// nor rules that it had in between.
pub(crate) fn policy_survives_snapshots_forks_and_restarts(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let open = json!({"name": "open", "network_policy": {"allow_domains": ["good.test"]}});
    for (ws, reach) in [(client.workspace_with(open), Reach::Good), (client.workspace(), Reach::Nothing)] {
        reach.assert_on(&ws);
        ws.snapshot("disk");
        ws.snapshot_with_memory("memory");
        for snapshot in ["memory", "disk"] {
            ws.restore(snapshot);
            reach.assert_on(&ws);
            let fork = ws.fork(snapshot);
            reach.assert_on(&fork);
            fork.stop();
            fork.start();
            reach.assert_on(&fork);
            // A change to the fork does not affect its source.
            policy(&fork, json!({"allow_domains": ["good.test", "bad.test"]}));
            reach.assert_on(&ws);
            fork.destroy();
        }
        ws.stop();
        ws.start();
        reach.assert_on(&ws);

        // The policy is not part of a snapshot: a restore does not bring an old policy back.
        let (changed, then) = match reach {
            Reach::Good => (json!([]), Reach::Nothing),
            Reach::Nothing => (json!(["good.test"]), Reach::Good),
        };
        policy(&ws, json!({"allow_domains": changed}));
        for snapshot in ["memory", "disk"] {
            ws.restore(snapshot);
            then.assert_on(&ws);
        }
        let fork = ws.fork("memory");
        then.assert_on(&fork);
        fork.destroy();
        ws.destroy();
    }
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
    test.assert_no_workspaces_left();
}

/// When a VM ends, both ends of its connections are reset at once, and later connections to its forward are not kept
/// waiting.
pub(crate) fn open_connections_end_with_their_vm(backend: Backend) {
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

    // The server in the restored memory serves new connections.
    let hear = format!(
        "python3 -c \"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(5))\" || true"
    );
    let greets = || internet.sh_at_host(&hear).contains("hello");
    eventually("the VM that was restored answers", SOON * 4, greets);
    ws.stop();
    let began = Instant::now();
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), "reset");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Sends some bytes and keeps the connection open.
const TALK: &str = "
import socket, sys, time
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
stream.sendall(b'here')
time.sleep(1000)
";

/// A VM outlives its daemon, and so do its rules.
pub(crate) fn policy_holds_after_a_killed_daemon(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let open = client.workspace_with(json!({"network_policy": {"allow_domains": ["good.test"]}}));
    let closed = client.workspace();
    Reach::Good.assert_on(&open);
    Reach::Nothing.assert_on(&closed);
    let vms = test.vms();
    test.kill_daemon();
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    assert_eq!(test.vms(), vms, "they have not been started again");
    for (before, reach) in [(open, Reach::Good), (closed, Reach::Nothing)] {
        reach.assert_on(&next.existing(&before.id));
    }
    assert!(internet.asked_for("bad.test").is_empty(), "{:?}", internet.asked());
}
