//! Tests of the mail store: delivery to several members, and mail taken over from an older ledger.

use std::fs;

use agentiso_core::team::{AgentStatus, MAX_CONTENT, TaskStep};

use super::*;
use crate::ledger::LedgerDocument;

fn document() -> LedgerDocument {
    serde_json::from_str(include_str!("../../tests/fixtures/ledger-v4-teams.json")).unwrap()
}

fn web() -> TeamName {
    TeamName::parse("web").unwrap()
}

fn role(name: &str) -> RoleName {
    RoleName::parse(name).unwrap()
}

fn message(to: &str, message_type: &str, content: &str) -> Message {
    Message {
        message_id: Uuid::new_v4(),
        from: "ann".to_owned(),
        to: to.to_owned(),
        content: content.to_owned(),
        message_type: message_type.to_owned(),
        timestamp: Timestamp::UNIX_EPOCH,
    }
}

struct TestMail {
    store: MailStore,
    dir: tempfile::TempDir,
}

impl TestMail {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { store: MailStore::open(dir.path().join("mail"), &mut Teams::default()).unwrap(), dir }
    }

    fn slot(&self, name: &str) -> Arc<Slot> {
        self.store.slot(&web(), Timestamp::UNIX_EPOCH, &role(name))
    }

    fn to(&self, names: &[&str]) -> Vec<(RoleName, Arc<Slot>)> {
        names.iter().map(|name| (role(name), self.slot(name))).collect()
    }

    async fn received(&self, name: &str) -> Vec<String> {
        let taken = self.slot(name).run(|inbox| inbox.take(usize::MAX)).await.unwrap();
        taken.messages.into_iter().map(|message| message.content).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("mail/web.0/{name}.log"))
    }
}

#[test]
fn mail_of_an_earlier_ledger_is_moved_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mail");
    // Two starts on the same ledger: the first was killed before it could write another.
    for _ in 0..2 {
        let mut teams = document().teams;
        let store = MailStore::open(root.clone(), &mut teams).unwrap();
        let (name, team) = teams.find("web").unwrap();
        assert!(team.members.iter().all(|member| member.stored_messages.is_empty()));
        assert_eq!(team.members[1].pending_tasks, 1);
        assert_eq!(team.members[1].status, AgentStatus::Working);
        let hand = store.slot(name, team.created_at, &role("hand")).tasks_at_start();
        assert!(matches!(&hand[0].step, TaskStep::Running(job) if job.job == 7), "{hand:?}");
        let counts = count(&root, name, team.created_at, &role("lead")).unwrap();
        assert_eq!(counts, MailCounts { messages: 1, tasks: 0 });
    }
}

/// The ledger was made by the last version that kept mail in it; the inbox is the one that this version made of it.
const MADE_LEDGER: &str = include_str!("../../tests/fixtures/ledger-v4-team-made.json");
const MADE_INBOX: &[u8] = include_bytes!("../../tests/fixtures/mail-v1-made.log");
const MADE_AT: &str = "2026-11-18T09:39:48.685914555Z";

fn crew() -> TeamName {
    TeamName::parse("crew").unwrap()
}

#[test]
fn mail_of_a_real_older_ledger_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let ledger: LedgerDocument = serde_json::from_str(MADE_LEDGER).unwrap();
    let mut teams = ledger.teams;
    let store = MailStore::open(dir.path().into(), &mut teams).unwrap();
    let (_, team) = teams.find("crew").unwrap();
    assert_eq!(team.created_at, MADE_AT.parse().unwrap());
    let inbox = fs::read(path(dir.path(), &crew(), team.created_at, &role("lead"))).unwrap();
    assert_eq!(inbox, MADE_INBOX);
    let hand = store.slot(&crew(), team.created_at, &role("hand")).tasks_at_start();
    assert!(matches!(&hand[..], [Task { step: TaskStep::Running(job), .. }] if job.job == 1), "{hand:?}");
}

#[tokio::test]
async fn recorded_inbox_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let created_at = MADE_AT.parse().unwrap();
    let file = path(dir.path(), &crew(), created_at, &role("lead"));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, MADE_INBOX).unwrap();
    let store = MailStore::open(dir.path().into(), &mut Teams::default()).unwrap();
    let slot = store.slot(&crew(), created_at, &role("lead"));
    let taken = slot.run(|inbox| inbox.take(usize::MAX)).await.unwrap();
    let contents: Vec<_> = taken.messages.iter().map(|message| message.content.as_str()).collect();
    assert_eq!(contents, ["done ä\n\"quoted\"\u{1}", "to all"]);
    let result = &taken.results[0];
    let told = (result.task_id.as_str(), result.exit_code, result.stdout.as_str(), result.stderr.as_str());
    assert_eq!(told, ("t0", 3, "out\n", "err\n"));
}

#[tokio::test]
async fn refused_message_reaches_no_inbox() {
    let mail = TestMail::new();
    // The inbox is read before the file exists, so that only the write fails.
    assert!(mail.received("cy").await.is_empty());
    fs::create_dir_all(mail.file("bob").parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", mail.file("cy")).unwrap();
    let refused = deliver(mail.to(&["bob", "cy"]), message("*", "text", "x"), |_, _| ()).await.unwrap_err();
    assert!(matches!(refused, DeliverError::Store(MailStoreError::NoSpace { .. })), "{refused}");
    fs::remove_file(mail.file("cy")).unwrap();
    assert_eq!(fs::metadata(mail.file("bob")).unwrap().len(), 0);
    deliver(mail.to(&["bob", "cy"]), message("*", "text", "y"), |_, _| ()).await.unwrap();
    for name in ["bob", "cy"] {
        assert_eq!(mail.received(name).await, ["y"]);
    }
}

#[tokio::test]
async fn group_task_needs_room_in_every_inbox() {
    let mail = TestMail::new();
    let task = |to: &str| message(to, TASK_ASSIGNMENT, r#"{"task_id": "t", "command": "true"}"#);
    while deliver(mail.to(&["bob"]), task("bob"), |_, _| ()).await.is_ok() {}
    let refused = deliver(mail.to(&["bob", "cy"]), task("*"), |_, _| ()).await.unwrap_err();
    assert!(matches!(refused, DeliverError::Refused(MailError::TooManyTasks { .. })), "{refused}");
    let pending = mail.slot("cy").run(|inbox| Ok(inbox.pending().len())).await.unwrap();
    assert_eq!(pending, 0);
}

#[tokio::test]
async fn full_inbox_does_not_affect_other_inboxes() {
    let mail = TestMail::new();
    let long = "\u{1}".repeat(MAX_CONTENT);
    let mut displaced = 0;
    for _ in 0..40 {
        let sent = deliver(mail.to(&["bob"]), message("bob", "text", &long), |_, _| ()).await.unwrap();
        displaced += sent.1.displaced;
    }
    assert!(displaced > 20, "the sender is told: {displaced}");
    deliver(mail.to(&["cy"]), message("cy", "text", "x"), |_, _| ()).await.unwrap();
    assert_eq!(mail.received("cy").await, ["x"]);
}

#[tokio::test]
async fn inboxes_of_a_destroyed_team_are_gone() {
    let mail = TestMail::new();
    let held = mail.slot("bob");
    deliver(mail.to(&["bob"]), message("bob", "text", "old"), |_, _| ()).await.unwrap();
    mail.store.discard(&web(), Timestamp::UNIX_EPOCH, &[role("bob")]).await;
    assert!(!mail.file("bob").parent().unwrap().exists());
    let late = deliver(vec![(role("bob"), held)], message("bob", "text", "late"), |_, _| ()).await;
    assert!(matches!(late, Err(DeliverError::Store(MailStoreError::Closed))));
    assert!(!mail.file("bob").exists());
    let next = mail.store.slot(&web(), Timestamp::MAX, &role("bob"));
    assert!(next.run(|inbox| inbox.take(9)).await.unwrap().messages.is_empty());
}
