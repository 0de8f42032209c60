//! Tests for swarms with faults: in every fork, in one worker, and in its removal.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agentiso_core::names::TaskName;
use agentiso_daemon::{Daemon, Progress, Session, SessionKind, SwarmDone, SwarmRequest, SwarmTask};
use std::sync::Arc;
use support::{FakeHost, Fault, by_name, named, open, small, snap};

/// The workspaces that a session may own, from the contract.
const QUOTA: usize = 10;

fn swarm(names: &[&str]) -> SwarmRequest {
    let task = |name: &&str| SwarmTask {
        name: TaskName::parse(name).unwrap(),
        command: format!("{name} was here"),
        workdir: None,
        env: BTreeMap::new(),
        vault_queries: Vec::new(),
    };
    SwarmRequest {
        golden: by_name("web"),
        snapshot: snap("a"),
        tasks: names.iter().map(task).collect(),
        env: BTreeMap::new(),
        merge: None,
        max_parallel: 4,
        timeout: Duration::from_secs(600),
        cleanup: true,
        allow_internet: None,
        shared_context: Some("for all".to_owned()),
        name_prefix: None,
        vault_queries: Vec::new(),
        mcp_bridge: false,
    }
}

/// A session with `web`, which has a snapshot.
async fn prepared(root: &Path, host: &Arc<FakeHost>) -> (Daemon, Session) {
    let daemon = open(root, host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await.unwrap();
    (daemon, session)
}

fn owned(session: &Session) -> Vec<String> {
    let all = session.list(None).into_iter().filter(|info| info.owned);
    all.map(|info| info.name.to_string()).collect()
}

/// Checks that nothing stays reserved for workers that are gone: the session can use its whole quota.
async fn quota_is_whole(session: &Session) {
    for _ in owned(session).len()..QUOTA {
        session.create(small(), &Progress::silent()).await.unwrap();
    }
    let refused = session.create(small(), &Progress::silent()).await.unwrap_err();
    assert_eq!(refused.code(), "quota_exceeded", "{refused}");
}

fn exit_codes(done: &SwarmDone) -> Vec<i32> {
    done.tasks.iter().map(agentiso_daemon::TaskDone::exit_code).collect()
}

#[tokio::test]
async fn swarm_fails_if_no_worker_can_be_forked() {
    for fault in [Fault::BranchFails, Fault::BootFailsBeforeSpawn, Fault::BootFailsAfterSpawn] {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        let (daemon, session) = prepared(dir.path(), &host).await;
        for _ in 0..3 {
            host.inject(fault);
        }
        let failed = session.swarm(swarm(&["x", "y", "z"]), &Progress::silent()).await.unwrap_err();
        assert_eq!(failed.code(), "fork_failed", "{fault:?}: {failed}");
        assert!(failed.to_string().contains("no worker could be forked"), "{failed}");
        assert_eq!((owned(&session), host.processes().len()), (vec!["web".to_owned()], 1), "{fault:?}");
        assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 1, "{fault:?}");
        quota_is_whole(&session).await;
        daemon.shutdown().await;
    }
}

#[tokio::test]
async fn worker_without_its_texts_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = prepared(dir.path(), &host).await;
    host.inject(Fault::WriteFails);
    let mut request = swarm(&["x", "y", "z"]);
    // One after the other, so that the fault hits a known worker.
    request.max_parallel = 1;
    let done = session.swarm(request, &Progress::silent()).await.unwrap();
    assert_eq!(exit_codes(&done), [-1, 0, 0], "{done:?}");
    let skipped = &done.tasks[0];
    assert!(!skipped.succeeded() && skipped.workspace.is_some(), "it was forked: {skipped:?}");
    let agentiso_daemon::TaskOutcome::Failed { reason } = &skipped.outcome else {
        panic!("its command ran: {skipped:?}")
    };
    assert!(reason.contains("told to fail"), "{reason}");
    assert!(done.tasks[1..].iter().all(agentiso_daemon::TaskDone::succeeded), "{done:?}");
    assert_eq!(done.workers_destroyed, 3);
    assert_eq!(owned(&session), ["web"]);
    quota_is_whole(&session).await;
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_fork_fails_only_its_task() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = prepared(dir.path(), &host).await;
    host.inject(Fault::BootFailsAfterSpawn);
    let mut request = swarm(&["x", "y"]);
    request.max_parallel = 1;
    let done = session.swarm(request, &Progress::silent()).await.unwrap();
    assert_eq!(exit_codes(&done), [-1, 0], "{done:?}");
    assert_eq!((done.tasks[0].workspace, done.workers_destroyed), (None, 1));
    assert_eq!(owned(&session), ["web"]);
    daemon.shutdown().await;
}

#[tokio::test]
async fn undestroyable_worker_uses_no_quota() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = prepared(dir.path(), &host).await;
    host.inject(Fault::EraseFails);
    let done = session.swarm(swarm(&["x", "y"]), &Progress::silent()).await.unwrap();
    assert_eq!((exit_codes(&done), done.workers_destroyed), (vec![0, 0], 1), "{done:?}");
    assert_eq!(owned(&session), ["web"]);
    let left: Vec<_> = session.list(None).into_iter().filter(|info| !info.owned).collect();
    let [left] = &left[..] else { panic!("one is left and shown: {left:?}") };
    assert!(
        left.stop_reason.as_ref().is_some_and(|reason| reason.contains("destroying it failed")),
        "{left:?}"
    );
    quota_is_whole(&session).await;

    // A client can destroy it, and otherwise the next daemon does.
    host.inject(Fault::EraseFails);
    session.destroy(&by_name(left.name.as_str())).await.unwrap_err();
    drop(session);
    daemon.shutdown().await;
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    let gone = || session.list(None).iter().all(|info| info.name != left.name);
    support::eventually("the worker is gone", gone).await;
    assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), QUOTA);
    daemon.shutdown().await;
}
