//! Watching workspaces: who is told of what.

mod support;

use std::time::Duration;

use agentiso_daemon::{Progress, SessionKind, Watch};
use support::{World, by_name, named, open, snap};

/// Long enough for whatever is under way to arrive.
const A_MOMENT: Duration = Duration::from_millis(200);

async fn has_changed(watch: &mut Watch) -> bool {
    tokio::time::timeout(A_MOMENT, watch.changed()).await.is_ok()
}

/// Waits until nothing changes any more.
async fn settle(watch: &mut Watch) {
    while has_changed(watch).await {}
}

#[tokio::test]
async fn an_owner_is_told_of_every_change_of_its_workspace_and_of_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world).await;
    let session = daemon.open_session(SessionKind::Client);
    let shell = daemon.open_session(SessionKind::Shell);
    // It need not be there yet.
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
async fn a_workspace_of_somebody_else_is_not_seen_until_it_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let daemon = open(dir.path(), &world).await;
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
