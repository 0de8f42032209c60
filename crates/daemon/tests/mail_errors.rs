//! Tests that a failed write of a team's mail is reported to the caller and loses nothing.
#![expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use agentiso_core::team::{RoleName, TeamName};
use agentiso_daemon::mail::Inbox;
use agentiso_daemon::{Progress, RoleRequest, Session, SessionKind, TeamRequest};
use agentiso_sys::fault;
use support::{FakeHost, open};

/// The test that runs itself once more, because faults are set for a whole process.
const TEST_NAME: &str = "failed_mail_writes_lose_nothing";

/// Set for the process that gets the faults; its value is the directory of that process.
const ROOT: &str = "AGENTISO_TEST_ROOT";

fn crew() -> TeamRequest {
    let role = |name| RoleRequest {
        name: RoleName::parse(name).unwrap(),
        role: "works".to_owned(),
        skills: Vec::new(),
        description: None,
    };
    let roles: Vec<_> = ["ann", "bob", "cy"].map(role).into();
    TeamRequest { name: TeamName::parse("crew").unwrap(), max_vms: 3, roles, golden: None, parent: None }
}

/// The messages in the file of `bob`, as another daemon would read them.
fn stored(root: &Path) -> Vec<String> {
    let team = std::fs::read_dir(root.join("mail")).unwrap().next().unwrap().unwrap().path();
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("bob.log");
    std::fs::copy(team.join("bob.log"), &path).unwrap();
    let messages = Inbox::at(path).lend().unwrap();
    messages.into_iter().map(|message| message.content).collect()
}

async fn received(session: &Session, who: &str) -> Vec<String> {
    let received = session.receive_messages("crew", who, 100).await.unwrap();
    received.messages.into_iter().map(|message| message.content).collect()
}

/// Sends and receives while writes fail. Returns the acknowledged messages, which are therefore in the inbox of
/// `bob`.
async fn send_with_faults(root: &Path, host: &Arc<FakeHost>, order: &Path) -> Vec<String> {
    let daemon = open(root, host).await;
    let session = daemon.open_session(SessionKind::Client);
    session.create_team(crew(), &Progress::silent()).await.unwrap();
    let send =
        |to: &'static str, text: String| session.send_message("crew", "ann", to, text, "text".to_owned());
    let mut kept = vec!["first".to_owned()];
    send("bob", kept[0].clone()).await.unwrap();
    for (fault, place, code) in [
        ("ENOSPC", "mail.write", "no_space"),
        ("EIO", "mail.write", "mail_not_stored"),
        ("ENOSPC", "mail.sync", "no_space"),
        ("EIO", "mail.sync", "mail_not_stored"),
    ] {
        let text = format!("{fault} {place}");
        let order_fault = || std::fs::write(order, &text).unwrap();
        for to in ["bob", "*"] {
            order_fault();
            let refused = send(to, format!("{text} to {to}")).await.unwrap_err();
            assert!(!order.exists(), "{text}: nothing came to it");
            assert_eq!(refused.code(), code, "{text}: {refused}");
            assert!(refused.to_string().contains(".log") && refused.retryable(), "{text}: {refused}");
            assert_eq!(stored(root), kept, "{text}");
        }
        order_fault();
        let refused = session.receive_messages("crew", "bob", 100).await.unwrap_err();
        assert_eq!(refused.code(), code, "{text}: {refused}");
        assert_eq!(stored(root), kept, "{text}");
        kept.push(format!("after {text}"));
        send("bob", format!("after {text}")).await.unwrap();
    }
    daemon.shutdown().await;
    kept
}

/// Checks that another daemon reads exactly the acknowledged messages.
async fn check_mail(root: &Path, order: &Path) {
    let host = FakeHost::new(root);
    let kept = send_with_faults(root, &host, order).await;
    let daemon = open(root, &host).await;
    let session = daemon.open_session(SessionKind::Client);
    assert_eq!(received(&session, "bob").await, kept);
    assert_eq!(received(&session, "cy").await, [""; 0]);
    daemon.shutdown().await;
    let team = std::fs::read_dir(root.join("mail")).unwrap().next().unwrap().unwrap().path();
    for entry in std::fs::read_dir(team).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.ends_with(".log"), "{name} is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_mail_writes_lose_nothing() {
    if let (Some(root), Some(order)) = (std::env::var_os(ROOT), std::env::var_os(fault::FILE)) {
        return check_mail(Path::new(&root), Path::new(&order)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([TEST_NAME, "--exact", "--nocapture"]).env(ROOT, dir.path().join("data"));
    assert!(again.env(fault::FILE, dir.path().join("fault")).status().unwrap().success());
}
