//! Tests for the start of a daemon with everything that an earlier one left, however that one ended.
//!
//! A crash is simulated by dropping the runtime: every task ends immediately, VMs run on.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_core::lifecycle::{Phase, PublicState};
use agentiso_daemon::{Daemon, ExecSpec, LockError, OpError, OpenError, Progress, SessionKind};
use support::{
    FakeHost, FakeVms, Fault, Volume, by_name, config, eventually, named, open, run_command, snap,
};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Opens a daemon, runs `story` on it, and crashes.
fn until_crash(root: &Path, host: &Arc<FakeHost>, story: impl AsyncFnOnce(Daemon)) {
    let runtime = runtime();
    runtime.block_on(async {
        let daemon = open(root, host).await;
        story(daemon).await;
    });
    drop(runtime);
}

#[test]
fn running_vms_are_reattached_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Client);
        session.create(named("web"), &Progress::silent()).await.unwrap();
    });
    let before = host.processes();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Client);
        let info = session.list(None).remove(0);
        assert_eq!(
            (info.state, info.owned, info.ip.to_string()),
            (PublicState::Running, false, "10.42.0.2".into())
        );
        assert!(matches!(session.guest(&by_name("web")).await, Err(OpError::NotOwned { .. })));
        // Its owner is a ghost: adoption works at once.
        assert_eq!(session.adopt_all(false).await.adopted.len(), 1);
        session.guest(&by_name("web")).await.unwrap().exec(ExecSpec::shell("hi")).await.unwrap();
        assert_eq!(host.processes(), before, "the VM is the same");
        // The death of a reattached VM is noticed as well.
        host.kill(before[0].0, "signal 9");
        eventually("the stopped state", || session.list(None)[0].phase == Phase::Stopped).await;
        let second = session.create(named("db"), &Progress::silent()).await.unwrap();
        assert_eq!(second.info.ip.to_string(), "10.42.0.3", "the ring of addresses goes on");
    });
}

#[test]
fn vm_that_ended_unwatched_can_be_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        daemon.open_session(SessionKind::Shell).create(named("web"), &Progress::silent()).await.unwrap();
    });
    host.kill(host.processes()[0].0, "power");
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let info = session.list(None).remove(0);
        assert_eq!(info.phase, Phase::Stopped);
        let sockets = dir.path().join("run").join(info.id.short());
        eventually("the removal of its sockets", || !sockets.exists()).await;
        assert!(info.stop_reason.unwrap().contains("while no daemon was running"));
        session.start(&by_name("web"), &Progress::silent()).await.unwrap();
    });
}

#[test]
fn unreachable_vms_run_on_and_are_reattached() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        daemon.open_session(SessionKind::Shell).create(named("web"), &Progress::silent()).await.unwrap();
    });
    let before = host.processes();
    for _ in 0..2 {
        host.inject(Fault::AttachFails);
    }
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let reason = || session.list(None)[0].stop_reason.clone();
        eventually("the reason", || reason().is_some_and(|text| text.contains("told to fail"))).await;
        assert_eq!(session.list(None)[0].phase, Phase::Running);
        let refused = session.guest(&by_name("web")).await.unwrap_err();
        assert_eq!(refused.code(), "guest_unreachable");
        assert!(refused.to_string().contains("told to fail") && refused.retryable(), "{refused}");
        let refused = session.snapshot(&by_name("web"), snap("a"), false, &Progress::silent()).await;
        assert_eq!(refused.unwrap_err().code(), "guest_unreachable");
        eventually("the VM", || reason().is_none()).await;
        session.guest(&by_name("web")).await.unwrap();
        assert_eq!(host.processes(), before, "the same VM");
    });
}

#[test]
fn unreachable_vms_end_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        for name in ["web", "db", "idle"] {
            session.create(named(name), &Progress::silent()).await.unwrap();
        }
    });
    for _ in 0..100 {
        host.inject(Fault::AttachFails);
    }
    runtime().block_on(async {
        let daemon = open(dir.path(), &host).await;
        let session = daemon.open_session(SessionKind::Shell);
        let missed = || session.list(None).iter().filter(|info| info.stop_reason.is_some()).count();
        eventually("the reasons", || missed() == 3).await;
        session.stop(&by_name("web")).await.unwrap();
        let web = session.info(&by_name("web")).await.unwrap();
        assert_eq!((web.phase, web.stop_reason), (Phase::Stopped, None));
        session.start(&by_name("web"), &Progress::silent()).await.unwrap();
        session.guest(&by_name("web")).await.unwrap();
        session.destroy(&by_name("db")).await.unwrap();
        assert_eq!(host.processes().len(), 2);
        // No client asked for the end of this one.
        daemon.shutdown().await;
        assert_eq!(host.processes().len(), 1);
    });
}

#[test]
fn altered_vms_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        daemon.open_session(SessionKind::Shell).create(named("web"), &Progress::silent()).await.unwrap();
    });
    host.inject(Fault::AttachFindsAnother);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        eventually("the stopped state", || session.list(None)[0].phase == Phase::Stopped).await;
        let reason = session.list(None)[0].stop_reason.clone().unwrap();
        assert!(reason.contains("says that it is another"), "{reason}");
        assert!(host.processes().is_empty());
        session.start(&by_name("web"), &Progress::silent()).await.unwrap();
    });
}

#[test]
fn unfinished_workspaces_go_and_unknown_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create(named("kept"), &Progress::silent()).await.unwrap();
        host.inject(Fault::BootHangsAfterSpawn);
        let hanging = session.clone();
        tokio::spawn(async move { hanging.create(named("half"), &Progress::silent()).await });
        host.hanging.notified().await;
        assert_eq!(host.processes().len(), 2);
    });
    // The end of the runtime dropped the boot, which ended its process; a real crash leaves it.
    let half = fs::read_dir(dir.path().join("workspaces")).unwrap().count();
    assert_eq!(half, 2);
    let unknown = "5f0d2c1a-8a53-4c0e-9d2e-0a8f3a3f1c11";
    fs::create_dir_all(dir.path().join("workspaces").join(unknown)).unwrap();
    fs::write(dir.path().join("workspaces").join(unknown).join("disk.qcow2"), "somebody's work").unwrap();
    fs::create_dir_all(dir.path().join("workspaces/precious")).unwrap();
    fs::create_dir_all(dir.path().join("run/5f0d2c1a")).unwrap();
    fs::write(dir.path().join("run/notes.txt"), "not ours").unwrap();
    let stray = host.spawn_stray(unknown);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        eventually("the clean-up", || session.list(None).len() == 1).await;
        let workspaces = dir.path().join("workspaces");
        let count = || fs::read_dir(&workspaces).unwrap().count();
        eventually("the removal of what was half made", || count() == 3).await;
        assert!(workspaces.join("precious").exists() && dir.path().join("run/notes.txt").exists());
        session.guest(&by_name("kept")).await.unwrap();
        // No record marks this for removal: it stays, and its VM runs on.
        assert!(workspaces.join(unknown).join("disk.qcow2").exists() && host.lives(stray));
        let kept = session.quarantine().await.unwrap();
        assert_eq!((kept.len(), kept[0].id.as_str(), kept[0].pid), (1, unknown, Some(stray)));
    });
}

#[test]
fn unfinished_snapshots_are_removed_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let quiet = Progress::silent();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create(named("web"), &quiet).await.unwrap();
        session.create(named("db"), &quiet).await.unwrap();
        for workspace in ["web", "db"] {
            session.snapshot(&by_name(workspace), snap("a"), false, &quiet).await.unwrap();
        }
        session.stop(&by_name("db")).await.unwrap();
        // Both workspaces get an unfinished snapshot: one has a running VM, the other is stopped.
        for info in session.list(None) {
            let disk = dir.path().join("workspaces").join(info.id.to_string());
            host.change_volume(&disk, |volume| volume.freeze(SnapshotId::random(), None)).unwrap();
        }
    });
    // One of the two disks cannot be settled at first.
    host.inject(Fault::SettleFails);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        for workspace in ["web", "db"] {
            session.restore(&by_name(workspace), &snap("a"), &quiet).await.unwrap();
            let info = session.info(&by_name(workspace)).await.unwrap();
            let disk = Volume::load(&dir.path().join("workspaces").join(info.id.to_string())).unwrap();
            assert_eq!(disk.snapshots.keys().copied().collect::<Vec<_>>(), [info.snapshots[0].id]);
            assert!(info.snapshots[0].current);
        }
    });
}

#[test]
fn suspended_workspace_is_usable_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let quiet = Progress::silent();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create(named("web"), &quiet).await.unwrap();
        for name in ["a", "b"] {
            session.snapshot(&by_name("web"), snap(name), false, &quiet).await.unwrap();
        }
    });
    let ledger = dir.path().join("state.json");
    let rewrite = |from: &str, to: &str| {
        let text = fs::read_to_string(&ledger).unwrap();
        let (said, _) = text.rsplit_once(",\n  \"checksum\"").unwrap();
        fs::write(&ledger, format!("{}\n}}", said.replace(from, to))).unwrap();
    };
    let suspended = "\"suspended\", \"stop_reason\": \"the host's disk is full\"";
    rewrite("\"running\"", suspended);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let info = session.info(&by_name("web")).await.unwrap();
        assert_eq!((info.phase, info.state), (Phase::Suspended, PublicState::Suspended));
        assert_eq!(info.stop_reason.as_deref(), Some("the host's disk is full"));
        let refused = session.guest(&by_name("web")).await.unwrap_err();
        assert!(refused.to_string().contains("disk is full") && refused.retryable(), "{refused}");
        let refused = session.snapshot(&by_name("web"), snap("c"), false, &quiet).await.unwrap_err();
        assert_eq!(refused.code(), "wrong_state");
        session.delete_snapshot(&by_name("web"), &snap("a")).await.unwrap();
        let restored = session.restore(&by_name("web"), &snap("b"), &quiet).await.unwrap();
        assert_eq!((restored.workspace.phase, restored.workspace.stop_reason), (Phase::Running, None));
        assert_eq!(host.processes().len(), 1);
        run_command(&session, "web", "hi").await.unwrap();
    });
    // A suspended workspace can be stopped.
    rewrite("\"running\"", suspended);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        assert_eq!(session.list(None)[0].phase, Phase::Suspended);
        // It may still be reattaching.
        while let Err(refusal) = session.stop(&by_name("web")).await {
            assert!(matches!(refusal, OpError::StillAttaching { .. }), "{refusal}");
        }
        assert_eq!((session.list(None)[0].phase, host.processes().len()), (Phase::Stopped, 0));
    });
}

#[tokio::test]
async fn shared_run_directory_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    let before = host.processes();
    let shared = format!("[vm]\nrun_dir = {:?}\n", daemon.config().paths.run);
    let second = Daemon::open_with(config(other.path(), &shared), Arc::new(FakeVms(Arc::clone(&host)))).await;
    let error = second.expect_err("it must not start");
    assert!(matches!(error, OpenError::RunDir(_)), "{error}");
    let state_file = dir.path().canonicalize().unwrap().join("state.json");
    assert!(error.to_string().contains(state_file.to_str().unwrap()), "{error}");
    assert_eq!(host.processes(), before, "no VM is touched");
    drop(session);
    daemon.shutdown().await;
}

/// Makes the directories that a ledger lists, without descriptions, as an older program left them.
fn undescribed_directories(root: &Path, ledger: &serde_json::Value) -> Vec<PathBuf> {
    let directories = ledger["workspaces"].as_object().unwrap().iter().map(|(id, entry)| {
        let mut volume = Volume::fresh("kept");
        for snapshot in entry["snapshots"].as_array().into_iter().flatten() {
            let memory = snapshot["has_memory"].as_bool().unwrap().then(|| "memory".to_owned());
            volume.freeze(serde_json::from_value(snapshot["id"].clone()).unwrap(), memory);
        }
        volume.unconfirmed.clear();
        let directory = root.join("workspaces").join(id);
        volume.save(&directory);
        directory
    });
    directories.collect()
}

/// Written by the last program that used version 4, with real VMs and a team at work.
#[test]
fn version_4_ledger_is_taken_over() {
    let text = include_str!("fixtures/ledger-v4-team-made.json");
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let directories = undescribed_directories(dir.path(), &serde_json::from_str(text).unwrap());
    fs::write(dir.path().join("state.json"), text).unwrap();
    // The second start reads the files that the first has written.
    for again in [false, true] {
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Client);
            assert_eq!(session.adopt_all(false).await.adopted.len(), 4);
            let list = session.list(None);
            let web = list.iter().find(|info| info.name.as_str() == "web").unwrap();
            let snapshots: Vec<_> = web.snapshots.iter().map(|s| (s.name.as_str(), s.has_memory)).collect();
            assert_eq!(snapshots, [("clean", true), ("ready", false)]);
            assert_eq!((web.ip.to_string(), web.resources.memory_mb), ("10.42.0.2".to_owned(), 256));
            let forward = web.network.port_forwards[0];
            assert_eq!((forward.guest_port, forward.host_port), (8080, 18080));
            let policy = serde_json::to_value(&web.network.policy).unwrap();
            assert_eq!(policy["deny_domains"][0], "bad.example.org");
            let idea = list.iter().find(|info| info.name.as_str() == "idea").unwrap();
            assert_eq!(idea.forked_from.as_ref().unwrap().source_workspace_id, web.id);
            let received = session.receive_messages("crew", "lead", 9).await.unwrap();
            assert_eq!(
                (received.messages.len(), received.results.len()),
                if again { (0, 0) } else { (2, 1) }
            );
        });
        let ledger: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("state.json")).unwrap()).unwrap();
        assert_eq!(ledger["schema_version"], 5);
        assert_eq!(ledger["teams"]["crew"]["members"][0].get("mail"), None, "it has a file of its own");
        assert!(directories.iter().all(|directory| directory.join("workspace.json").is_file()));
        assert!(dir.path().join("teams/crew.1794994788685914555/team.json").is_file());
    }
}

#[tokio::test]
async fn newer_ledger_and_second_daemon_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let second = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(Arc::clone(&host)))).await;
    let Err(OpenError::Lock(LockError::Held { pid, .. })) = second else {
        panic!("two daemons on one state")
    };
    assert_eq!(pid, Some(std::process::id()));
    daemon.shutdown().await;

    fs::write(dir.path().join("state.json"), "{\"schema_version\": 99}").unwrap();
    let newer = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host))).await;
    let error = newer.expect_err("it must not start").to_string();
    assert!(error.contains("newer"), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("state.json")).unwrap(), "{\"schema_version\": 99}");
}
