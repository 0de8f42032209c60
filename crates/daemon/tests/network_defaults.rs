//! Tests for the configured network policy of workspaces whose creator sets none.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::names::WorkspaceName;
use agentiso_core::network::PolicyChange;
use agentiso_daemon::{
    CreateRequest, Daemon, ForkRequest, PrepareRequest, Progress, SessionKind, WorkspaceInfo,
};
use support::{FakeHost, FakeVms, by_name, config, eventually, named, snap};

/// Whether it may reach the internet, and other workspaces.
fn access(info: &WorkspaceInfo) -> (bool, bool) {
    (info.network.policy.allow_internet, info.network.policy.allow_inter_vm)
}

fn prepare(name: &str, commands: &[&str]) -> PrepareRequest {
    PrepareRequest {
        name: WorkspaceName::parse(name).unwrap(),
        base_image: None,
        git_url: None,
        setup_commands: commands.iter().map(|command| (*command).to_owned()).collect(),
        timeout: Duration::from_secs(60),
        network: PrepareRequest::internet(),
        keep_network: false,
    }
}

#[tokio::test]
async fn prepared_workspace_is_as_closed_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host.clone()))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    let quiet = Progress::silent();
    session.create(named("old"), &quiet).await.unwrap();
    for name in ["new", "old"] {
        session.prepare(prepare(name, &["hi"]), &quiet).await.unwrap();
        assert_eq!(access(&session.info(&by_name(name)).await.unwrap()), (false, false), "{name}");
        let fork = ForkRequest {
            source: by_name(name),
            snapshot: snap("golden"),
            new_name: None,
            setup_commands: Vec::new(),
        };
        assert_eq!(access(&session.fork(fork, &quiet).await.unwrap().workspace), (false, false), "{name}");
    }
    let kept = PrepareRequest { keep_network: true, ..prepare("kept", &[]) };
    session.prepare(kept, &quiet).await.unwrap();
    assert_eq!(access(&session.info(&by_name("kept")).await.unwrap()), (true, false));
    daemon.shutdown().await;
}

#[tokio::test]
async fn prepared_workspace_is_opened_by_keep_network() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host.clone()))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    let quiet = Progress::silent();
    session.prepare(prepare("gold", &[]), &quiet).await.unwrap();
    for (keep_network, open) in [(false, false), (true, true), (false, true)] {
        let again = PrepareRequest { keep_network, ..prepare("gold", &[]) };
        let found = session.prepare(again, &quiet).await.unwrap();
        assert!(matches!(found, agentiso_daemon::Prepared::Existing { .. }), "{found:?}");
        assert_eq!(access(&session.info(&by_name("gold")).await.unwrap()), (open, false));
    }
    daemon.shutdown().await;
}

#[tokio::test]
async fn crash_while_preparing_leaves_the_policy_closed() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host.clone()))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    let preparing = session.clone();
    let call = tokio::spawn(async move {
        preparing.prepare(prepare("web", &["sleep"]), &Progress::silent()).await.map(drop)
    });
    eventually("the command runs", || host.commands.load(Ordering::SeqCst) == 1).await;
    // A daemon that starts after a crash reads this.
    let ledger = std::fs::read_to_string(dir.path().join("state.json")).unwrap();
    assert!(!ledger.contains("\"allow_internet\":true") && !ledger.contains("\"allow_internet\": true"));
    assert_eq!(access(&session.info(&by_name("web")).await.unwrap()), (false, false));
    daemon.shutdown().await;
    call.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn network_defaults_apply_unless_the_creator_overrides() {
    for (internet, inter_vm) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let text =
            format!("[network]\ndefault_allow_internet = {internet}\ndefault_allow_inter_vm = {inter_vm}\n");
        let handle = Arc::new(FakeVms(FakeHost::new(dir.path())));
        let daemon = Daemon::open_with(config(dir.path(), &text), handle).await.unwrap();
        let session = daemon.open_session(SessionKind::Client);
        let quiet = Progress::silent();
        let created = session.create(named("web"), &quiet).await.unwrap();
        assert_eq!(access(&created.info), (internet, inter_vm));
        assert_eq!(access(&session.info(&by_name("web")).await.unwrap()), (internet, inter_vm));

        session.snapshot(&by_name("web"), snap("a"), false, &quiet).await.unwrap();
        let fork = ForkRequest {
            source: by_name("web"),
            snapshot: snap("a"),
            new_name: None,
            setup_commands: Vec::new(),
        };
        let forked = session.fork(fork, &quiet).await.unwrap();
        assert_eq!(access(&forked.workspace), (internet, inter_vm), "as its source");

        for said in [false, true] {
            let network = PolicyChange { allow_internet: Some(said), ..PolicyChange::default() };
            let other = CreateRequest { network, ..named(if said { "open" } else { "closed" }) };
            let created = session.create(other, &quiet).await.unwrap();
            assert_eq!(access(&created.info), (said, inter_vm), "what is said wins, the rest stays");
        }
        session.prepare(prepare("gold", &[]), &quiet).await.unwrap();
        assert_eq!(access(&session.info(&by_name("gold")).await.unwrap()), (internet, inter_vm));
        daemon.shutdown().await;
    }
}
