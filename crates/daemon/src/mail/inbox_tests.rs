//! Tests of one inbox: the messages it keeps, those it displaces, and the effects of a damaged or truncated file.

use std::fs;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn open(path: &Path) -> Inbox {
    let mut inbox = Inbox::at(path.into());
    inbox.load().unwrap();
    inbox
}

fn message(from: &str, content: &str) -> Message {
    Message {
        message_id: Uuid::new_v4(),
        from: from.to_owned(),
        to: "bob".to_owned(),
        content: content.to_owned(),
        message_type: "text".to_owned(),
        timestamp: Timestamp::UNIX_EPOCH,
    }
}

fn deliver(inbox: &mut Inbox, message: &Message) {
    inbox.put(message).unwrap();
}

fn assign(inbox: &mut Inbox, task_id: &str) -> Uuid {
    let content = format!(r#"{{"task_id": "{task_id}", "command": "secret"}}"#);
    let assignment = Assignment::parse(&content).unwrap();
    let message_id = Uuid::new_v4();
    inbox.enter(&[Entry::Task { message_id, assignment: &assignment }]).unwrap();
    message_id
}

fn contents(inbox: &mut Inbox) -> Vec<String> {
    inbox.take(usize::MAX).unwrap().messages.into_iter().map(|message| message.content).collect()
}

struct TestDir {
    root: tempfile::TempDir,
}

impl TestDir {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("web.0/bob.log")
    }

    fn size(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |metadata| metadata.len())
    }

    fn files(&self) -> usize {
        fs::read_dir(self.path().parent().unwrap()).unwrap().count()
    }
}

#[test]
fn messages_are_received_once_across_restarts() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    for content in ["one", "two", "three"] {
        deliver(&mut inbox, &message("ann", content));
    }
    let mut inbox = open(&dir.path());
    let first = inbox.take(1).unwrap();
    assert_eq!(first.messages[0].content, "one");
    let mut inbox = open(&dir.path());
    assert_eq!(contents(&mut inbox), ["two", "three"]);
    assert_eq!(contents(&mut open(&dir.path())), [""; 0]);
    assert_eq!(dir.size(), 0, "nothing waits, so nothing is kept");
}

#[test]
fn tasks_go_on_after_a_restart() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    let (one, two) = (assign(&mut inbox, "t1"), assign(&mut inbox, "t2"));
    assert_eq!(inbox.begin().unwrap().unwrap().message_id, one);
    let job = UnderWay { job: 7, vm: "m".to_owned(), deadline: Timestamp::UNIX_EPOCH };
    inbox.task_runs(one, &job).unwrap();
    let mut inbox = open(&dir.path());
    assert_eq!(inbox.pending()[0].step, TaskStep::Running(job));
    assert!(inbox.end(one, Outcome { stdout: "out".to_owned(), ..Outcome::default() }).unwrap());
    assert!(!inbox.end(one, Outcome::default()).unwrap(), "only once");
    let mut inbox = open(&dir.path());
    assert_eq!(inbox.last_ended(), Some(true));
    let begun = inbox.begin().unwrap().unwrap();
    assert_eq!((begun.message_id, begun.assignment.command.as_str()), (two, "secret"));
    let taken = inbox.take(9).unwrap();
    assert_eq!((taken.results[0].stdout.as_str(), taken.pending, taken.results_left), ("out", 1, 0));
    assert_eq!(open(&dir.path()).pending()[0].step, TaskStep::Starting);
}

#[test]
fn inbox_file_size_stays_bounded() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    let long = "\u{1}".repeat(agentiso_core::team::MAX_CONTENT);
    let mut largest = 0;
    for number in 0..200 {
        deliver(&mut inbox, &message(if number % 3 == 0 { "ann" } else { "eve" }, &long));
        largest = largest.max(dir.size());
    }
    assert!(largest < 2 * MAX_INBOX_BYTES as u64, "{largest}");
    assert_eq!(dir.files(), 1, "a rewrite leaves nothing");
    let waiting = open(&dir.path()).contents.mail.len();
    assert_eq!(contents(&mut inbox).len(), waiting);
    assert!(waiting >= 15 && dir.size() == 0, "{waiting}");
}

#[test]
fn compaction_drops_only_commands_of_begun_tasks() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    let task = assign(&mut inbox, "t");
    inbox.begin().unwrap().unwrap();
    deliver(&mut inbox, &message("ann", "kept"));
    inbox.compact().unwrap();
    let text = String::from_utf8_lossy(&fs::read(dir.path()).unwrap()).into_owned();
    assert!(text.contains("kept") && !text.contains("secret"), "{text}");
    let mut inbox = open(&dir.path());
    assert_eq!((inbox.pending()[0].message_id, inbox.pending()[0].step.clone()), (task, TaskStep::Starting));
    assert_eq!(contents(&mut inbox), ["kept"]);
}

#[test]
fn interrupted_compaction_loses_no_message() {
    let dir = TestDir::new();
    deliver(&mut open(&dir.path()), &message("ann", "kept"));
    fs::write(dir.path().with_extension("log.tmp"), b"agentiso ma").unwrap();
    assert_eq!(contents(&mut open(&dir.path())), ["kept"]);
    assert_eq!(dir.files(), 1);
}

#[test]
fn truncated_inbox_keeps_its_whole_entries() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    let mut ends = Vec::new();
    for content in ["one", "two", "three"] {
        deliver(&mut inbox, &message("ann", content));
        ends.push(dir.size());
    }
    let whole = fs::read(dir.path()).unwrap();
    for cut in 0..=whole.len() {
        fs::write(dir.path(), &whole[..cut]).unwrap();
        let expected = ends.iter().filter(|end| **end <= cut as u64).count();
        let mut inbox = open(&dir.path());
        assert_eq!(inbox.contents.mail.len(), expected, "{cut}");
        deliver(&mut inbox, &message("ann", "next"));
        assert_eq!(open(&dir.path()).contents.mail.len(), expected + 1, "{cut}");
        assert_eq!(dir.files(), 1, "{cut}: a cut is no damage");
    }
}

#[test]
fn damaged_inbox_keeps_its_readable_part() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    deliver(&mut inbox, &message("ann", "one"));
    let end = dir.size();
    deliver(&mut inbox, &message("ann", "two"));
    let mut bytes = fs::read(dir.path()).unwrap();
    bytes[end as usize + 30] ^= 1;
    fs::write(dir.path(), &bytes).unwrap();
    assert_eq!(contents(&mut open(&dir.path())), ["one"]);
    let mut kept = fs::read_dir(dir.path().parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.find(|path| path.to_string_lossy().contains("damaged")).unwrap();
    assert_eq!(fs::read(kept).unwrap(), bytes);
}

#[test]
fn foreign_files_are_kept_aside() {
    let dir = TestDir::new();
    fs::create_dir_all(dir.path().parent().unwrap()).unwrap();
    fs::write(dir.path(), "something else entirely").unwrap();
    let mut inbox = open(&dir.path());
    deliver(&mut inbox, &message("ann", "one"));
    assert_eq!(contents(&mut open(&dir.path())), ["one"]);
    assert_eq!(dir.files(), 2);
}

#[test]
fn full_disk_leaves_the_inbox_unchanged() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    fs::create_dir_all(dir.path().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path()).unwrap();
    let refused = inbox.write_message(&message("ann", "one")).unwrap_err();
    assert!(matches!(refused, MailStoreError::NoSpace { .. }), "{refused}");
    fs::remove_file(dir.path()).unwrap();
    deliver(&mut inbox, &message("ann", "two"));
    assert_eq!(contents(&mut open(&dir.path())), ["two"]);
}

#[test]
fn device_file_is_refused() {
    let dir = TestDir::new();
    fs::create_dir_all(dir.path().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path()).unwrap();
    let mut inbox = Inbox::at(dir.path());
    assert!(matches!(inbox.load(), Err(MailStoreError::Io { .. })));
    fs::remove_file(dir.path()).unwrap();
    inbox.load().unwrap();
}

#[test]
fn lent_messages_stay_until_they_are_removed() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    deliver(&mut inbox, &message("ann", "one"));
    let before = dir.size();
    let lent = inbox.lend().unwrap();
    assert_eq!((lent.len(), inbox.lend().unwrap().len(), inbox.take(9).unwrap().messages.len()), (1, 0, 0));
    assert_eq!(dir.size(), before, "asking writes nothing");
    assert_eq!(open(&dir.path()).contents.mail.len(), 1);
    inbox.remove(&[lent[0].message_id]).unwrap();
    assert_eq!(open(&dir.path()).contents.mail.len(), 0);
}

#[test]
fn damaged_entries_are_kept_aside_once() {
    let dir = TestDir::new();
    let mut inbox = open(&dir.path());
    for content in ["one", "two"] {
        deliver(&mut inbox, &message("ann", content));
    }
    let mut bytes = fs::read(dir.path()).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(dir.path(), bytes).unwrap();
    for _ in 0..20 {
        inbox.lend().unwrap();
    }
    assert_eq!(dir.files(), 2, "the inbox and one copy");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn inbox_opens_on_arbitrary_bytes(bytes: Vec<u8>, magic: bool) {
        let dir = TestDir::new();
        fs::create_dir_all(dir.path().parent().unwrap()).unwrap();
        let begin = if magic { MAGIC } else { b"" };
        fs::write(dir.path(), [begin, &bytes].concat()).unwrap();
        let mut inbox = open(&dir.path());
        deliver(&mut inbox, &message("ann", "one"));
        prop_assert_eq!(contents(&mut open(&dir.path())), ["one"]);
    }
}
