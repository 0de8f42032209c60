//! Tests for forks of a snapshot: what they inherit, what they keep, and how failed ones are removed.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::names::{NamePrefix, WorkspaceName, WorkspaceRef};
use agentiso_daemon::{
    Daemon, ForkManyRequest, ForkRequest, Forked, OpError, Progress, Session, SessionKind,
};
use support::{FakeHost, FakeVms, Fault, by_name, config, eventually, named, run_command, snap};

fn quiet() -> Progress {
    Progress::silent()
}

fn request(name: Option<&str>) -> ForkRequest {
    ForkRequest {
        source: by_name("web"),
        snapshot: snap("a"),
        new_name: name.map(|name| WorkspaceName::parse(name).unwrap()),
        setup_commands: Vec::new(),
    }
}

fn many(count: u32) -> ForkManyRequest {
    ForkManyRequest {
        source: by_name("web"),
        snapshot: snap("a"),
        count,
        name_prefix: NamePrefix::parse("worker").unwrap(),
        setup_commands: Vec::new(),
    }
}

async fn fork(session: &Session, name: &str) -> Result<Forked, OpError> {
    session.fork(request(Some(name)), &quiet()).await
}

/// A daemon with a running workspace `web` that holds `one`, remembers `me`, and has the memory snapshot `a` of
/// that.
async fn with_snapshot(root: &Path, host: &Arc<FakeHost>, more: &str) -> (Daemon, Session) {
    let handle = Arc::new(FakeVms(Arc::clone(host)));
    let daemon = Daemon::open_with(config(root, more), handle).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    run_command(&session, "web", "write one").await.unwrap();
    run_command(&session, "web", "remember me").await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), true, &quiet()).await.unwrap();
    run_command(&session, "web", "write two").await.unwrap();
    (daemon, session)
}

fn directories(root: &Path) -> usize {
    std::fs::read_dir(root.join("workspaces")).unwrap().count()
}

#[tokio::test]
async fn fork_inherits_the_snapshots_disk_and_memory() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    let forked = session.fork(request(None), &quiet()).await.unwrap();
    let (info, source) = (forked.workspace, session.info(&by_name("web")).await.unwrap());
    assert!(info.name.as_str().starts_with("fork-"), "{}", info.name);
    assert!(info.owned && info.snapshots.is_empty() && forked.warning.is_none());
    assert_eq!((info.resources, &info.base_image), (source.resources, &source.base_image));
    assert_ne!(info.ip, source.ip);
    let from = info.forked_from.unwrap();
    assert_eq!((from.source_workspace_id, from.snapshot_name), (source.id, snap("a")));
    assert_eq!(source.snapshots[0].forks, [info.name.to_string()]);
    let name = info.name.to_string();
    assert_eq!(run_command(&session, &name, "read").await.unwrap(), "one");
    assert_eq!(run_command(&session, &name, "recall").await.unwrap(), "me");
    run_command(&session, &name, "write three").await.unwrap();
    assert_eq!(run_command(&session, "web", "read").await.unwrap(), "two");
    // Forks of a fork and of a stopped source work as well.
    session.snapshot(&by_name(&name), snap("a"), false, &quiet()).await.unwrap();
    session.stop(&by_name(&name)).await.unwrap();
    let second = ForkRequest { source: by_name(&name), ..request(Some("second")) };
    session.fork(second, &quiet()).await.unwrap();
    assert_eq!(run_command(&session, "second", "read").await.unwrap(), "three");
    daemon.shutdown().await;
}

#[tokio::test]
async fn fork_outlives_its_source_and_pins_its_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    fork(&session, "f1").await.unwrap();
    fork(&session, "f2").await.unwrap();
    let refused = session.delete_snapshot(&by_name("web"), &snap("a")).await.unwrap_err();
    assert_eq!(refused.code(), "snapshot_in_use");
    assert!(refused.to_string().contains("f1, f2"), "{refused}");
    session.destroy(&by_name("f1")).await.unwrap();
    session.destroy(&by_name("web")).await.unwrap();
    let orphan = session.info(&by_name("f2")).await.unwrap();
    assert_eq!(orphan.forked_from.unwrap().source_workspace_name.as_str(), "web");
    assert_eq!(run_command(&session, "f2", "read").await.unwrap(), "one");
    session.stop(&by_name("f2")).await.unwrap();
    session.start(&by_name("f2"), &quiet()).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn snapshot_without_forks_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    fork(&session, "f").await.unwrap();
    session.destroy(&by_name("f")).await.unwrap();
    session.delete_snapshot(&by_name("web"), &snap("a")).await.unwrap();
    assert_eq!(fork(&session, "f").await.unwrap_err().code(), "snapshot_not_found");
    daemon.shutdown().await;
}

#[tokio::test]
async fn concurrent_delete_and_fork_never_both_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    // Here the fork starts first.
    *host.branch_takes.lock().unwrap() = Duration::from_millis(50);
    let web = by_name("web");
    let delete = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        session.delete_snapshot(&web, &snap("a")).await
    };
    let (forked, deleted) = tokio::join!(fork(&session, "f"), delete);
    assert!(forked.is_ok());
    assert!(matches!(deleted, Err(OpError::SnapshotInUse { .. })), "{deleted:?}");
    session.destroy(&by_name("f")).await.unwrap();
    // Here the delete starts first.
    *host.delete_takes.lock().unwrap() = Duration::from_millis(50);
    let late = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        fork(&session, "f").await
    };
    let a = snap("a");
    let (deleted, forked) = tokio::join!(session.delete_snapshot(&web, &a), late);
    assert!(deleted.is_ok());
    assert_eq!(forked.unwrap_err().code(), "snapshot_not_found");
    assert_eq!((session.list(None).len(), directories(dir.path())), (1, 1));
    daemon.shutdown().await;
}

#[tokio::test]
async fn fork_batch_skips_only_the_taken_name() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    session.create(named("worker-2"), &quiet()).await.unwrap();
    let batch = session.fork_many(many(4), &quiet()).await.unwrap();
    let names: Vec<_> = batch.workers.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["worker-1", "worker-3", "worker-4"]);
    assert_eq!((batch.failures.len(), batch.failures[0].index), (1, 2));
    assert!(batch.failures[0].error.contains("worker-2 exists already"), "{:?}", batch.failures);
    for name in names {
        assert_eq!(run_command(&session, name, "recall").await.unwrap(), "me");
    }
    daemon.shutdown().await;
}

#[tokio::test]
async fn fork_batch_beyond_the_quota_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    assert_eq!(session.fork_many(many(10), &quiet()).await.unwrap_err().code(), "quota_exceeded");
    assert_eq!(session.list(None).len(), 1);
    for count in [0, 21] {
        assert_eq!(session.fork_many(many(count), &quiet()).await.unwrap_err().code(), "out_of_range");
    }
    host.available_bytes.store(1 << 29, Ordering::Relaxed);
    assert_eq!(session.fork_many(many(2), &quiet()).await.unwrap_err().code(), "no_space");
    host.available_bytes.store(50 << 30, Ordering::Relaxed);
    let other = daemon.open_session(SessionKind::Client);
    assert_eq!(other.fork(request(None), &quiet()).await.unwrap_err().code(), "not_owned");
    assert_eq!(fork(&session, "web").await.unwrap_err().code(), "name_taken");
    // The quota admits only one of two concurrent batches.
    let progress = quiet();
    let second = ForkManyRequest { name_prefix: NamePrefix::parse("other").unwrap(), ..many(5) };
    let (one, two) =
        tokio::join!(session.fork_many(many(5), &progress), session.fork_many(second, &progress));
    assert_eq!((one.is_ok(), two.is_ok()), (true, false));
    assert_eq!(session.list(None).len(), 6);
    daemon.shutdown().await;
}

#[tokio::test]
async fn concurrent_fork_boots_are_limited_across_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let handle = Arc::new(FakeVms(Arc::clone(&host)));
    let limited = config(dir.path(), "[resources]\nmax_concurrent_forks = 2\n");
    let daemon = Daemon::open_with(limited, handle).await.unwrap();
    let shell = daemon.open_session(SessionKind::Shell);
    shell.create(named("web"), &quiet()).await.unwrap();
    shell.snapshot(&by_name("web"), snap("a"), false, &quiet()).await.unwrap();
    *host.boot_takes.lock().unwrap() = Duration::from_millis(30);
    // There is memory for two VMs of 128 MB beside the reserve: the other forks have not begun.
    host.available_mb.store(256 + 2 * 128, Ordering::Relaxed);
    let (progress, other) = (quiet(), daemon.open_session(SessionKind::Shell));
    let second = ForkManyRequest { name_prefix: NamePrefix::parse("other").unwrap(), ..many(6) };
    let (one, two) = tokio::join!(shell.fork_many(many(6), &progress), other.fork_many(second, &progress));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.workers.len(), two.workers.len()), (6, 6), "{:?} {:?}", one.failures, two.failures);
    assert_eq!(host.most_booting.load(Ordering::SeqCst), 2);
    // Without free memory each fork fails, and nothing of it stays.
    host.available_mb.store(300, Ordering::Relaxed);
    let third = ForkManyRequest { name_prefix: NamePrefix::parse("third").unwrap(), ..many(3) };
    let none = shell.fork_many(third, &quiet()).await.unwrap();
    assert_eq!((none.workers.len(), none.failures.len()), (0, 3));
    assert!(none.failures[0].error.contains("memory"), "{:?}", none.failures);
    assert_eq!((shell.list(None).len(), directories(dir.path())), (13, 13));
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_setup_command_undoes_the_fork() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    let commands = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let good = ForkRequest { setup_commands: commands(&["write x", "write y"]), ..request(Some("good")) };
    session.fork(good, &quiet()).await.unwrap();
    assert_eq!(run_command(&session, "good", "read").await.unwrap(), "y");

    let bad = ForkRequest { setup_commands: commands(&["write x", "fail", "hi"]), ..request(Some("bad")) };
    let failed = session.fork(bad, &quiet()).await.unwrap_err();
    assert_eq!(failed.code(), "setup_failed");
    let text = failed.to_string();
    assert!(
        text.contains("setup command 2 of fork bad ended with 3") && text.contains("output: no"),
        "{text}"
    );
    assert_eq!((session.list(None).len(), host.processes().len(), directories(dir.path())), (2, 2, 2));

    let batch = ForkManyRequest { setup_commands: commands(&["fail"]), ..many(2) };
    let batch = session.fork_many(batch, &quiet()).await.unwrap();
    assert_eq!((batch.workers.len(), batch.failures.len()), (0, 2));
    assert_eq!((session.list(None).len(), directories(dir.path())), (2, 2));
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_fork_returns_its_name_and_quota() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    let faults =
        [Fault::BranchFails, Fault::BootFailsBeforeSpawn, Fault::BootFailsAfterSpawn, Fault::NoSpace];
    for fault in faults {
        for _ in 0..11 {
            host.inject(fault);
            fork(&session, "f").await.expect_err("it was told to fail");
        }
        assert_eq!((session.list(None).len(), host.processes().len(), directories(dir.path())), (1, 1, 1));
    }
    // In a batch the other forks come up.
    host.inject(Fault::BootFailsAfterSpawn);
    let batch = session.fork_many(many(3), &quiet()).await.unwrap();
    assert_eq!((batch.workers.len(), batch.failures.len()), (2, 1));
    assert_eq!((session.list(None).len(), directories(dir.path())), (3, 3));
    host.inject(Fault::MemoryIsLost);
    assert!(fork(&session, "f").await.unwrap().warning.unwrap().contains("memory"));
    daemon.shutdown().await;
}

#[tokio::test]
async fn cancelled_forks_are_undone_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "").await;
    *host.branch_takes.lock().unwrap() = Duration::from_millis(20);
    *host.boot_takes.lock().unwrap() = Duration::from_millis(20);
    for patience in [0, 5, 15, 25, 35, 45, 60] {
        let many = ForkManyRequest { setup_commands: vec!["sleep".to_owned()], ..many(3) };
        let (caller, progress) = (session.clone(), quiet());
        let call = async { caller.fork_many(many, &progress).await.map(drop) };
        let gave_up = tokio::time::timeout(Duration::from_millis(patience), call).await;
        assert!(gave_up.is_err(), "the setup never ends");
        eventually("the rollback", || session.list(None).len() == 1).await;
        assert_eq!((host.processes().len(), directories(dir.path())), (1, 1), "after {patience} ms");
    }
    let snapshots = session.snapshots(&by_name("web")).await.unwrap();
    assert!(snapshots[0].forks.is_empty());
    daemon.shutdown().await;
}

#[tokio::test]
async fn interrupted_forks_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_snapshot(dir.path(), &host, "[resources]\nmax_concurrent_forks = 1\n").await;
    *host.boot_takes.lock().unwrap() = Duration::from_millis(50);
    let (web, progress) = (by_name("web"), quiet());
    let destroy = async {
        eventually("the first fork", || host.processes().len() == 2).await;
        session.destroy(&web).await
    };
    let (batch, destroyed) = tokio::join!(session.fork_many(many(4), &progress), destroy);
    destroyed.unwrap();
    let batch = batch.unwrap();
    assert!(!batch.workers.is_empty() && !batch.failures.is_empty(), "{batch:?}");
    assert_eq!(directories(dir.path()), batch.workers.len());

    let source = WorkspaceRef::Id(batch.workers[0].id);
    session.snapshot(&source, snap("a"), false, &quiet()).await.unwrap();
    host.inject(Fault::BootHangsAfterSpawn);
    let request = ForkRequest { source, ..request(Some("late")) };
    let caller = tokio::spawn(async move { session.fork(request, &Progress::silent()).await.map(drop) });
    host.hanging.notified().await;
    daemon.shutdown().await;
    assert!(matches!(caller.await.unwrap(), Err(OpError::ShuttingDown)));
    assert_eq!((host.processes().len(), directories(dir.path())), (0, batch.workers.len()));
}
