//! Untrusted inbox files for their reader: entries before a damage must not be lost, reading twice must give the same,
//! and a message that is added afterwards must be read exactly once.
//!
//! The first byte of the input decides how the rest becomes a file: unchanged; after two valid messages; or as pairs of
//! head and body, each pair after its lengths, in frames with valid checksums. The format is implemented here a second
//! time, so that a change of it is noticed.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use agentiso_core::team::{MAX_CONTENT, Message, Outcome, Task};
use agentiso_daemon::mail::Inbox;
use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"agentiso mail 1\n";

/// Two lengths and two checksums, four bytes each.
const PREFIX: usize = 16;

static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("agentiso-fuzz-mail-{}", std::process::id())));

/// Two messages, and the file that holds them.
static WHOLE: LazyLock<(Vec<Message>, Vec<u8>)> = LazyLock::new(|| {
    let messages = vec![message(1, "first"), message(2, "second \u{1}\n\"ä")];
    let file = fresh();
    for message in &messages {
        Inbox::at(file.clone()).put(message).expect("it is stored");
    }
    let bytes = fs::read(&file).expect("the file is there");
    (messages, bytes)
});

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else { return };
    let (kept, whole) = &*WHOLE;
    let content = match form % 3 {
        0 => bytes.to_vec(),
        1 => [whole, bytes].concat(),
        _ => [MAGIC, &frames(bytes)].concat(),
    };
    let file = fresh();
    fs::write(&file, content).expect("the file is written");
    let (found, tasks) = look(&file);
    assert_eq!(look(&file), (found.clone(), tasks.clone()), "the second reading differs");
    if form % 3 == 1 && !begins_with_a_frame(bytes) {
        assert_eq!((&found, tasks.len()), (kept, 0), "what was before the damage");
    }
    let text = String::from_utf8_lossy(bytes);
    let text = &text[..text.floor_char_boundary(MAX_CONTENT)];
    // An id that the input cannot contain, because ids must be unique.
    let next = message(crc32fast::hash(data), text);
    Inbox::at(file.clone()).put(&next).expect("it is stored");
    assert_eq!(look(&file).0.last(), Some(&next), "what was written is read");
    do_all(&file);
    let mut inbox = Inbox::at(file.clone());
    assert!(!inbox.take(usize::MAX).expect("it is read").messages.is_empty());
    let left = Inbox::at(file.clone()).take(usize::MAX).expect("it is read");
    assert!(left.messages.is_empty() && left.results.is_empty(), "{left:?} was taken before");
});

/// Carries out the tasks that can start. Each must start exactly once.
fn do_all(file: &Path) {
    let mut left = look(file).1.len();
    let mut inbox = Inbox::at(file.into());
    while let Some(task) = inbox.begin().expect("it is written down") {
        left = left.checked_sub(1).expect("no more begins than there is");
        let outcome = Outcome { stdout: task.assignment.command, ..Outcome::default() };
        assert!(inbox.end(task.message_id, outcome).expect("it is written down"), "it was under way");
    }
    assert_eq!(look(file).1, inbox.pending(), "memory and file differ");
}

/// The messages and tasks in a file, as another daemon would find them.
fn look(file: &Path) -> (Vec<Message>, Vec<Task>) {
    let mut inbox = Inbox::at(file.into());
    let messages = inbox.lend().expect("it is read");
    (messages, inbox.pending().to_vec())
}

fn message(number: u32, content: &str) -> Message {
    Message {
        message_id: format!("{number:08x}-0000-4000-8000-000000000000").parse().expect("an id"),
        from: "ann".to_owned(),
        to: "bob".to_owned(),
        content: content.to_owned(),
        message_type: "text".to_owned(),
        timestamp: "2026-03-01T12:00:00Z".parse().expect("a time"),
    }
}

/// The path of a file in an empty directory.
fn fresh() -> PathBuf {
    let dir = DIR.join("team.0");
    let _not_there_the_first_time = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory to work in");
    dir.join("bob.log")
}

/// Heads and bodies as frames. The rest of the input is appended unchanged.
fn frames(mut rest: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((lengths, after)) = rest.split_first_chunk::<4>() {
        let [a, b, c, d] = *lengths;
        let (head, body) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let Some((payload, after)) = after.split_at_checked(usize::from(head) + usize::from(body)) else {
            break;
        };
        let lengths = [u32::from(head).to_le_bytes(), u32::from(body).to_le_bytes()].concat();
        all.extend_from_slice(&lengths);
        all.extend_from_slice(&crc32fast::hash(&lengths).to_le_bytes());
        all.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        all.extend_from_slice(payload);
        rest = after;
    }
    all.extend_from_slice(rest);
    all
}

fn begins_with_a_frame(bytes: &[u8]) -> bool {
    let number =
        |at: usize| bytes[at..at + 4].iter().rev().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
    if bytes.len() < PREFIX || crc32fast::hash(&bytes[..8]) != number(8) {
        return false;
    }
    let end = PREFIX + number(0) as usize + number(4) as usize;
    bytes.get(PREFIX..end).is_some_and(|payload| crc32fast::hash(payload) == number(12))
}
