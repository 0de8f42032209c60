//! Tests for exporting snapshots to files and importing workspaces from them, against the fake host.

mod support;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use agentiso_core::names::WorkspaceName;
use agentiso_daemon::{
    ExportRequest, Exported, ImportRequest, Imported, OpError, Progress, Rung, Session, SessionKind,
};
use support::{FakeHost, Fault, by_name, eventually, named, open, run_command, snap};

async fn export(session: &Session, file: &Path, replace: bool) -> Result<Exported, OpError> {
    let file = file.to_owned();
    let request = ExportRequest { source: by_name("web"), snapshot: snap("ready"), file, replace };
    session.export_snapshot(request, &Progress::silent()).await
}

async fn import(session: &Session, file: &Path, name: Option<&str>) -> Result<Imported, OpError> {
    let name = name.map(|name| WorkspaceName::parse(name).unwrap());
    let request = ImportRequest { file: file.to_owned(), name, with_memory: true };
    session.import_snapshot(request, &Progress::silent()).await
}

/// Creates a workspace with data on its disk and in its memory, and a snapshot of both.
async fn prepared(session: &Session) {
    session.create(named("web"), &Progress::silent()).await.unwrap();
    run_command(session, "web", "write one").await.unwrap();
    run_command(session, "web", "remember two").await.unwrap();
    session.snapshot(&by_name("web"), snap("ready"), true, &Progress::silent()).await.unwrap();
    run_command(session, "web", "write three").await.unwrap();
}

fn disks(root: &Path) -> usize {
    std::fs::read_dir(root.join("workspaces")).unwrap().count()
}

#[tokio::test]
async fn imported_workspace_equals_the_exported_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    prepared(&session).await;
    let file = dir.path().join("file");
    let exported = export(&session, &file, false).await.unwrap();
    assert_eq!((&exported.file, exported.has_memory), (&file, true));
    assert_eq!(exported.file_bytes, file.metadata().unwrap().len());
    assert_eq!(disks(dir.path()), 1, "what the export needed is gone");

    assert_eq!(import(&session, &file, None).await.unwrap_err().code(), "name_taken");
    let imported = import(&session, &file, Some("copy")).await.unwrap();
    assert_eq!((imported.workspace.rung, &imported.warning), (Some(Rung::Memory), &None));
    assert_eq!(imported.workspace.resources, session.info(&by_name("web")).await.unwrap().resources);
    assert!(imported.workspace.owned && imported.workspace.forked_from.is_none());
    assert_eq!(run_command(&session, "copy", "read").await.unwrap(), "one");
    assert_eq!(run_command(&session, "copy", "recall").await.unwrap(), "two");
    let [snapshot] = &imported.workspace.snapshots[..] else { panic!("one snapshot") };
    let original = &session.snapshots(&by_name("web")).await.unwrap()[0];
    assert_eq!((&snapshot.name, snapshot.created_at), (&original.name, original.created_at));
    assert!(snapshot.current && snapshot.has_memory && snapshot.id != original.id);

    // It is a snapshot like any other.
    run_command(&session, "copy", "write four").await.unwrap();
    session.restore(&by_name("copy"), &snap("ready"), &Progress::silent()).await.unwrap();
    assert_eq!(run_command(&session, "copy", "read").await.unwrap(), "one");
    session.delete_snapshot(&by_name("copy"), &snap("ready")).await.unwrap();
    session.destroy(&by_name("web")).await.unwrap();
    let again = import(&session, &file, None).await.unwrap();
    assert_eq!(again.workspace.name.as_str(), "web");
    drop(session);
    daemon.shutdown().await;
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Shell);
    session.start(&by_name("web"), &Progress::silent()).await.unwrap();
    assert_eq!(run_command(&session, "web", "read").await.unwrap(), "one");
    assert_eq!(session.snapshots(&by_name("web")).await.unwrap().len(), 1);
    daemon.shutdown().await;
}

#[tokio::test]
async fn refused_export_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    prepared(&session).await;
    let file = dir.path().join("file");
    let relative = export(&session, Path::new("file"), false).await.unwrap_err();
    assert_eq!(relative.code(), "relative_path");
    let unknown =
        ExportRequest { source: by_name("web"), snapshot: snap("redy"), file: file.clone(), replace: false };
    let unknown = session.export_snapshot(unknown, &Progress::silent()).await.unwrap_err();
    assert_eq!(unknown.code(), "snapshot_not_found");
    let stranger = daemon.open_session(SessionKind::Client);
    assert_eq!(export(&stranger, &file, false).await.unwrap_err().code(), "not_owned");
    for fault in [Fault::ExportFails, Fault::BranchFails] {
        host.inject(fault);
        assert!(export(&session, &file, false).await.is_err());
        assert!(!file.exists() && disks(dir.path()) == 1, "{fault:?}");
    }
    host.available_bytes.store(1 << 30, Ordering::Relaxed);
    assert_eq!(export(&session, &file, false).await.unwrap_err().code(), "no_space");
    host.available_bytes.store(50 << 30, Ordering::Relaxed);
    std::fs::write(&file, "mine").unwrap();
    let taken = export(&session, &file, false).await.unwrap_err();
    assert_eq!(taken.code(), "file_exists");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    export(&session, &file, true).await.unwrap();
    session.stop(&by_name("web")).await.unwrap();
    export(&session, &file, true).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_import_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    prepared(&session).await;
    let file = dir.path().join("file");
    export(&session, &file, false).await.unwrap();
    session.destroy(&by_name("web")).await.unwrap();
    let nothing_left =
        || session.list(None).is_empty() && host.processes().is_empty() && disks(dir.path()) == 0;
    for fault in [
        Fault::ImportFails,
        Fault::RestoreFails,
        Fault::BootFailsBeforeSpawn,
        Fault::BootFailsAfterSpawn,
        Fault::NoSpace,
    ] {
        host.inject(fault);
        assert!(import(&session, &file, None).await.is_err(), "{fault:?}");
        assert!(nothing_left(), "{fault:?}");
    }
    let garbage = dir.path().join("garbage");
    std::fs::write(&garbage, "garbage").unwrap();
    assert_eq!(import(&session, &garbage, None).await.unwrap_err().code(), "bad_file");
    assert_eq!(import(&session, Path::new("file"), None).await.unwrap_err().code(), "relative_path");
    let missing = PathBuf::from("/nonexistent/file");
    assert!(import(&session, &missing, None).await.unwrap_err().to_string().contains("/nonexistent/file"));
    host.available_mb.store(100, Ordering::Relaxed);
    assert_eq!(import(&session, &file, None).await.unwrap_err().code(), "host_memory");
    host.available_mb.store(1 << 20, Ordering::Relaxed);
    host.available_bytes.store(1, Ordering::Relaxed);
    assert_eq!(import(&session, &file, None).await.unwrap_err().code(), "no_space");
    host.available_bytes.store(50 << 30, Ordering::Relaxed);
    assert!(nothing_left());
    host.inject(Fault::MemoryIsLost);
    let imported = import(&session, &file, None).await.unwrap();
    assert!(imported.warning.unwrap().contains("left out"));
    assert!(!imported.snapshot.has_memory);
    daemon.shutdown().await;
}

#[tokio::test]
async fn cancelled_carry_calls_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    prepared(&session).await;
    let file = dir.path().join("file");
    host.inject(Fault::ExportHangs);
    tokio::select! {
        _ = export(&session, &file, false) => panic!("it hangs"),
        () = host.hanging.notified() => {}
    }
    eventually("the branch is gone", || disks(dir.path()) == 1).await;
    assert!(!file.exists());
    export(&session, &file, false).await.unwrap();
    for fault in [Fault::ImportHangs, Fault::BootHangsBeforeSpawn, Fault::BootHangsAfterSpawn] {
        host.inject(fault);
        tokio::select! {
            _ = import(&session, &file, Some("copy")) => panic!("it hangs"),
            () = host.hanging.notified() => {}
        }
        eventually("the workspace is gone", || session.list(None).len() == 1 && disks(dir.path()) == 1).await;
        assert_eq!(host.processes().len(), 1, "{fault:?}");
    }
    import(&session, &file, Some("copy")).await.unwrap();
    // A shutdown ends the calls under way.
    host.inject(Fault::ExportHangs);
    let other = dir.path().join("other");
    let (exported, ()) = tokio::join!(export(&session, &other, false), async {
        host.hanging.notified().await;
        daemon.shutdown().await;
    });
    assert!(matches!(exported, Err(OpError::ShuttingDown)), "{exported:?}");
    assert_eq!(disks(dir.path()), 2);
}
