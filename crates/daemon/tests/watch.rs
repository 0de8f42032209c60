//! Tests for watching workspaces: which changes a session is told of.

mod support;

use std::time::Duration;

use agentiso_daemon::{Progress, SessionKind, Watch};
use support::{FakeHost, by_name, named, open, snap};

/// Long enough for pending notifications to arrive.
const A_MOMENT: Duration = Duration::from_millis(200);

async fn has_changed(watch: &mut Watch) -> bool {
    tokio::time::timeout(A_MOMENT, watch.changed()).await.is_ok()
}

/// Waits until nothing changes any more.
async fn settle(watch: &mut Watch) {
    while has_changed(watch).await {}
}

#[tokio::test]
async fn watch_reports_only_changes_of_its_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    let shell = daemon.open_session(SessionKind::Shell);
    // The workspace need not exist yet.
    let mut watch = session.watch(&by_name("web"));
    session.create(named("web"), &Progress::silent()).await.unwrap();
    assert!(has_changed(&mut watch).await, "it is there");
    settle(&mut watch).await;

    session.create(named("other"), &Progress::silent()).await.unwrap();
    session.stop(&by_name("other")).await.unwrap();
    assert!(!has_changed(&mut watch).await, "another one is none of its business");
    session.snapshot(&by_name("web"), snap("one"), false, &Progress::silent()).await.unwrap();
    assert!(has_changed(&mut watch).await, "it has a snapshot");
    shell.stop(&by_name("web")).await.unwrap();
    assert!(has_changed(&mut watch).await, "somebody stopped it");
    settle(&mut watch).await;
    shell.destroy(&by_name("web")).await.unwrap();
    assert!(has_changed(&mut watch).await, "it is gone");
}

#[tokio::test]
async fn foreign_workspace_is_watched_only_after_adoption() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let owner = daemon.open_session(SessionKind::Client);
    owner.create(named("web"), &Progress::silent()).await.unwrap();
    let heir = daemon.open_session(SessionKind::Client);
    let mut watch = heir.watch(&by_name("web"));
    let mut own = owner.watch(&by_name("web"));
    owner.stop(&by_name("web")).await.unwrap();
    settle(&mut own).await;
    assert!(!has_changed(&mut watch).await, "what others own is none of its business");
    drop((owner, own));
    heir.adopt(&by_name("web"), false).await.unwrap();
    assert!(has_changed(&mut watch).await, "it is its own");
}
