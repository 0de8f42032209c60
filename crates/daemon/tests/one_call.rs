//! Workspaces that are there for one call: a daemon that ends in the middle of it, in order or not, leaves none.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::lifecycle::PublicState;
use agentiso_core::names::{TaskName, WorkspaceName};
use agentiso_daemon::{Daemon, PrepareRequest, Progress, Session, SessionKind, SwarmRequest, SwarmTask};
use support::{Fault, World, by_name, eventually, named, open, snap};
use tokio::runtime::Runtime;

/// Tasks `sleep` and `hi`: one never ends, the other does at once.
fn swarm(commands: &[&str], cleanup: bool) -> SwarmRequest {
    let task = |command: &&str| SwarmTask {
        name: TaskName::parse(command).unwrap(),
        command: (*command).to_owned(),
        workdir: None,
        env: BTreeMap::new(),
        vault_queries: Vec::new(),
    };
    SwarmRequest {
        golden: by_name("web"),
        snapshot: snap("a"),
        tasks: commands.iter().map(task).collect(),
        env: BTreeMap::new(),
        merge: None,
        max_parallel: 4,
        timeout: Duration::from_secs(600),
        cleanup,
        allow_internet: None,
        shared_context: None,
        name_prefix: None,
        vault_queries: Vec::new(),
        mcp_bridge: false,
    }
}

fn prepare(command: &str) -> PrepareRequest {
    PrepareRequest {
        name: WorkspaceName::parse("gold").unwrap(),
        base_image: None,
        git_url: None,
        setup_commands: vec![command.to_owned()],
        timeout: Duration::from_secs(600),
    }
}

fn names(session: &Session) -> Vec<String> {
    session.list(None).into_iter().map(|info| info.name.to_string()).collect()
}

fn running(session: &Session) -> usize {
    session.list(Some(PublicState::Running)).len()
}

fn directories(root: &Path) -> usize {
    std::fs::read_dir(root.join("workspaces")).unwrap().count()
}

/// A daemon with `web`, and a swarm and a preparation that are under way and will never end.
async fn under_way(root: &Path, world: &Arc<World>, cleanup: bool) -> Daemon {
    let daemon = open(root, world).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), true, &Progress::silent()).await.unwrap();
    let (swarming, preparing) = (session.clone(), session.clone());
    tokio::spawn(async move {
        swarming.swarm(swarm(&["sleep", "hi"], cleanup), &Progress::silent()).await.unwrap_err()
    });
    tokio::spawn(async move { preparing.prepare(prepare("sleep"), &Progress::silent()).await.unwrap_err() });
    eventually("two workers and what is prepared", || running(&session) == 4).await;
    daemon
}

/// Only `web` is there, and of nothing else a trace.
async fn only_web_is_left(root: &Path, world: &Arc<World>, state: PublicState) {
    let daemon = open(root, world).await;
    let session = daemon.open_session(SessionKind::Client);
    eventually("the end of what nobody waits for", || names(&session) == ["web"]).await;
    assert_eq!(session.list(None)[0].state, state);
    assert_eq!(directories(root), 1);
    assert_eq!(world.processes().len(), usize::from(state == PublicState::Running));
    daemon.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_destroys_the_workers_of_a_swarm_before_it_ends() {
    for cleanup in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(dir.path());
        under_way(dir.path(), &world, cleanup).await.shutdown().await;
        assert_eq!((directories(dir.path()), world.processes().len()), (1, 0));
        only_web_is_left(dir.path(), &world, PublicState::Stopped).await;
    }
}

#[test]
fn after_a_crash_the_next_daemon_destroys_them() {
    for cleanup in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let world = World::new(dir.path());
        let crashing = Runtime::new().unwrap();
        let daemon = crashing.block_on(under_way(dir.path(), &world, cleanup));
        // Every task ends where it stands; machines go on.
        drop(crashing);
        drop(daemon);
        assert_eq!(world.processes().len(), 4);
        Runtime::new().unwrap().block_on(only_web_is_left(dir.path(), &world, PublicState::Running));
    }
}

#[tokio::test]
async fn one_that_a_shutdown_could_not_remove_is_removed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = under_way(dir.path(), &world, true).await;
    world.inject(Fault::EraseFails);
    daemon.shutdown().await;
    assert_eq!(directories(dir.path()), 2);
    only_web_is_left(dir.path(), &world, PublicState::Stopped).await;
}

#[tokio::test]
async fn what_a_call_leaves_to_its_caller_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
    session.swarm(swarm(&["hi"], false), &Progress::silent()).await.unwrap();
    session.prepare(prepare("hi"), &Progress::silent()).await.unwrap();
    let before = names(&session);
    assert_eq!(before.len(), 3, "{before:?}");
    drop(session);
    daemon.shutdown().await;
    let daemon = open(dir.path(), &world).await;
    assert_eq!(names(&daemon.open_session(SessionKind::Client)), before);
    daemon.shutdown().await;
}
