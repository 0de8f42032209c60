//! Tests that workspaces which exist for one call do not outlive a daemon that ends during it, by a shutdown or a
//! crash.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::lifecycle::PublicState;
use agentiso_core::names::{TaskName, WorkspaceName};
use agentiso_daemon::{
    Daemon, OpError, PrepareRequest, Progress, Session, SessionKind, SwarmRequest, SwarmTask,
};
use support::{FakeHost, Fault, by_name, eventually, named, open, snap};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// A task named `sleep` never ends; a task named `hi` ends at once.
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
        network: PrepareRequest::internet(),
        keep_network: false,
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

/// A swarm and a prepare that are under way, with their results.
struct UnderWay {
    daemon: Daemon,
    calls: [JoinHandle<Result<(), OpError>>; 2],
}

impl UnderWay {
    /// Shuts the daemon down and checks that both calls were cancelled.
    async fn shut_down(self) {
        self.daemon.shutdown().await;
        for call in self.calls {
            let told = call.await.unwrap().unwrap_err();
            assert!(matches!(told, OpError::Cancelled | OpError::ShuttingDown), "{told}");
        }
    }
}

/// A daemon with `web`, and a swarm and a prepare that are under way and never end.
async fn under_way(root: &Path, host: &Arc<FakeHost>, cleanup: bool) -> UnderWay {
    let daemon = open(root, host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), true, &Progress::silent()).await.unwrap();
    let (swarming, preparing) = (session.clone(), session.clone());
    let swarming = tokio::spawn(async move {
        swarming.swarm(swarm(&["sleep", "hi"], cleanup), &Progress::silent()).await.map(drop)
    });
    let preparing =
        tokio::spawn(async move { preparing.prepare(prepare("sleep"), &Progress::silent()).await.map(drop) });
    // A running VM may not be assigned to its call yet; one that has a command is.
    let commands = || host.commands.load(Ordering::SeqCst);
    eventually("two workers and what is prepared", || running(&session) == 4 && commands() == 3).await;
    UnderWay { daemon, calls: [swarming, preparing] }
}

/// Checks that only `web` exists, without a trace of anything else.
async fn only_web_is_left(root: &Path, host: &Arc<FakeHost>, state: PublicState) {
    let daemon = open(root, host).await;
    let session = daemon.open_session(SessionKind::Client);
    eventually("the end of what nobody waits for", || names(&session) == ["web"]).await;
    assert_eq!(session.list(None)[0].state, state);
    assert_eq!(directories(root), 1);
    assert_eq!(host.processes().len(), usize::from(state == PublicState::Running));
    daemon.shutdown().await;
}

#[tokio::test]
async fn shutdown_destroys_one_call_workspaces() {
    for cleanup in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        under_way(dir.path(), &host, cleanup).await.shut_down().await;
        assert_eq!((directories(dir.path()), host.processes().len()), (1, 0));
        only_web_is_left(dir.path(), &host, PublicState::Stopped).await;
    }
}

#[test]
fn restart_destroys_crashed_one_call_workspaces() {
    for cleanup in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        let crashing = Runtime::new().unwrap();
        let UnderWay { daemon, calls } = crashing.block_on(under_way(dir.path(), &host, cleanup));
        assert!(calls.iter().all(|call| !call.is_finished()));
        // Every task ends immediately; VMs run on.
        drop(crashing);
        drop(daemon);
        assert_eq!(host.processes().len(), 4);
        Runtime::new().unwrap().block_on(only_web_is_left(dir.path(), &host, PublicState::Running));
    }
}

#[tokio::test]
async fn restart_retries_failed_one_call_removal() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let under_way = under_way(dir.path(), &host, true).await;
    host.inject(Fault::EraseFails);
    under_way.shut_down().await;
    assert_eq!(directories(dir.path()), 2);
    only_web_is_left(dir.path(), &host, PublicState::Stopped).await;
}

#[tokio::test]
async fn delivered_workspaces_outlive_their_call() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
    session.swarm(swarm(&["hi"], false), &Progress::silent()).await.unwrap();
    session.prepare(prepare("hi"), &Progress::silent()).await.unwrap();
    let before = names(&session);
    assert_eq!(before.len(), 3, "{before:?}");
    drop(session);
    daemon.shutdown().await;
    let daemon = open(dir.path(), &host).await;
    assert_eq!(names(&daemon.open_session(SessionKind::Client)), before);
    daemon.shutdown().await;
}

#[tokio::test]
async fn interrupted_prepare_keeps_only_reported_workspaces() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    *host.snapshot_takes.lock().unwrap() = Duration::from_millis(300);
    let preparing = session.clone();
    let preparing =
        tokio::spawn(async move { preparing.prepare(prepare("hi"), &Progress::silent()).await.map(drop) });
    eventually("the snapshot", || host.snapshots_begun.load(Ordering::SeqCst) == 1).await;
    daemon.shutdown().await;
    let told = preparing.await.unwrap();
    drop(session);
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    eventually("what was told", || names(&session).is_empty() == told.is_err()).await;
    daemon.shutdown().await;
}

#[tokio::test]
async fn swarm_fails_if_workers_cannot_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
    let swarming = session.clone();
    let swarming =
        tokio::spawn(async move { swarming.swarm(swarm(&["wait"], false), &Progress::silent()).await });
    eventually("the command of the worker", || host.commands.load(Ordering::SeqCst) == 1).await;
    let unfinished = dir.path().join("state.json.tmp");
    std::os::unix::fs::symlink("/dev/full", &unfinished).unwrap();
    host.go.notify_one();
    let told = swarming.await.unwrap().unwrap_err();
    assert!(matches!(told, OpError::Ledger(_)), "{told}");
    assert_eq!(names(&session), ["web"]);
    daemon.shutdown().await;
}
