//! Tests for the metrics of the daemon, as a client reads them.

mod support;

use agentiso_core::team::{RoleName, TeamName};
use agentiso_daemon::{ExecSpec, Progress, RoleRequest, Session, SessionKind, TeamRequest};
use support::{FakeHost, by_name, named, open, run_command};

/// The value of a series; `None` if the series does not exist.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

fn team(name: &str) -> TeamRequest {
    let role = |name: &str| RoleRequest {
        name: RoleName::parse(name).unwrap(),
        role: "works".to_owned(),
        skills: Vec::new(),
        description: None,
    };
    TeamRequest {
        name: TeamName::parse(name).unwrap(),
        roles: vec![role("lead"), role("hand")],
        max_vms: 4,
        golden: None,
        parent: None,
    }
}

async fn send(session: &Session, message_type: &str) {
    let sent = session.send_message("alpha", "lead", "hand", "hi".to_owned(), message_type.to_owned()).await;
    sent.unwrap();
}

#[tokio::test]
async fn every_metric_family_is_exposed_from_start() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = open(dir.path(), &FakeHost::new(dir.path())).await;
    let text = daemon.open_session(SessionKind::Shell).metrics().unwrap();
    for (family, kind) in [
        ("agentiso_workspaces_total", "gauge"),
        ("agentiso_vm_boot_duration_seconds", "histogram"),
        ("agentiso_exec", "counter"),
        ("agentiso_exec_duration_seconds", "histogram"),
        ("agentiso_errors", "counter"),
        ("agentiso_teams_total", "gauge"),
        ("agentiso_team_messages", "counter"),
        ("agentiso_merge", "counter"),
        ("agentiso_merge_duration_seconds", "histogram"),
    ] {
        assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{family}\n{text}");
    }
    assert_eq!(value(&text, "agentiso_merge_total{strategy=\"sequential\",result=\"success\"}"), Some(0.0));
    assert!(text.ends_with("# EOF\n"));
    daemon.shutdown().await;
}

#[tokio::test]
async fn metrics_count_events_of_all_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = open(dir.path(), &FakeHost::new(dir.path())).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create(named("web"), &Progress::silent()).await.unwrap();
    session.stop(&by_name("web")).await.unwrap();
    session.start(&by_name("web"), &Progress::silent()).await.unwrap();
    run_command(&session, "web", "hi").await.unwrap();
    let guest = session.guest(&by_name("web")).await.unwrap();
    assert_eq!(guest.exec(ExecSpec::shell("fail")).await.unwrap().exit_code, Some(3));
    session.count_error("workspace_not_found");
    session.create_team(team("alpha"), &Progress::silent()).await.unwrap();
    send(&session, "text").await;
    send(&session, "gossip").await;
    drop((guest, session));

    let watcher = daemon.open_session(SessionKind::Shell);
    let text = watcher.metrics().unwrap();
    for (series, expected) in [
        ("agentiso_workspaces_total{state=\"running\"}", 3.0),
        ("agentiso_workspaces_total{state=\"stopped\"}", 0.0),
        // One was created, one was started, and two are of the team.
        ("agentiso_vm_boot_duration_seconds_count", 4.0),
        ("agentiso_exec_total{result=\"success\"}", 1.0),
        ("agentiso_exec_total{result=\"failure\"}", 1.0),
        ("agentiso_exec_duration_seconds_count", 2.0),
        ("agentiso_errors_total{error_type=\"workspace_not_found\"}", 1.0),
        ("agentiso_teams_total{state=\"Ready\"}", 1.0),
        ("agentiso_team_messages_total{team=\"alpha\",message_type=\"text\"}", 1.0),
        ("agentiso_team_messages_total{team=\"alpha\",message_type=\"other\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    let took = value(&text, "agentiso_exec_duration_seconds_sum").unwrap();
    assert!(took < 60.0, "what the guest says about time does not count: {took}");
    let health = watcher.health();
    assert_eq!((health.status.as_str(), health.workspaces.running), ("ok", 3));

    watcher.destroy_team("alpha", false).await.unwrap();
    let text = watcher.metrics().unwrap();
    assert!(!text.contains("alpha"), "{text}");
    assert_eq!(value(&text, "agentiso_teams_total{state=\"Ready\"}"), Some(0.0));
    daemon.shutdown().await;
}
