//! Concurrent changes of a note by other programs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::lease::{self, Leased};
use crate::{NotePath, Replacement, Settings, Tag, Vault, VaultError, WriteMode};

struct Fixture {
    directory: tempfile::TempDir,
    vault: Vault,
    note: NotePath,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        path: directory.path().to_owned(),
        extensions: vec!["md".to_owned()],
        exclude_dirs: Vec::new(),
    };
    std::fs::write(directory.path().join("n.md"), "").unwrap();
    Fixture { vault: Vault::new(settings), note: NotePath::parse("n.md").unwrap(), directory }
}

impl Fixture {
    fn file(&self) -> PathBuf {
        self.directory.path().join("n.md")
    }

    fn append(&self, text: &str) {
        patiently(|| self.vault.write(&self.note, text, WriteMode::Append));
    }

    /// The lines of all files: a conflict may have kept some beside the note.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.directory.path()).unwrap().flatten() {
            assert!(!entry.file_name().to_string_lossy().ends_with(".tmp"), "an unfinished note was left");
            lines.extend(std::fs::read_to_string(entry.path()).unwrap().lines().map(str::to_owned));
        }
        lines
    }
}

fn leases_work(fixture: &Path) -> bool {
    let file = File::open(fixture).unwrap();
    matches!(lease::no_writers(&file), Leased::Held(_))
}

const ROUNDS: usize = 150;

/// The time limit of a test: the note grows with every round of the other program, and a slow disk allows more rounds.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// Retries while the note is busy, as a client does.
fn patiently<T>(mut change: impl FnMut() -> Result<T, VaultError>) -> T {
    loop {
        match change() {
            Err(error) if error.retryable() => std::thread::yield_now(),
            done => return done.unwrap(),
        }
    }
}

/// Stops the other program on drop, also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeats something and returns the number of rounds.
fn rounds(mut once: impl FnMut(usize)) -> usize {
    let began = Instant::now();
    let mut done = 0;
    while done < ROUNDS && began.elapsed() < LONG_ENOUGH {
        once(done);
        done += 1;
    }
    done
}

#[test]
fn lines_appended_by_others_are_not_lost() {
    let fixture = fixture();
    if !leases_work(&fixture.file()) {
        agentiso_testkit::record_skip("the file system of the temporary directory has no leases");
        return;
    }
    let done = AtomicBool::new(false);
    let (ours, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut count = 0u64;
            while !done.load(Ordering::Relaxed) {
                // As `echo line >> n.md` writes.
                let mut file = OpenOptions::new().append(true).open(fixture.file()).unwrap();
                file.write_all(format!("theirs {count}\n").as_bytes()).unwrap();
                drop(file);
                count += 1;
                // Pauses between writes: a program that keeps the note open blocks all others, which another test
                // covers.
                std::thread::park_timeout(Duration::from_micros(100 + count % 7 * 150));
            }
            count
        });
        let ended = StopOnDrop(&done);
        let ours = rounds(|round| fixture.append(&format!("ours {round}\n")));
        drop(ended);
        (ours, other.join().unwrap())
    });
    let lines = fixture.lines();
    for round in 0..ours {
        assert!(lines.contains(&format!("ours {round}")), "our line {round} is gone");
    }
    let seen: std::collections::HashSet<&String> = lines.iter().collect();
    for count in 0..theirs {
        assert!(seen.contains(&format!("theirs {count}")), "their line {count} of {theirs} is gone");
    }
}

#[test]
fn versions_of_other_editors_are_not_lost() {
    let fixture = fixture();
    let done = AtomicBool::new(false);
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut count = 0u64;
            while !done.load(Ordering::Relaxed) {
                // As editors save files. It may lose our lines, which it has not read, but none of its own.
                let text = std::fs::read_to_string(fixture.file()).unwrap();
                let new = fixture.directory.path().join("editor~");
                std::fs::write(&new, format!("{text}theirs {count}\n")).unwrap();
                std::fs::rename(&new, fixture.file()).unwrap();
                count += 1;
                std::thread::park_timeout(Duration::from_micros(100 + count % 7 * 150));
            }
            count
        });
        let ended = StopOnDrop(&done);
        rounds(|round| {
            fixture.append(&format!("ours {round}\n"));
            patiently(|| fixture.vault.change_frontmatter(&fixture.note, &[("round", Some(json!(round)))]));
        });
        drop(ended);
        other.join().unwrap()
    });
    let lines = fixture.lines();
    let seen: std::collections::HashSet<&String> = lines.iter().collect();
    for count in 0..theirs {
        assert!(seen.contains(&format!("theirs {count}")), "their line {count} of {theirs} is gone");
    }
}

#[test]
fn repeatedly_replaced_note_is_never_partial() {
    let fixture = fixture();
    // On a busy host the test may end before the other program runs at all.
    std::fs::write(fixture.file(), "whole\n").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = std::fs::remove_file(fixture.file());
                let new = fixture.directory.path().join("editor~");
                std::fs::write(&new, "whole\n").unwrap();
                std::fs::rename(&new, fixture.file()).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            match fixture.vault.replace(&fixture.note, &Replacement::plain("whole\n", "whole\nmore\n")) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code(), "not_found", "{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    let text = std::fs::read_to_string(fixture.file()).unwrap();
    // Our replacement may have been applied several times before the other program replaced the note.
    let more = text.strip_prefix("whole\n").map(|more| more.replace("more\n", ""));
    assert_eq!(more.as_deref(), Some(""), "{text:?}");
}

#[test]
fn note_held_open_for_writing_is_busy() {
    let fixture = fixture();
    if !leases_work(&fixture.file()) {
        agentiso_testkit::record_skip("the file system of the temporary directory has no leases");
        return;
    }
    let mut held = OpenOptions::new().append(true).open(fixture.file()).unwrap();
    let error = fixture.vault.write(&fixture.note, "ours\n", WriteMode::Append).unwrap_err();
    assert!(error.code() == "busy" && error.retryable(), "{error}");
    held.write_all(b"theirs\n").unwrap();
    drop(held);
    fixture.append("ours\n");
    assert_eq!(std::fs::read_to_string(fixture.file()).unwrap(), "theirs\nours\n");
}

#[test]
fn concurrent_changes_to_a_note_all_survive() {
    let fixture = fixture();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                // A separate vault per thread, as another daemon would have.
                let vault = Vault::new(fixture.vault.settings().clone());
                let tag = Tag::parse(&format!("tag{thread}")).unwrap();
                for round in 0..6 {
                    let line = format!("line {thread} {round}\n");
                    vault.write(&fixture.note, &line, WriteMode::Append).unwrap();
                    let key = format!("key{thread}-{round}");
                    vault.change_frontmatter(&fixture.note, &[(&key, Some(json!(round)))]).unwrap();
                }
                assert!(vault.add_tag(&fixture.note, &tag).unwrap());
            });
        }
    });
    let text = fixture.vault.read(&fixture.note).unwrap();
    let keys = fixture.vault.frontmatter(&fixture.note).unwrap().unwrap();
    assert_eq!(keys.len(), 8 * 6 + 1);
    assert_eq!(fixture.vault.tags(&fixture.note).unwrap().len(), 8);
    assert_eq!(text.lines().filter(|line| line.starts_with("line ")).count(), 8 * 6);
    assert_eq!(std::fs::read_dir(fixture.directory.path()).unwrap().count(), 1, "nothing else is left");
}
