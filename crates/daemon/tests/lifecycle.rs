//! Tests for the life of workspaces as a session sees it, against the fake host.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use agentiso_core::lifecycle::{Phase, PublicState};
use agentiso_core::names::ImageName;
use agentiso_core::network::PolicyChange;
use agentiso_daemon::{
    CreateRequest, Daemon, ExecSpec, ForkRequest, LogKind, OpError, Progress, SessionKind,
};
use support::{FakeHost, FakeVms, Fault, by_name, config, eventually, named, open, small, snap};

fn quiet() -> Progress {
    Progress::silent()
}

#[tokio::test]
async fn workspace_passes_through_its_whole_lifecycle() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);

    let created = session.create(named("web"), &quiet()).await.unwrap();
    assert_eq!((created.info.state, created.info.owned), (PublicState::Running, true));
    assert_eq!(created.info.ip.to_string(), "10.42.0.2");
    let outcome = session.guest(&by_name("web")).await.unwrap().exec(ExecSpec::shell("hi")).await.unwrap();
    assert_eq!((outcome.exit_code, &outcome.stdout.head[..]), (Some(0), &b"hi"[..]));
    let logs = session.logs(&by_name("web"), LogKind::All, 10).await.unwrap();
    assert_eq!(logs.console.as_deref(), Some("booted"));

    let stopped = session.stop(&by_name("web")).await.unwrap();
    assert_eq!((stopped.state, stopped.pid, stopped.stop_reason), (PublicState::Stopped, None, None));
    assert!(host.processes().is_empty());
    assert!(matches!(session.guest(&by_name("web")).await, Err(OpError::WrongState { .. })));
    assert!(matches!(session.stop(&by_name("web")).await, Err(OpError::WrongState { .. })));

    let started = session.start(&by_name("web"), &quiet()).await.unwrap();
    assert_eq!((started.state, started.ip), (PublicState::Running, created.info.ip));
    assert!(matches!(session.start(&by_name("web"), &quiet()).await, Err(OpError::WrongState { .. })));
    let info = session.info(&by_name("web")).await.unwrap();
    assert_eq!(info.disk_volsize_bytes, Some(2 << 30));

    session.destroy(&by_name("web")).await.unwrap();
    assert!(session.list(None).is_empty() && host.processes().is_empty());
    assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 0);
    assert!(matches!(session.destroy(&by_name("web")).await, Err(OpError::NotFound { .. })));
    daemon.shutdown().await;
}

#[tokio::test]
async fn vm_limit_of_the_host_holds() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let limited = config(dir.path(), "[resources]\nmax_total_vms = 2\n");
    let daemon = Daemon::open_with(limited, Arc::new(FakeVms(Arc::clone(&host)))).await.unwrap();
    let session = daemon.open_session(SessionKind::Shell);
    session.create(named("a"), &quiet()).await.unwrap();
    session.create(named("b"), &quiet()).await.unwrap();
    let refused = session.create(named("c"), &quiet()).await.unwrap_err();
    assert_eq!((refused.code(), refused.retryable()), ("too_many_machines", false));
    assert!(refused.to_string().contains("limit of 2 VMs"), "{refused}");
    session.snapshot(&by_name("a"), snap("s"), false, &quiet()).await.unwrap();
    let fork =
        ForkRequest { source: by_name("a"), snapshot: snap("s"), new_name: None, setup_commands: Vec::new() };
    assert_eq!(session.fork(fork.clone(), &quiet()).await.unwrap_err().code(), "too_many_machines");
    session.destroy(&by_name("b")).await.unwrap();
    session.fork(fork, &quiet()).await.unwrap();
    assert_eq!(session.list(None).len(), 2);
    daemon.shutdown().await;
}

#[tokio::test]
async fn concurrent_creates_stop_at_the_quota() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    let progress = quiet();
    let creates = (0..20).map(|_| session.create(small(), &progress));
    let results = futures::future::join_all(creates).await;
    let made = results.iter().filter(|result| result.is_ok()).count();
    let refused = results.iter().filter(|result| matches!(result, Err(OpError::Quota(_)))).count();
    assert_eq!((made, refused), (10, 10));
    assert_eq!((session.list(None).len(), host.processes().len()), (10, 10));
    daemon.shutdown().await;
}

#[tokio::test]
async fn impossible_creates_are_refused_beforehand() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    let before = host.processes();

    let taken = session.create(named("web"), &quiet()).await.unwrap_err();
    assert_eq!(taken.code(), "name_taken");
    let tiny = CreateRequest { vcpus: Some(0), memory_mb: Some(1), disk_gb: Some(0), ..small() };
    let Err(OpError::OutOfRange(problems)) = session.create(tiny, &quiet()).await else {
        panic!("it was made")
    };
    assert_eq!(problems.len(), 3);
    let network = PolicyChange { deny_cidrs: Some(vec!["10.0.0.0/99".to_owned()]), ..Default::default() };
    let closed = CreateRequest { network, ..small() };
    assert_eq!(session.create(closed, &quiet()).await.unwrap_err().code(), "bad_policy");
    let image = CreateRequest { base_image: Some(ImageName::parse("alpine").unwrap()), ..small() };
    let missing = session.create(image, &quiet()).await.unwrap_err();
    assert!(matches!(missing, OpError::NoImage { .. }), "{missing:?}");
    host.available_mb.store(300, Ordering::Relaxed);
    assert_eq!(session.create(small(), &quiet()).await.unwrap_err().code(), "host_memory");
    assert_eq!((host.processes(), session.list(None).len()), (before, 1));
    session.stop(&by_name("web")).await.unwrap();
    assert_eq!(session.start(&by_name("web"), &quiet()).await.unwrap_err().code(), "host_memory");
    assert_eq!(session.list(None)[0].phase, Phase::Stopped);
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_boot_returns_its_name_and_quota() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    for fault in [Fault::BootFailsBeforeSpawn, Fault::BootFailsAfterSpawn, Fault::NoSpace] {
        for _ in 0..11 {
            host.inject(fault);
            session.create(named("web"), &quiet()).await.expect_err("it was told to fail");
        }
        assert!(session.list(None).is_empty() && host.processes().is_empty());
        assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 0);
    }
    session.create(named("web"), &quiet()).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn cancelled_create_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    for fault in [Fault::BootHangsBeforeSpawn, Fault::BootHangsAfterSpawn] {
        let session = daemon.open_session(SessionKind::Client);
        host.inject(fault);
        let caller = tokio::spawn(async move { session.create(named("web"), &Progress::silent()).await });
        host.hanging.notified().await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        let shell = daemon.open_session(SessionKind::Shell);
        eventually("the rollback", || shell.list(None).is_empty()).await;
        eventually("the end of its process", || host.processes().is_empty()).await;
        assert_eq!(std::fs::read_dir(dir.path().join("workspaces")).unwrap().count(), 0);
    }
    daemon.shutdown().await;
}

#[tokio::test]
async fn suspended_vm_fails_waiting_calls() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    let exec = |command: &'static str| {
        let session = session.clone();
        tokio::spawn(async move {
            let guest = session.guest(&by_name("web")).await?;
            guest.exec(ExecSpec::shell(command)).await
        })
    };
    // A guest that continues within a moment loses nothing.
    let patient = exec("wait");
    eventually("the command", || host.commands.load(Ordering::SeqCst) == 1).await;
    host.fill_disk(Some("the host's disk is full"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    host.fill_disk(None);
    eventually("the running state", || session.list(None)[0].phase == Phase::Running).await;
    host.go.notify_one();
    assert_eq!(patient.await.unwrap().unwrap().exit_code, Some(0));

    let waiting = exec("sleep");
    eventually("the command", || host.commands.load(Ordering::SeqCst) == 2).await;
    host.fill_disk(Some("the host's disk is full"));
    let error = tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("is paused: the host's disk is full"), "{text}");
    assert!(error.retryable());
    assert_eq!(exec("hi").await.unwrap().unwrap_err().to_string(), text);
    host.fill_disk(None);
    eventually("the running state", || session.list(None)[0].phase == Phase::Running).await;
    assert_eq!(exec("hi").await.unwrap().unwrap().exit_code, Some(0));
    daemon.shutdown().await;
}

#[tokio::test]
async fn dead_vm_is_shown_as_stopped_with_reason() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    let pid = session.create(named("web"), &quiet()).await.unwrap().info.pid.unwrap();
    let guest = session.guest(&by_name("web")).await.unwrap();
    let running = tokio::spawn(async move { guest.exec(ExecSpec::shell("sleep")).await });
    tokio::task::yield_now().await;
    host.kill(pid, "signal 9");
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(&error, OpError::VmDied { reason, .. } if reason == "signal 9"), "{error}");
    eventually("the stopped state", || session.list(None)[0].phase == Phase::Stopped).await;
    assert_eq!(session.list(None)[0].stop_reason.as_deref(), Some("signal 9"));
    session.start(&by_name("web"), &quiet()).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_destroy_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    host.inject(Fault::EraseFails);
    assert_eq!(session.destroy(&by_name("web")).await.unwrap_err().code(), "destroy_failed");
    let left = &session.list(None)[0];
    assert_eq!(left.phase, Phase::Stopped);
    assert!(left.stop_reason.as_ref().unwrap().contains("destroying it failed"));
    session.destroy(&by_name("web")).await.unwrap();
    assert!(session.list(None).is_empty());
    daemon.shutdown().await;
}

#[tokio::test]
async fn full_disk_leaves_the_state_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    // The next save writes into a device that is always full.
    let fill = || std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
    fill();
    assert_eq!(session.create(named("web"), &quiet()).await.unwrap_err().code(), "no_space");
    assert!(session.list(None).is_empty() && host.processes().is_empty());

    session.create(named("web"), &quiet()).await.unwrap();
    fill();
    assert_eq!(session.stop(&by_name("web")).await.unwrap_err().code(), "no_space");
    assert_eq!(session.list(None)[0].phase, Phase::Running);
    session.stop(&by_name("web")).await.unwrap();
    fill();
    assert_eq!(session.start(&by_name("web"), &quiet()).await.unwrap_err().code(), "no_space");
    assert_eq!(session.list(None)[0].phase, Phase::Stopped);
    fill();
    session.destroy(&by_name("web")).await.expect("a destroy is how space is made");
    assert!(session.list(None).is_empty());
    daemon.shutdown().await;
}

#[tokio::test]
async fn failed_save_is_retried_after_the_configured_interval() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let mut config = config(dir.path(), "");
    config.server.state_persist_interval_secs = 1;
    let daemon = Daemon::open_with(config, Arc::new(FakeVms(Arc::clone(&host)))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    // A directory in the way keeps the new file from being written, so every save fails.
    let in_the_way = dir.path().join("state.json.tmp");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    host.kill(host.processes()[0].0, "gone");
    eventually("the end is noticed", || session.list(None)[0].phase == Phase::Stopped).await;
    let saved = || std::fs::read_to_string(dir.path().join("state.json")).unwrap();
    let before = saved();
    std::fs::remove_dir_all(&in_the_way).unwrap();
    let begun = Instant::now();
    eventually("it is saved without another change", || saved() != before).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "and not after the default of 30 s");
    assert!(saved().contains("\"stopped\""), "{}", saved());
    daemon.shutdown().await;
}

#[tokio::test]
async fn shutdown_stops_all_vms_concurrently() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    for _ in 0..10 {
        session.create(small(), &quiet()).await.unwrap();
    }
    *host.shutdown_takes.lock().unwrap() = Duration::from_millis(300);
    let begun = Instant::now();
    daemon.shutdown().await;
    assert!(begun.elapsed() < Duration::from_millis(1500), "one after the other: {:?}", begun.elapsed());
    assert!(host.processes().is_empty());
    assert!(matches!(session.create(small(), &quiet()).await, Err(OpError::ShuttingDown)));
}

#[tokio::test]
async fn foreign_workspace_is_unusable_until_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let (mine, yours) = (daemon.open_session(SessionKind::Client), daemon.open_session(SessionKind::Client));
    mine.create(named("web"), &quiet()).await.unwrap();
    let web = by_name("web");
    assert!(!yours.list(None)[0].owned);
    for refused in [
        yours.guest(&web).await.map(drop),
        yours.stop(&web).await.map(drop),
        yours.info(&web).await.map(drop),
    ] {
        assert!(matches!(refused, Err(OpError::NotOwned { .. })), "{refused:?}");
    }
    // The owner made a call a moment ago.
    assert!(matches!(yours.adopt(&web, true).await, Err(OpError::OwnerActive { .. })));
    assert!(matches!(yours.destroy(&web).await, Err(OpError::OwnerActive { .. })));
    assert!(yours.adopt_all(false).await.adopted.is_empty());
    let forced = yours.adopt_all(true).await;
    assert_eq!((forced.adopted.len(), forced.errors.len()), (0, 1));
    // The owner disconnects.
    drop(mine);
    assert_eq!(yours.adopt_all(false).await.adopted.len(), 1);
    assert!(yours.adopt(&web, false).await.is_ok(), "adopting one's own is no error");
    yours.destroy(&web).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn adoption_beyond_the_quota_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let (full, other) = (daemon.open_session(SessionKind::Client), daemon.open_session(SessionKind::Client));
    for _ in 0..10 {
        full.create(small(), &quiet()).await.unwrap();
    }
    other.create(named("eleventh"), &quiet()).await.unwrap();
    let owner = other.id().clone();
    drop(other);
    assert!(matches!(full.adopt(&by_name("eleventh"), true).await, Err(OpError::Quota(_))));
    let eleventh = full.list(None).into_iter().find(|info| info.name.as_str() == "eleventh").unwrap();
    assert_eq!(eleventh.owner, Some(owner));
    full.destroy(&by_name("eleventh")).await.expect("cleaning up needs no quota");
    daemon.shutdown().await;
}

#[tokio::test]
async fn shell_session_ignores_ownership_and_quota() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let client = daemon.open_session(SessionKind::Client);
    client.create(named("web"), &quiet()).await.unwrap();
    let shell = daemon.open_session(SessionKind::Shell);
    shell.guest(&by_name("web")).await.unwrap().exec(ExecSpec::shell("hi")).await.unwrap();
    for _ in 0..12 {
        shell.create(small(), &quiet()).await.unwrap();
    }
    shell.destroy(&by_name("web")).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn dropping_an_exec_kills_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = open(dir.path(), &host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &quiet()).await.unwrap();
    let guest = session.guest(&by_name("web")).await.unwrap();
    let gave_up = tokio::time::timeout(Duration::from_millis(20), guest.exec(ExecSpec::shell("sleep"))).await;
    assert!(gave_up.is_err());
    assert_eq!(host.killed_commands.load(Ordering::SeqCst), 1);
    daemon.shutdown().await;
}
