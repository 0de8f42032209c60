//! Ends the process at every named step; the next daemon must leave everything as if the step had either happened
//! or not.
//!
//! The test program starts itself again as the daemon that dies: see `run_until_crash`.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use agentiso_core::lifecycle::Phase;
use agentiso_core::names::WorkspaceName;
use agentiso_daemon::fault;
use agentiso_daemon::{
    ExportRequest, ForkRequest, ImportRequest, Progress, Session, SessionKind, WorkspaceInfo,
};
use support::{FakeHost, Volume, by_name, eventually, named, open, run_command, snap};

/// Set for the process that dies; its value is the directory of that process.
const ROOT: &str = "AGENTISO_TEST_ROOT";

/// The test that starts itself again as the daemon that dies.
const TEST_NAME: &str = "crash_at_any_step_is_recovered";

/// Runs through the whole life of a workspace and is expected to die in the middle of it.
async fn run_until_crash(root: &Path) {
    let host = FakeHost::new(root);
    let daemon = open(root, &host).await;
    let session = daemon.open_session(SessionKind::Client);
    let (web, quiet) = (by_name("web"), Progress::silent());
    session.create(named("web"), &quiet).await.unwrap();
    run_command(&session, "web", "write one").await.unwrap();
    session.snapshot(&web, snap("a"), true, &quiet).await.unwrap();
    run_command(&session, "web", "write two").await.unwrap();
    session.snapshot(&web, snap("b"), false, &quiet).await.unwrap();
    run_command(&session, "web", "write three").await.unwrap();
    session.restore(&web, &snap("a"), &quiet).await.unwrap();
    session.fork(fork_of_web("fork"), &quiet).await.unwrap();
    session.export_snapshot(export_of_web(root), &quiet).await.unwrap();
    session.import_snapshot(import_as_copy(root), &quiet).await.unwrap();
    session.delete_snapshot(&web, &snap("b")).await.unwrap();
    session.stop(&web).await.unwrap();
    session.start(&web, &quiet).await.unwrap();
    session.destroy(&web).await.unwrap();
}

fn fork_of_web(name: &str) -> ForkRequest {
    ForkRequest {
        source: by_name("web"),
        snapshot: snap("a"),
        new_name: Some(WorkspaceName::parse(name).unwrap()),
        setup_commands: vec!["hi".to_owned()],
    }
}

fn export_of_web(root: &Path) -> ExportRequest {
    ExportRequest { source: by_name("web"), snapshot: snap("a"), file: root.join("file"), replace: true }
}

fn import_as_copy(root: &Path) -> ImportRequest {
    let name = WorkspaceName::parse("copy").unwrap();
    ImportRequest { file: root.join("file"), name: Some(name), with_memory: true }
}

/// The lines that describe the expected result: name, phase, content of the disk, and the snapshots with a star at
/// the one it descends from.
fn left_after(point: &str) -> &'static [&'static str] {
    match point {
        "create.saved" => &["web running fresh"],
        _ if point.starts_with("create.") => &[],
        "snapshot.begun" | "snapshot.taken" => &["web running one"],
        "snapshot.ledgered" => &["web running one a*"],
        "restore.ledgered" | "restore.halted" => &["web stopped three a b*"],
        "restore.spawned" | "restore.recorded" | "restore.booted" => &["web stopped one a* b"],
        "restore.saved" => &["web running one a* b"],
        "fork.saved" => &["fork running one", "web running one a* b"],
        _ if point.starts_with("fork.") => &["web running one a* b"],
        "import.saved" => &["copy running one a*", "fork running one", "web running one a* b"],
        _ if point.starts_with("export.") || point.starts_with("import.") => {
            &["fork running one", "web running one a* b"]
        }
        _ if point.starts_with("delete.") => {
            &["copy running one a*", "fork running one", "web running one a*"]
        }
        _ if point.starts_with("start.") || point.starts_with("stop.") => {
            &["copy running one a*", "fork running one", "web stopped one a*"]
        }
        _ => &["copy running one a*", "fork running one"],
    }
}

fn described(root: &Path, info: &WorkspaceInfo) -> String {
    let Some(volume) = Volume::load(&root.join("workspaces").join(info.id.to_string())) else {
        return format!("{} without a disk", info.name);
    };
    let phase = if info.phase == Phase::Running { "running" } else { "stopped" };
    let mut line = format!("{} {phase} {}", info.name, volume.content);
    for snapshot in &info.snapshots {
        line.push_str(&format!(" {}{}", snapshot.name, if snapshot.current { "*" } else { "" }));
    }
    let known: BTreeSet<_> = info.snapshots.iter().map(|snapshot| snapshot.id).collect();
    let current = info.snapshots.iter().find(|snapshot| snapshot.current).map(|snapshot| snapshot.id);
    if known != volume.snapshots.keys().copied().collect() || current != volume.origin {
        line.push_str(", and the disk says otherwise");
    }
    line
}

fn crash_at(point: &str, root: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([TEST_NAME, "--exact", "--nocapture"])
        .env(ROOT, root)
        .env(fault::VARIABLE, point)
        .output()
        .unwrap();
    assert!(!output.status.success(), "nothing died at {point}");
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(killed, Some(6), "{point}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_at_any_step_is_recovered() {
    if let Some(root) = std::env::var_os(ROOT) {
        return run_until_crash(Path::new(&root)).await;
    }
    for point in fault::POINTS {
        let dir = tempfile::tempdir().unwrap();
        crash_at(point, dir.path());
        let host = FakeHost::new(dir.path());
        let daemon = open(dir.path(), &host).await;
        let session = daemon.open_session(SessionKind::Client);
        let settled = |phase| matches!(phase, Phase::Running | Phase::Stopped);
        eventually(&format!("{point}: a settled state"), || {
            let all = session.list(None);
            let running = all.iter().filter(|info| info.phase == Phase::Running).count();
            let disks = std::fs::read_dir(dir.path().join("workspaces")).unwrap().count();
            all.iter().all(|info| settled(info.phase))
                && host.processes().len() == running
                && disks == all.len()
        })
        .await;
        let left = || {
            let all = session.list(None);
            let mut left: Vec<_> = all.iter().map(|info| described(dir.path(), info)).collect();
            left.sort();
            left
        };
        // Disks are put in order in the background.
        let expected = left_after(point);
        eventually(&format!("{point}: {expected:?}, not {:?},", left()), || left() == expected).await;
        // The remaining workspaces can be used, and all other names are free.
        assert_eq!(session.adopt_all(false).await.errors.len(), 0);
        use_all(&session, point).await;
        for info in session.list(None) {
            session.destroy(&by_name(info.name.as_str())).await.unwrap();
        }
        assert!(host.processes().is_empty(), "{point}");
        assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 0, "{point}");
        daemon.shutdown().await;
        assert!(!dir.path().join("state.json.tmp").exists());
    }
}

/// Repeats every step of the life that was interrupted.
async fn use_all(session: &Session, point: &str) {
    let (web, quiet) = (by_name("web"), Progress::silent());
    let Some(info) = session.list(None).into_iter().find(|info| info.name.as_str() == "web") else {
        session.create(named("web"), &quiet).await.unwrap();
        return;
    };
    if info.phase == Phase::Stopped {
        session.start(&web, &quiet).await.unwrap();
    }
    if info.snapshots.is_empty() {
        session.snapshot(&web, snap("a"), true, &quiet).await.unwrap();
    }
    session.snapshot(&web, snap("c"), false, &quiet).await.unwrap();
    session.restore(&web, &snap("a"), &quiet).await.unwrap();
    session.fork(fork_of_web("again"), &quiet).await.unwrap();
    session.delete_snapshot(&web, &snap("c")).await.unwrap();
    let expected = run_command(session, "web", "read").await.unwrap();
    assert_eq!(run_command(session, "again", "read").await.unwrap(), expected, "{point}");
}
