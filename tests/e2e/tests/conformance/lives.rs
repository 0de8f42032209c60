//! What a workspace may reach goes with it through everything that ends one machine and begins another.

use agentiso_e2e::guest::{policy, try_all};
use agentiso_e2e::internet::{OTHER_SERVER, SERVER};
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{TestWorkspace, host_or_skip};
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
