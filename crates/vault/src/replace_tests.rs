//! Other programs that change a note at the very moment when we do.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::lease::{self, Leased};
use crate::{NotePath, Replacement, Settings, Tag, Vault, VaultError, WriteMode};

struct Place {
    directory: tempfile::TempDir,
    vault: Vault,
    note: NotePath,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        path: directory.path().to_owned(),
        extensions: vec!["md".to_owned()],
        exclude_dirs: Vec::new(),
    };
    std::fs::write(directory.path().join("n.md"), "").unwrap();
    Place { vault: Vault::new(settings), note: NotePath::parse("n.md").unwrap(), directory }
}

impl Place {
    fn file(&self) -> PathBuf {
        self.directory.path().join("n.md")
    }

    fn append(&self, text: &str) {
        patiently(|| self.vault.write(&self.note, text, WriteMode::Append));
    }

    /// All lines that are anywhere: a conflict may have kept some beside the note.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.directory.path()).unwrap().flatten() {
            assert!(!entry.file_name().to_string_lossy().ends_with(".tmp"), "an unfinished note was left");
            lines.extend(std::fs::read_to_string(entry.path()).unwrap().lines().map(str::to_owned));
        }
        lines
    }
}

fn leases_work(place: &Path) -> bool {
    let file = File::open(place).unwrap();
    matches!(lease::no_writers(&file), Leased::Held(_))
}

const ROUNDS: usize = 150;

/// The note grows with every round of the other program, which makes more of them on a slow disk.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// Somebody else may be quicker for a while; a client then tries again.
fn patiently<T>(mut change: impl FnMut() -> Result<T, VaultError>) -> T {
    loop {
        match change() {
            Err(error) if error.retryable() => std::thread::yield_now(),
            done => return done.unwrap(),
        }
    }
}

/// Tells the other program to end, also when the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does something again and again, and says how often it was done.
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
fn no_line_of_a_program_that_writes_into_the_note_is_lost() {
    let place = place();
    if !leases_work(&place.file()) {
        agentiso_testkit::record_skip("the file system of the temporary directory has no leases");
        return;
    }
    let done = AtomicBool::new(false);
    let (ours, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut count = 0u64;
            while !done.load(Ordering::Relaxed) {
                // As `echo line >> n.md` does it.
                let mut file = OpenOptions::new().append(true).open(place.file()).unwrap();
                file.write_all(format!("theirs {count}\n").as_bytes()).unwrap();
                drop(file);
                count += 1;
                // Somebody who never lets go of the note keeps everybody else from it; see the test about that.
                std::thread::park_timeout(Duration::from_micros(100 + count % 7 * 150));
            }
            count
        });
        let ended = Ended(&done);
        let ours = rounds(|round| place.append(&format!("ours {round}\n")));
        drop(ended);
        (ours, other.join().unwrap())
    });
    let lines = place.lines();
    for round in 0..ours {
        assert!(lines.contains(&format!("ours {round}")), "our line {round} is gone");
    }
    let seen: std::collections::HashSet<&String> = lines.iter().collect();
    for count in 0..theirs {
        assert!(seen.contains(&format!("theirs {count}")), "their line {count} of {theirs} is gone");
    }
}

#[test]
fn no_version_of_a_program_that_replaces_the_note_is_lost() {
    let place = place();
    let done = AtomicBool::new(false);
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut count = 0u64;
            while !done.load(Ordering::Relaxed) {
                // As editors do it. It may lose our lines, which it does not know of, but none of its own.
                let text = std::fs::read_to_string(place.file()).unwrap();
                let new = place.directory.path().join("editor~");
                std::fs::write(&new, format!("{text}theirs {count}\n")).unwrap();
                std::fs::rename(&new, place.file()).unwrap();
                count += 1;
                std::thread::park_timeout(Duration::from_micros(100 + count % 7 * 150));
            }
            count
        });
        let ended = Ended(&done);
        rounds(|round| {
            place.append(&format!("ours {round}\n"));
            patiently(|| place.vault.change_frontmatter(&place.note, &[("round", Some(json!(round)))]));
        });
        drop(ended);
        other.join().unwrap()
    });
    let lines = place.lines();
    let seen: std::collections::HashSet<&String> = lines.iter().collect();
    for count in 0..theirs {
        assert!(seen.contains(&format!("theirs {count}")), "their line {count} of {theirs} is gone");
    }
}

#[test]
fn a_note_that_is_deleted_and_made_again_all_the_time_is_never_half_of_anything() {
    let place = place();
    // On a busy host all may be over before the other program has its first turn.
    std::fs::write(place.file(), "whole\n").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = std::fs::remove_file(place.file());
                let new = place.directory.path().join("editor~");
                std::fs::write(&new, "whole\n").unwrap();
                std::fs::rename(&new, place.file()).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            match place.vault.replace(&place.note, &Replacement::plain("whole\n", "whole\nmore\n")) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code(), "not_found", "{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    let text = std::fs::read_to_string(place.file()).unwrap();
    // As often as we came before the other program did.
    let more = text.strip_prefix("whole\n").map(|more| more.replace("more\n", ""));
    assert_eq!(more.as_deref(), Some(""), "{text:?}");
}

#[test]
fn a_program_that_keeps_the_note_open_for_writing_makes_a_change_fail_and_loses_nothing() {
    let place = place();
    if !leases_work(&place.file()) {
        agentiso_testkit::record_skip("the file system of the temporary directory has no leases");
        return;
    }
    let mut held = OpenOptions::new().append(true).open(place.file()).unwrap();
    let error = place.vault.write(&place.note, "ours\n", WriteMode::Append).unwrap_err();
    assert!(error.code() == "busy" && error.retryable(), "{error}");
    held.write_all(b"theirs\n").unwrap();
    drop(held);
    place.append("ours\n");
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), "theirs\nours\n");
}

#[test]
fn many_of_us_change_one_note_and_all_changes_are_there() {
    let place = place();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let place = &place;
            scope.spawn(move || {
                // Each as another daemon on the same directory would.
                let vault = Vault::new(place.vault.settings().clone());
                let tag = Tag::parse(&format!("tag{thread}")).unwrap();
                for round in 0..6 {
                    let line = format!("line {thread} {round}\n");
                    vault.write(&place.note, &line, WriteMode::Append).unwrap();
                    let key = format!("key{thread}-{round}");
                    vault.change_frontmatter(&place.note, &[(&key, Some(json!(round)))]).unwrap();
                }
                assert!(vault.add_tag(&place.note, &tag).unwrap());
            });
        }
    });
    let text = place.vault.read(&place.note).unwrap();
    let keys = place.vault.frontmatter(&place.note).unwrap().unwrap();
    assert_eq!(keys.len(), 8 * 6 + 1);
    assert_eq!(place.vault.tags(&place.note).unwrap().len(), 8);
    assert_eq!(text.lines().filter(|line| line.starts_with("line ")).count(), 8 * 6);
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 1, "nothing else is left");
}
