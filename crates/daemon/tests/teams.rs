//! Tests for teams: requests refused before a VM is made, the states of a team, and the task board's effect on
//! members.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentiso_core::team::{AgentStatus, RoleName, TeamName, TeamState};
use agentiso_daemon::{Daemon, OpError, Progress, RoleRequest, Session, SessionKind, TeamRequest};
use agentiso_vault::Vault;
use agentiso_vault::board::{Board, BoardError, NewTask};
use support::{FakeHost, FakeVms, Fault, config, eventually};
use tokio::sync::mpsc;

fn team() -> TeamName {
    TeamName::parse("alpha").unwrap()
}

fn of(roles: &[&str]) -> TeamRequest {
    let role = |name: &&str| RoleRequest {
        name: RoleName::parse(name).unwrap(),
        role: "works".to_owned(),
        skills: Vec::new(),
        description: None,
    };
    let roles: Vec<_> = roles.iter().map(role).collect();
    TeamRequest { name: team(), max_vms: roles.len() as u32, roles, golden: None, parent: None }
}

fn status(session: &Session) -> AgentStatus {
    session.team_info("alpha").unwrap().members[0].status
}

fn claim(vault: &Vault) -> Result<(), BoardError> {
    let board = Board::of_team(vault, "alpha")?;
    let task = NewTask { title: "wash up".to_owned(), ..NewTask::default() };
    let made = board.create(&task)?;
    assert!(board.claim(&made.id, "lead")?);
    Ok(())
}

#[tokio::test]
async fn team_beyond_the_vm_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(FakeVms(FakeHost::new(dir.path())));
    let limited = config(dir.path(), "[resources]\nmax_total_vms = 2\n");
    let daemon = Daemon::open_with(limited, host).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    let refused = session.create_team(of(&["a", "b", "c"]), &Progress::silent()).await.unwrap_err();
    assert!(matches!(refused, OpError::TooManyVms { used: 0, limit: 2 }), "{refused}");
    session.create_team(of(&["a", "b"]), &Progress::silent()).await.unwrap();
    daemon.shutdown().await;
}

#[tokio::test]
async fn team_state_is_shown_from_create_to_destroy() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host.clone()))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    let shown = || session.team_info("alpha").map(|info| (info.state, info.members[0].status));

    let quiet = Progress::silent();
    host.inject(Fault::BootHangsBeforeSpawn);
    tokio::select! {
        made = session.create_team(of(&["lead"]), &quiet) => panic!("{made:?}"),
        () = host.hanging.notified() => {}
    }
    assert_eq!(shown().unwrap(), (TeamState::Creating, AgentStatus::Initializing));
    // The call was dropped, so the team is undone.
    eventually("that it is gone", || shown().is_err()).await;

    session.create_team(of(&["lead"]), &quiet).await.unwrap();
    assert_eq!(shown().unwrap(), (TeamState::Ready, AgentStatus::Ready));

    // A team that could not be fully destroyed stays on its way out and accepts no child team.
    host.inject(Fault::EraseFails);
    session.destroy_team("alpha", false).await.unwrap_err();
    assert_eq!(shown().unwrap().0, TeamState::Completing);
    let mut child = of(&["child"]);
    (child.name, child.parent) = (TeamName::parse("beta").unwrap(), Some(team()));
    let refused = session.create_team(child, &quiet).await.unwrap_err();
    assert_eq!(refused.code(), "team_going", "{refused}");
    session.destroy_team("alpha", false).await.unwrap();
    assert!(session.teams().is_empty(), "what is destroyed is shown nowhere");
    daemon.shutdown().await;
}

#[tokio::test]
async fn team_vms_are_destroyed_concurrently() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::new(dir.path());
    let daemon = Daemon::open_with(config(dir.path(), ""), Arc::new(FakeVms(host.clone()))).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    let eight = ["a", "b", "c", "d", "e", "f", "g", "h"];
    session.create_team(of(&eight), &Progress::silent()).await.unwrap();
    *host.kill_takes.lock().unwrap() = Duration::from_millis(500);
    let begun = Instant::now();
    session.destroy_team("alpha", false).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "one after the other: {:?}", begun.elapsed());
    assert!(host.processes().is_empty());
    daemon.shutdown().await;
}

#[tokio::test]
async fn board_change_outlives_its_cancelled_call() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    let vault = format!("[vault]\nenabled = true\npath = \"{}\"\n", notes.display());
    let host = Arc::new(FakeVms(FakeHost::new(dir.path())));
    let daemon = Daemon::open_with(config(dir.path(), &vault), host).await.unwrap();
    let session = daemon.open_session(SessionKind::Client);
    session.create_team(of(&["lead"]), &Progress::silent()).await.unwrap();
    assert_eq!(status(&session), AgentStatus::Ready);

    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let slowly = move |vault: &Vault| {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
        claim(vault).map_err(OpError::from)
    };
    tokio::select! {
        biased;
        changed = session.change_board(team(), slowly) => panic!("{changed:?}"),
        _begun = has_begun.recv() => {}
    }
    // The call is cancelled; its change of the board continues.
    go.send(()).unwrap();
    eventually("that the member works", || status(&session) == AgentStatus::Working).await;
    daemon.shutdown().await;
}
