//! Tests for disks and VMs whose ledger is damaged, missing, older, or contradicts them. Nothing is lost in any of
//! these cases.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_core::lifecycle::Phase;
use agentiso_core::team::{AgentStatus, RoleName, TASK_ASSIGNMENT, TeamName};
use agentiso_daemon::{Daemon, Progress, QuarantineKind, RoleRequest, Session, SessionKind, TeamRequest};
use serde_json::{Value, json};
use support::{
    FakeHost, FakeVms, Fault, Volume, by_name, config, eventually, named, open, run_command, snap,
};
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Opens a daemon, runs `story` on it, and crashes.
fn until_crash<T>(root: &Path, host: &Arc<FakeHost>, story: impl AsyncFnOnce(Daemon) -> T) -> T {
    let runtime = runtime();
    let told = runtime.block_on(async {
        let daemon = open(root, host).await;
        story(daemon).await
    });
    drop(runtime);
    told
}

fn ledger(root: &Path) -> PathBuf {
    root.join("state.json")
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    change(&mut value);
    // An older program wrote no checksum.
    value.as_object_mut().unwrap().remove("checksum");
    fs::write(path, value.to_string()).unwrap();
}

/// Creates a running workspace with two snapshots, one of them with memory, and a stopped workspace.
async fn populate(daemon: &Daemon) {
    let session = daemon.open_session(SessionKind::Client);
    let quiet = Progress::silent();
    for name in ["web", "db"] {
        session.create(named(name), &quiet).await.unwrap();
    }
    run_command(&session, "web", "write one").await.unwrap();
    session.snapshot(&by_name("web"), snap("a"), true, &quiet).await.unwrap();
    run_command(&session, "web", "write two").await.unwrap();
    session.snapshot(&by_name("web"), snap("b"), false, &quiet).await.unwrap();
    session.stop(&by_name("db")).await.unwrap();
}

/// Checks that all workspaces exist, the VM is the same, and every snapshot can be restored.
async fn assert_nothing_lost(session: &Session, host: &FakeHost, before: &[(i32, String)]) {
    assert_eq!(host.processes(), before, "the VM runs on");
    session.adopt_all(true).await;
    let web = session.info(&by_name("web")).await.unwrap();
    assert_eq!((web.phase, web.ip.to_string()), (Phase::Running, "10.42.0.2".to_owned()));
    let names: Vec<_> = web.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(web.snapshots[1].current && web.snapshots[0].has_memory);
    assert_eq!(session.info(&by_name("db")).await.unwrap().phase, Phase::Stopped);
    assert_eq!(run_command(session, "web", "read").await.unwrap(), "two");
    session.restore(&by_name("web"), &snap("a"), &Progress::silent()).await.unwrap();
    assert_eq!(run_command(session, "web", "read").await.unwrap(), "one");
    session.start(&by_name("db"), &Progress::silent()).await.unwrap();
}

fn kept_aside(root: &Path) -> usize {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("state.json.corrupt-")).count()
}

#[test]
fn damaged_ledgers_are_rebuilt_while_vms_run() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("one wrong byte", |path| {
            let mut bytes = fs::read(path).unwrap();
            let at = bytes.len() / 2;
            bytes[at] = 0xff;
            fs::write(path, bytes).unwrap();
        }),
        ("cut off", |path| {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, &text[..text.len() / 2]).unwrap();
        }),
        ("empty", |path| fs::write(path, "").unwrap()),
        ("larger than any ledger", |path| {
            fs::OpenOptions::new().write(true).open(path).unwrap().set_len((4 << 30) + 1).unwrap();
        }),
        ("an earlier program's", |path| edit(path, |ledger| ledger["schema_version"] = json!(3))),
        ("single entries", |path| {
            edit(path, |ledger| {
                for entry in ledger["workspaces"].as_object_mut().unwrap().values_mut() {
                    entry["resources"] = json!("a lot");
                }
                ledger["sessions"] = json!([{}]);
            });
        }),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        let host = FakeHost::new(dir.path());
        until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
        let before = host.processes();
        damage(&ledger(dir.path()));
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Client);
            assert_eq!(session.list(None).len(), 2, "{what}");
            assert_nothing_lost(&session, &host, &before).await;
            assert!(session.quarantine().await.unwrap().is_empty(), "{what}");
        });
        assert_eq!(kept_aside(dir.path()), 1, "{what}");
        let mended = fs::read_to_string(ledger(dir.path())).unwrap();
        assert!(mended.contains("was read from its directory"), "{what}: it is said what was done");
    }
}

/// Replaces the first digit after `mark` by another one.
fn turn_digit(text: &str, mark: &str) -> String {
    let at = text.find(mark).unwrap() + mark.len();
    let other = if text[at..].starts_with('7') { "8" } else { "7" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

#[test]
fn changed_digits_of_a_ledger_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let (before, text) = (host.processes(), fs::read_to_string(ledger(dir.path())).unwrap());
    let read: Value = serde_json::from_str(&text).unwrap();
    let web =
        read["workspaces"].as_object().unwrap().iter().find(|(_, entry)| entry["name"] == "web").unwrap();
    let snapshot = web.1["snapshots"][1]["id"].as_str().unwrap();
    let ids = [format!("\"id\": \"{}", &snapshot[..9]), format!("\"{}", &web.0[..9])];
    let numbers = ["\"revision\": ", "\"disk_gb\": ", "\"pid\": ", "\"ip\": \"10.42.0."];
    for mark in ids.iter().map(String::as_str).chain(numbers) {
        fs::write(ledger(dir.path()), turn_digit(&text, mark)).unwrap();
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Client);
            let attached = || session.list(None).iter().any(|info| info.pid == Some(before[0].0));
            eventually("the VM", attached).await;
            assert_eq!(host.processes(), before, "{mark}");
            session.adopt_all(true).await;
            let web = session.info(&by_name("web")).await.unwrap();
            let names: Vec<_> = web.snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
            assert_eq!((names, web.phase), (vec!["a", "b"], Phase::Running), "{mark}");
        });
    }
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        assert_nothing_lost(&daemon.open_session(SessionKind::Client), &host, &before).await;
    });
}

#[test]
fn changed_ids_in_old_ledgers_cost_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    // A ledger without a checksum is trusted.
    edit(&ledger(dir.path()), |ledger| {
        for entry in ledger["workspaces"].as_object_mut().unwrap().values_mut() {
            if let Some(snapshot) = entry["snapshots"].get_mut(1) {
                snapshot["id"] = json!(SnapshotId::random());
            }
        }
    });
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let snapshots =
            || session.list(None).into_iter().find(|info| info.name.as_str() == "web").unwrap().snapshots;
        let recovered = || snapshots().into_iter().find(|one| one.name.as_str().starts_with("recovered-"));
        eventually("the snapshot", || recovered().is_some()).await;
        run_command(&session, "web", "write three").await.unwrap();
        session.restore(&by_name("web"), &recovered().unwrap().name, &Progress::silent()).await.unwrap();
        assert_eq!(run_command(&session, "web", "read").await.unwrap(), "two");
    });
}

#[test]
fn incomplete_ledgers_are_completed_from_the_directories() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let before = host.processes();
    edit(&ledger(dir.path()), |ledger| ledger["workspaces"] = json!({}));
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        assert_nothing_lost(&daemon.open_session(SessionKind::Client), &host, &before).await;
    });
    assert_eq!(kept_aside(dir.path()), 0, "it could be read");
}

#[test]
fn older_ledger_copy_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Client);
        session.create(named("web"), &Progress::silent()).await.unwrap();
        session.stop(&by_name("web")).await.unwrap();
        fs::copy(ledger(dir.path()), dir.path().join("copy")).unwrap();
        session.destroy(&by_name("web")).await.unwrap();
        populate(&daemon).await;
    });
    let before = host.processes();
    fs::rename(dir.path().join("copy"), ledger(dir.path())).unwrap();
    // Its first workspace is gone; the later ones, one of them with the same name, are not.
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        assert_eq!(host.processes(), before);
        let web = session.info(&by_name("web")).await.unwrap();
        assert_eq!((web.phase, web.snapshots.len()), (Phase::Running, 2));
    });
}

#[test]
fn removed_ledger_lists_nothing_and_is_recoverable() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let before = host.processes();
    fs::remove_file(ledger(dir.path())).unwrap();
    // However often the daemon is started, the list stays empty and the VM runs on.
    for _ in 0..3 {
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Shell);
            assert!(session.list(None).is_empty());
            let kept = session.quarantine().await.unwrap();
            assert_eq!(kept.len(), 2, "{kept:?}");
            assert!(kept.iter().all(|item| item.kind == QuarantineKind::Workspace && item.bytes > 0));
            assert_eq!(kept.iter().filter(|item| item.pid == Some(before[0].0)).count(), 1);
            assert_eq!(host.processes(), before);
        });
    }
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Client);
        let shell = daemon.open_session(SessionKind::Shell);
        // A name that another workspace took meanwhile stays with that workspace.
        session.create(named("db"), &Progress::silent()).await.unwrap();
        let web = shell.recover("web").await.unwrap();
        assert!(web.changes.is_empty(), "{:?}", web.changes);
        let db = shell.recover("db").await.unwrap();
        assert_eq!(db.name, format!("db-{}", &db.id[..8]));
        assert_eq!(db.changes.len(), 1, "{:?}", db.changes);
        assert_eq!(shell.recover("db").await.unwrap_err().code(), "not_in_quarantine");
        assert!(shell.quarantine().await.unwrap().is_empty());
        eventually("the VM", || shell.list(None).iter().any(|info| info.phase == Phase::Running)).await;
        session.destroy(&by_name("db")).await.unwrap();
        session.adopt_all(true).await;
        let web = session.info(&by_name("web")).await.unwrap();
        assert_eq!((web.pid, web.snapshots.len()), (Some(before[0].0), 2));
        assert_eq!(run_command(&session, "web", "read").await.unwrap(), "two");
    });
    // Recovered workspaces stay recovered.
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        assert_eq!((session.list(None).len(), session.quarantine().await.unwrap().len()), (2, 0));
    });
}

#[test]
fn discard_removes_quarantined_data_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    fs::remove_file(ledger(dir.path())).unwrap();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let id = session.discard("web").await.unwrap();
        assert!(!dir.path().join("workspaces").join(&id).exists());
        assert!(host.processes().is_empty(), "its VM is ended first");
        assert_eq!(session.quarantine().await.unwrap().len(), 1);
        assert_eq!(session.discard("web").await.unwrap_err().code(), "not_in_quarantine");
        // Its address is free again, and the address of the other one stays reserved.
        let made = session.create(named("new"), &Progress::silent()).await.unwrap();
        assert_ne!(made.info.ip.to_string(), "10.42.0.3");
    });
}

#[test]
fn id_prefixes_below_eight_digits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    fs::remove_file(ledger(dir.path())).unwrap();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let id = session.quarantine().await.unwrap().remove(0).id;
        for few in [0, 1, 7] {
            assert_eq!(session.discard(&id[..few]).await.unwrap_err().code(), "not_in_quarantine");
            assert_eq!(session.recover(&id[..few]).await.unwrap_err().code(), "not_in_quarantine");
        }
        assert_eq!(session.discard(&id[..8]).await.unwrap(), id);
    });
}

#[test]
fn recovered_workspaces_are_never_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    for round in 0..8 {
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Shell);
            session.create(named("web"), &Progress::silent()).await.unwrap();
        });
        fs::remove_file(ledger(dir.path())).unwrap();
        until_crash(dir.path(), &host, async |daemon: Daemon| {
            let session = daemon.open_session(SessionKind::Shell);
            let (recovered, discarded) = if round % 2 == 0 {
                tokio::join!(session.recover("web"), session.discard("web"))
            } else {
                let (discarded, recovered) = tokio::join!(session.discard("web"), session.recover("web"));
                (recovered, discarded)
            };
            assert!(recovered.is_ok() != discarded.is_ok(), "{recovered:?} {discarded:?}");
            assert!(session.quarantine().await.unwrap().is_empty());
            assert_eq!(session.list(None).len(), usize::from(recovered.is_ok()));
            if let Ok(recovered) = recovered {
                assert!(dir.path().join("workspaces").join(recovered.id).exists());
                session.destroy(&by_name("web")).await.unwrap();
            }
        });
    }
}

#[test]
fn renamed_state_file_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let before = host.processes();
    let mut renamed = config(dir.path(), "");
    renamed.paths.state_file = dir.path().join("ledger.json");
    runtime().block_on(async {
        let vms = Arc::new(FakeVms(Arc::clone(&host)));
        let daemon = Daemon::open_with(renamed, vms).await.unwrap();
        assert!(daemon.open_session(SessionKind::Shell).list(None).is_empty());
        assert_eq!(host.processes(), before);
        daemon.shutdown().await;
    });
    // Under its old name, the old ledger lists all of them as before.
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        assert_nothing_lost(&daemon.open_session(SessionKind::Client), &host, &before).await;
    });
}

#[test]
fn version_4_ledgers_get_descriptions_while_vms_run() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let before = host.processes();
    // The previous version left these files.
    let descriptions = || {
        let directories = fs::read_dir(dir.path().join("workspaces")).unwrap();
        directories.map(|entry| entry.unwrap().path().join("workspace.json")).collect::<Vec<_>>()
    };
    descriptions().iter().for_each(|path| fs::remove_file(path).unwrap());
    edit(&ledger(dir.path()), |ledger| {
        ledger["schema_version"] = json!(4);
        ledger.as_object_mut().unwrap().remove("revision");
    });
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        assert!(descriptions().iter().all(|path| path.exists()));
        assert_nothing_lost(&daemon.open_session(SessionKind::Client), &host, &before).await;
    });
    assert_eq!(kept_aside(dir.path()), 0);
}

#[test]
fn snapshots_missing_from_the_ledger_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let id = host.processes()[0].1.clone();
    let directory = fs::read_dir(dir.path().join("workspaces")).unwrap().map(|entry| entry.unwrap().path());
    let directory = directory.into_iter().find(|path| path.to_string_lossy().contains(&id)).unwrap();
    let unfinished = SnapshotId::random();
    // Ledger and description lose a finished snapshot, and another snapshot is unfinished.
    host.change_volume(&directory, |volume| {
        volume.unconfirmed.clear();
        volume.freeze(unfinished, None);
    })
    .unwrap();
    let forget = |entry: &mut Value| {
        entry["snapshots"].as_array_mut().unwrap().remove(0);
        entry["snapshots"][0].as_object_mut().unwrap().remove("parent");
    };
    edit(&ledger(dir.path()), |ledger| {
        let entries = ledger["workspaces"].as_object_mut().unwrap();
        entries.iter_mut().filter(|(key, _)| key.starts_with(&id)).for_each(|(_, entry)| forget(entry));
    });
    edit(&directory.join("workspace.json"), |described| {
        forget(&mut described["holds"]["workspace"]["entry"])
    });
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let web = by_name("web");
        eventually("the disk in order", || {
            !Volume::load(&directory).unwrap().snapshots.contains_key(&unfinished)
        })
        .await;
        let info = session.info(&web).await.unwrap();
        let found = info.snapshots.iter().find(|one| one.name.as_str().starts_with("recovered-")).unwrap();
        assert!(found.has_memory);
        session.restore(&web, &found.name, &Progress::silent()).await.unwrap();
        assert_eq!(run_command(&session, "web", "read").await.unwrap(), "one");
    });
}

#[test]
fn undescribed_disk_can_be_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    let before = host.processes();
    let directories =
        || fs::read_dir(dir.path().join("workspaces")).unwrap().map(|entry| entry.unwrap().path());
    directories().for_each(|path| fs::write(path.join("workspace.json"), "{").unwrap());
    fs::remove_file(ledger(dir.path())).unwrap();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        for item in session.quarantine().await.unwrap() {
            assert!(item.reason.contains("cannot be read"), "{}", item.reason);
            session.recover(&item.id).await.unwrap();
        }
        let running = || session.list(None).into_iter().find(|info| info.pid == Some(before[0].0));
        eventually("its snapshots", || running().is_some_and(|info| info.snapshots.len() == 2)).await;
        let web = running().unwrap();
        assert!(web.name.as_str().starts_with("recovered-"), "{}", web.name);
        assert_eq!(run_command(&session, web.name.as_str(), "read").await.unwrap(), "two");
    });
}

#[test]
fn snapshots_survive_a_disk_that_cannot_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    until_crash(dir.path(), &host, async |daemon: Daemon| populate(&daemon).await);
    edit(&ledger(dir.path()), |ledger| {
        for entry in ledger["workspaces"].as_object_mut().unwrap().values_mut() {
            entry.as_object_mut().unwrap().remove("snapshots");
            entry.as_object_mut().unwrap().remove("current");
        }
    });
    for entry in fs::read_dir(dir.path().join("workspaces")).unwrap() {
        // All of them were finished.
        host.change_volume(&entry.unwrap().path(), |volume| volume.unconfirmed.clear()).unwrap();
    }
    // Both workspaces fail to list their snapshots at the start.
    host.inject(Fault::ListingFails);
    host.inject(Fault::ListingFails);
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        eventually("the start", || !host.has_fault(Fault::ListingFails)).await;
        assert!(session.info(&by_name("web")).await.unwrap().snapshots.is_empty(), "they are not known yet");
        // The next step asks the disk again.
        session.snapshot(&by_name("web"), snap("c"), false, &Progress::silent()).await.unwrap();
        assert_eq!(session.info(&by_name("web")).await.unwrap().snapshots.len(), 3);
    });
}

fn crew() -> TeamRequest {
    let lead = RoleRequest {
        name: RoleName::parse("lead").unwrap(),
        role: "works".to_owned(),
        skills: Vec::new(),
        description: None,
    };
    let name = TeamName::parse("crew").unwrap();
    TeamRequest { name, max_vms: 1, roles: vec![lead], golden: None, parent: None }
}

fn lead(session: &Session) -> AgentStatus {
    session.team_info("crew").unwrap().members[0].status
}

/// Cuts an inbox to its first two frames, as if the daemon ended while starting its first task.
fn cut_short(inbox: &Path) {
    const MAGIC: usize = 16;
    const PREFIX: usize = 16;
    let bytes = fs::read(inbox).unwrap();
    let length = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let frame = |at: usize| at + PREFIX + length(at) + length(at + 4);
    fs::write(inbox, &bytes[..frame(frame(MAGIC))]).unwrap();
}

fn only_entry(directory: &Path) -> PathBuf {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

#[test]
fn quarantined_team_survives_a_namesake() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let quiet = Progress::silent();
    let say_to_lead = async |session: &Session, content: &str, kind: &str| {
        let sent = session.send_message("crew", "lead", "lead", content.to_owned(), kind.to_owned()).await;
        sent.unwrap();
    };
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create_team(crew(), &quiet).await.unwrap();
        // The VMs of the fake host run no jobs, so the task ends with a failure.
        say_to_lead(&session, r#"{"task_id": "t", "command": "true"}"#, TASK_ASSIGNMENT).await;
        eventually("its end", || lead(&session) == AgentStatus::Failed).await;
    });
    let old_mail = only_entry(&dir.path().join("mail"));
    cut_short(&old_mail.join("lead.log"));
    fs::remove_file(ledger(dir.path())).unwrap();
    let id = until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create_team(crew(), &quiet).await.unwrap();
        let refused = session.recover("team:crew").await.unwrap_err();
        assert_eq!(refused.code(), "not_recoverable");
        assert!(refused.to_string().contains("another team has that name"), "{refused}");
        let kept = session.quarantine().await.unwrap();
        kept.into_iter().find(|item| item.kind == QuarantineKind::Team).unwrap().id
    });
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let kept = session.quarantine().await.unwrap();
        assert!(kept.iter().any(|item| item.id == id), "another start keeps it: {kept:?}");
        session.destroy_team("crew", false).await.unwrap();
        session.recover(&id).await.unwrap();
        // A task that was being started is reported as failed, so nothing waits for it for ever.
        eventually("the end of its task", || lead(&session) == AgentStatus::Failed).await;
        let received = session.receive_messages("crew", "lead", 9).await.unwrap();
        assert_eq!((received.results.len(), received.pending), (1, 0));
    });
    // Recovered teams stay recovered.
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        assert!(session.team_info("crew").is_ok());
        assert!(session.quarantine().await.unwrap().iter().all(|item| item.id != id));
    });
}

#[test]
fn discard_removes_the_mail_of_a_team() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let quiet = Progress::silent();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        session.create_team(crew(), &quiet).await.unwrap();
        let text = ("hello".to_owned(), "text".to_owned());
        session.send_message("crew", "lead", "lead", text.0, text.1).await.unwrap();
    });
    let (mail, team) = (only_entry(&dir.path().join("mail")), only_entry(&dir.path().join("teams")));
    assert_eq!(mail.file_name(), team.file_name());
    fs::remove_file(ledger(dir.path())).unwrap();
    until_crash(dir.path(), &host, async |daemon: Daemon| {
        let session = daemon.open_session(SessionKind::Shell);
        let kept = session.quarantine().await.unwrap();
        let shown = kept.iter().find(|item| item.kind == QuarantineKind::Team).unwrap();
        let on_disk = |directory: &Path| {
            use std::os::unix::fs::MetadataExt;
            let files = fs::read_dir(directory).unwrap();
            files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum::<u64>()
        };
        assert_eq!(shown.bytes, on_disk(&mail) + on_disk(&team));
        // A team of the same name that is in use is not touched.
        session.create_team(crew(), &quiet).await.unwrap();
        assert_eq!(session.discard("team:crew").await.unwrap(), shown.id);
        assert!(!mail.exists() && !team.exists());
        assert!(only_entry(&dir.path().join("teams")).join("team.json").exists());
        assert!(session.team_info("crew").is_ok());
    });
}
