//! What the configuration says about the network of workspaces whose creator says nothing.

mod support;

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::names::WorkspaceName;
use agentiso_core::network::PolicyChange;
use agentiso_daemon::{
    CreateRequest, Daemon, ForkRequest, PrepareRequest, Progress, SessionKind, WorkspaceInfo,
};
use support::{Handle, World, by_name, config, named, snap};

/// Whether it may reach the internet, and other workspaces.
fn may(info: &WorkspaceInfo) -> (bool, bool) {
    (info.network.policy.allow_internet, info.network.policy.allow_inter_vm)
}

#[tokio::test]
async fn a_workspace_may_what_the_configuration_says_unless_its_creator_says_otherwise() {
    for (internet, inter_vm) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let text =
            format!("[network]\ndefault_allow_internet = {internet}\ndefault_allow_inter_vm = {inter_vm}\n");
        let handle = Arc::new(Handle(World::new(dir.path())));
        let daemon = Daemon::open_with(config(dir.path(), &text), handle).await.unwrap();
        let session = daemon.open_session(SessionKind::Client);
        let quiet = Progress::silent();
        let created = session.create(named("web"), &quiet).await.unwrap();
        assert_eq!(may(&created.info), (internet, inter_vm));
        assert_eq!(may(&session.info(&by_name("web")).await.unwrap()), (internet, inter_vm));

        session.snapshot(&by_name("web"), snap("a"), false, &quiet).await.unwrap();
        let fork = ForkRequest {
            source: by_name("web"),
            snapshot: snap("a"),
            new_name: None,
            setup_commands: Vec::new(),
        };
        let forked = session.fork(fork, &quiet).await.unwrap();
        assert_eq!(may(&forked.workspace), (internet, inter_vm), "as its source");

        for said in [false, true] {
            let network = PolicyChange { allow_internet: Some(said), ..PolicyChange::default() };
            let other = CreateRequest { network, ..named(if said { "open" } else { "closed" }) };
            let created = session.create(other, &quiet).await.unwrap();
            assert_eq!(may(&created.info), (said, inter_vm), "what is said wins, the rest stays");
        }
        let prepare = PrepareRequest {
            name: WorkspaceName::parse("gold").unwrap(),
            base_image: None,
            git_url: None,
            setup_commands: Vec::new(),
            timeout: Duration::from_secs(60),
        };
        session.prepare(prepare, &quiet).await.unwrap();
        assert_eq!(session.info(&by_name("gold")).await.unwrap().network.policy.allow_inter_vm, inter_vm);
        daemon.shutdown().await;
    }
}
