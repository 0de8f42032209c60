//! The process is ended at every named step; the next daemon must leave the world as if the step had either
//! happened or not.
//!
//! The test program starts itself again as the daemon that dies: see `the_daemon_that_dies`.

mod support;

use std::path::Path;
use std::process::Command;

use agentiso_core::lifecycle::Phase;
use agentiso_daemon::fault;
use agentiso_daemon::{Progress, SessionKind};
use support::{World, by_name, eventually, named, open};

const ROOT: &str = "AGENTISO_TEST_ROOT";

/// Lives a whole life and is expected to die in the middle of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test below, in a process of its own"]
async fn the_daemon_that_dies() {
    let root = std::env::var_os(ROOT).expect("the root is given");
    let root = Path::new(&root);
    let world = World::new(root);
    let daemon = open(root, &world).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.stop(&by_name("web")).await.unwrap();
    session.start(&by_name("web"), &Progress::silent()).await.unwrap();
    session.destroy(&by_name("web")).await.unwrap();
}

fn die_at(point: &str, root: &Path) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["the_daemon_that_dies", "--exact", "--ignored", "--nocapture"])
        .env(ROOT, root)
        .env(fault::VARIABLE, point)
        .output()
        .unwrap();
    assert!(!output.status.success(), "nothing died at {point}");
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(killed, Some(6), "{point}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_step_is_finished_or_undone_by_the_next_daemon() {
    for point in fault::POINTS {
        let dir = tempfile::tempdir().unwrap();
        die_at(point, dir.path());
        let world = World::new(dir.path());
        let daemon = open(dir.path(), &world).await;
        let session = daemon.open_session(SessionKind::Client);
        let settled = |phase| matches!(phase, Phase::Running | Phase::Stopped);
        eventually(&format!("{point}: a settled state"), || {
            let all = session.list(None);
            let running = all.iter().filter(|info| info.phase == Phase::Running).count();
            let disks = std::fs::read_dir(dir.path().join("workspaces")).unwrap().count();
            all.iter().all(|info| settled(info.phase))
                && world.processes().len() == running
                && disks == all.len()
        })
        .await;
        let all = session.list(None);
        match point {
            "create.saved" => assert_eq!(all[0].phase, Phase::Running, "{point}"),
            _ if point.starts_with("create.") => assert!(all.is_empty(), "{point}: half-made"),
            _ if point.starts_with("start.") => assert_eq!(all[0].phase, Phase::Stopped, "{point}"),
            _ if point.starts_with("stop.") => assert_eq!(all[0].phase, Phase::Stopped, "{point}"),
            _ => assert!(all.is_empty(), "{point}: half-destroyed"),
        }
        // What is left can be used, and its name is free otherwise.
        if all.is_empty() {
            session.create(named("web"), &Progress::silent()).await.unwrap();
        }
        assert_eq!(session.adopt_all(false).await.errors.len(), 0);
        session.destroy(&by_name("web")).await.unwrap();
        assert!(world.processes().is_empty(), "{point}");
        daemon.shutdown().await;
        assert!(!dir.path().join("state.json.tmp").exists());
    }
}
