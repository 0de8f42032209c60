//! Tests for the snapshots of one workspace: taken, restored, compared, deleted and refused.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::lifecycle::Phase;
use agentiso_daemon::{Daemon, OpError, Progress, Rung, Session, SessionKind, WorkspaceInfo};
use support::{FakeHost, FakeVms, Fault, Volume, by_name, config, named, open, run_command, snap};

fn quiet() -> Progress {
    Progress::silent()
}

/// A daemon with one running workspace, `web`.
async fn with_web(root: &Path, host: &Arc<FakeHost>) -> (Daemon, Session) {
    let daemon = open(root, host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    (daemon, session)
}

async fn take(session: &Session, name: &str, include_memory: bool) {
    session.snapshot(&by_name("web"), snap(name), include_memory, &quiet()).await.unwrap();
}

async fn go_back(session: &Session, name: &str) {
    session.restore(&by_name("web"), &snap(name), &quiet()).await.unwrap();
}

async fn web(session: &Session) -> WorkspaceInfo {
    session.info(&by_name("web")).await.unwrap()
}

fn volume(root: &Path, info: &WorkspaceInfo) -> Volume {
    Volume::load(&root.join("workspaces").join(info.id.to_string())).unwrap()
}

/// Formats each snapshot as `name<parent`, with a star at the one that the state descends from.
async fn tree(session: &Session) -> String {
    let all = session.snapshots(&by_name("web")).await.unwrap();
    let line = |info: &agentiso_daemon::SnapshotInfo| {
        let parent = info.parent.as_ref().map(|name| format!("<{name}")).unwrap_or_default();
        format!("{}{parent}{}", info.name, if info.current { "*" } else { "" })
    };
    all.iter().map(line).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn snapshot_waits_for_interrupted_tidying() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (_daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", false).await;
    host.inject(Fault::TidyingTakesLong);
    host.hanging.notified().await;
    take(&session, "b", false).await;
    assert_eq!(volume(dir.path(), &web(&session).await).snapshots.len(), 2);
    go_back(&session, "b").await;
    assert_eq!(tree(&session).await, "a b<a*");
}

#[tokio::test]
async fn disk_snapshot_restores_a_running_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    run_command(&session, "web", "write one").await.unwrap();
    let pid = web(&session).await.pid;
    let made = session.snapshot(&by_name("web"), snap("a"), false, &quiet()).await.unwrap();
    assert_eq!((made.snapshot.has_memory, made.snapshot.current, made.snapshot.parent), (false, true, None));
    assert_eq!(made.pause, Duration::from_millis(7));
    assert_eq!(session.snapshots(&by_name("web")).await.unwrap()[0].used_bytes, Some(3));
    assert_eq!(made.workspace.pid, pid, "the VM runs on");

    run_command(&session, "web", "write two").await.unwrap();
    let diff = session.diff_snapshot(&by_name("web"), &snap("a"), &quiet()).await.unwrap();
    assert_eq!(diff.changed_bytes, 3);
    let restored = session.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap();
    assert_eq!((restored.workspace.phase, restored.warning), (Phase::Running, None));
    assert_ne!(restored.workspace.pid, pid);
    assert_eq!(run_command(&session, "web", "read").await.unwrap(), "one");
    assert_eq!(host.processes().len(), 1);
    daemon.shutdown().await;
}

#[tokio::test]
async fn memory_snapshot_restores_memory_or_warns() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    run_command(&session, "web", "remember me").await.unwrap();
    take(&session, "a", true).await;
    run_command(&session, "web", "remember nothing").await.unwrap();
    let restored = session.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap();
    assert_eq!((restored.rung, restored.snapshot.has_memory), (Rung::Memory, true));
    assert_eq!(run_command(&session, "web", "recall").await.unwrap(), "me");
    host.inject(Fault::MemoryIsLost);
    let restored = session.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap();
    assert!(restored.warning.unwrap().contains("memory"));
    assert_eq!(restored.rung, Rung::ImageTemplate);
    daemon.shutdown().await;
}

#[tokio::test]
async fn snapshot_tree_survives_restores_and_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", false).await;
    take(&session, "b", false).await;
    take(&session, "c", false).await;
    go_back(&session, "b").await;
    take(&session, "d", false).await;
    assert_eq!(tree(&session).await, "a b<a c<b d<b*");
    let gone = session.delete_snapshot(&by_name("web"), &snap("b")).await.unwrap();
    assert_eq!((gone.name.as_str(), gone.used_bytes), ("b", Some(5)));
    assert_eq!(tree(&session).await, "a c<a d<a*");
    session.delete_snapshot(&by_name("web"), &snap("d")).await.unwrap();
    assert_eq!(tree(&session).await, "a* c<a");
    session.stop(&by_name("web")).await.unwrap();
    session.delete_snapshot(&by_name("web"), &snap("a")).await.unwrap();
    assert_eq!(tree(&session).await, "c");
    let held = volume(dir.path(), &web(&session).await);
    assert_eq!((held.snapshots.len(), held.origin), (1, None), "the disk knows what the books know");
    // The name is free again.
    session.start(&by_name("web"), &quiet()).await.unwrap();
    take(&session, "a", false).await;
    assert_eq!(tree(&session).await, "c a*");
    daemon.shutdown().await;
}

#[tokio::test]
async fn stopped_workspace_can_be_restored_but_not_snapshotted() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", false).await;
    run_command(&session, "web", "write two").await.unwrap();
    session.stop(&by_name("web")).await.unwrap();
    let refused = session.snapshot(&by_name("web"), snap("b"), false, &quiet()).await.unwrap_err();
    assert_eq!(refused.code(), "wrong_state");
    let diff = session.diff_snapshot(&by_name("web"), &snap("a"), &quiet()).await.unwrap();
    assert_eq!(diff.changed_bytes, 3);
    go_back(&session, "a").await;
    assert_eq!(run_command(&session, "web", "read").await.unwrap(), "fresh");
    daemon.shutdown().await;
}

#[tokio::test]
async fn impossible_snapshot_requests_are_refused_beforehand() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let handle = Arc::new(FakeVms(Arc::clone(&host)));
    let limited = config(dir.path(), "[resources]\nmax_snapshots_per_workspace = 2\n");
    let daemon = Daemon::open_with(limited, handle).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    let refusal = async |name: &str, include_memory: bool| {
        let refused = session.snapshot(&by_name("web"), snap(name), include_memory, &quiet()).await;
        refused.unwrap_err()
    };
    take(&session, "a", false).await;
    assert_eq!(refusal("a", false).await.code(), "snapshot_exists");

    host.padding_bytes.store(2 << 30, Ordering::Relaxed);
    let over = refusal("b", false).await;
    assert_eq!(over.code(), "disk_quota");
    assert!(over.to_string().contains("2048 MB"), "{over}");
    // There is room for the snapshot, but not for a copy of its memory beside it: the guest itself would stand
    // still.
    host.padding_bytes.store((2 << 30) - (127 << 20), Ordering::Relaxed);
    let over = refusal("b", true).await;
    assert_eq!(over.code(), "disk_quota");
    assert!(over.to_string().contains("its memory may need 128 MB more"), "{over}");
    assert_eq!(web(&session).await.snapshots.len(), 1);
    host.padding_bytes.store(0, Ordering::Relaxed);

    // The copy is on the disk twice for a while if the host's memory has no room for it.
    host.available_bytes.store((1 << 30) + (255 << 20), Ordering::Relaxed);
    host.available_mb.store(100, Ordering::Relaxed);
    assert_eq!(refusal("b", true).await.code(), "no_space");
    host.available_mb.store(1 << 20, Ordering::Relaxed);

    // The reserve is free, but not the workspace's memory beside it.
    host.available_bytes.store((1 << 30) + (127 << 20), Ordering::Relaxed);
    assert_eq!(refusal("b", true).await.code(), "no_space");
    take(&session, "b", false).await;
    host.available_bytes.store((1 << 30) - 1, Ordering::Relaxed);
    assert_eq!(session.create(named("db"), &quiet()).await.unwrap_err().code(), "no_space");
    host.available_bytes.store(50 << 30, Ordering::Relaxed);
    assert_eq!(refusal("c", false).await.code(), "too_many_snapshots");

    let missing = session.restore(&by_name("web"), &snap("aa"), &quiet()).await.unwrap_err();
    assert_eq!(missing.code(), "snapshot_not_found");
    assert!(matches!(missing, OpError::SnapshotNotFound { known, .. } if known == ["a", "b"]));
    let other = daemon.open_session(SessionKind::Client);
    assert_eq!(other.snapshots(&by_name("web")).await.unwrap_err().code(), "not_owned");
    let theirs = other.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap_err();
    assert_eq!(theirs.code(), "not_owned");
    assert_eq!(volume(dir.path(), &web(&session).await).snapshots.len(), 2);
    daemon.shutdown().await;
}

#[tokio::test]
async fn concurrent_snapshots_of_one_name_yield_one() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    *host.snapshot_takes.lock().unwrap() = Duration::from_millis(50);
    let progress = quiet();
    let web = by_name("web");
    let takes = (0..6).map(|_| session.snapshot(&web, snap("a"), true, &progress));
    let (results, said) = tokio::join!(futures::future::join_all(takes), run_command(&session, "web", "hi"));
    assert_eq!(said.unwrap(), "hi", "the guest answers meanwhile");
    let taken = results.iter().filter(|result| result.is_ok()).count();
    let refused =
        results.iter().filter(|result| matches!(result, Err(OpError::SnapshotNameTaken { .. }))).count();
    assert_eq!((taken, refused), (1, 5));
    assert_eq!(tree(&session).await, "a*");
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_snapshot_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    for fault in [Fault::SnapshotFails, Fault::SnapshotFailsHalfway] {
        host.inject(fault);
        let failed = session.snapshot(&by_name("web"), snap("a"), false, &quiet()).await.unwrap_err();
        assert_eq!(failed.code(), "snapshot_failed");
        assert!(failed.to_string().contains("taking snapshot a of workspace web"), "{failed}");
    }
    // The ledger cannot be written, so the snapshot is undone.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
    let failed = session.snapshot(&by_name("web"), snap("a"), false, &quiet()).await.unwrap_err();
    assert_eq!(failed.code(), "no_space");
    assert_eq!(tree(&session).await, "");
    assert!(volume(dir.path(), &web(&session).await).snapshots.is_empty());
    take(&session, "a", false).await;
    let held = volume(dir.path(), &web(&session).await);
    assert_eq!((tree(&session).await, held.snapshots.len()), ("a*".to_owned(), 1));
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_snapshot_delete_is_finished_later() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", false).await;
    take(&session, "b", false).await;
    host.inject(Fault::DeleteFails);
    let failed = session.delete_snapshot(&by_name("web"), &snap("a")).await.unwrap_err();
    assert_eq!(failed.code(), "snapshot_failed");
    assert_eq!(tree(&session).await, "b*");
    assert_eq!(volume(dir.path(), &web(&session).await).snapshots.len(), 2);
    // A disk that cannot be settled is not touched.
    host.inject(Fault::SettleFails);
    let refused = session.snapshot(&by_name("web"), snap("c"), false, &quiet()).await.unwrap_err();
    assert!(refused.to_string().contains("cleaning up the disk"), "{refused}");
    take(&session, "c", false).await;
    assert_eq!(volume(dir.path(), &web(&session).await).snapshots.len(), 2);
    // The ledger cannot be written, so nothing is deleted.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
    assert!(session.delete_snapshot(&by_name("web"), &snap("b")).await.is_err());
    assert_eq!(tree(&session).await, "b c<b*");
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_restore_leaves_a_stopped_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", false).await;
    run_command(&session, "web", "write two").await.unwrap();
    take(&session, "b", false).await;
    for (fault, origin, tree_then, content) in [
        (Fault::RestoreFails, None, "a b<a*", "two"),
        (Fault::RestoreFails, Some(Fault::OriginUnknown), "a b<a*", "two"),
        (Fault::BootFailsBeforeSpawn, None, "a* b<a", "fresh"),
        (Fault::BootFailsAfterSpawn, None, "a* b<a", "fresh"),
        (Fault::BootFailsAfterSpawn, Some(Fault::OriginUnknown), "a* b<a", "fresh"),
    ] {
        host.inject(fault);
        origin.into_iter().for_each(|origin| host.inject(origin));
        let failed = session.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap_err();
        assert_eq!(failed.code(), "boot_failed", "{failed}");
        let info = web(&session).await;
        assert_eq!((info.phase, host.processes().len()), (Phase::Stopped, 0), "{fault:?}");
        assert!(info.stop_reason.as_ref().unwrap().contains("snapshot a could not be restored"));
        assert_eq!(
            (tree(&session).await.as_str(), volume(dir.path(), &info).content.as_str()),
            (tree_then, content)
        );
        go_back(&session, "b").await;
        assert_eq!(run_command(&session, "web", "read").await.unwrap(), "two");
    }
    // Refusals leave the workspace as it is.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
    assert!(session.restore(&by_name("web"), &snap("a"), &quiet()).await.is_err());
    assert_eq!(web(&session).await.phase, Phase::Running);
    session.stop(&by_name("web")).await.unwrap();
    host.available_mb.store(100, Ordering::Relaxed);
    let refused = session.restore(&by_name("web"), &snap("a"), &quiet()).await.unwrap_err();
    assert_eq!((refused.code(), web(&session).await.phase), ("host_memory", Phase::Stopped));
    daemon.shutdown().await;
}

#[tokio::test]
async fn workspace_is_destroyed_with_its_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let (daemon, session) = with_web(dir.path(), &host).await;
    take(&session, "a", true).await;
    session.destroy(&by_name("web")).await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 0);
    session.create(named("web"), &quiet()).await.unwrap();
    assert_eq!(tree(&session).await, "");
    daemon.shutdown().await;
}
