//! Untrusted texts for their parsers: the configuration, messages on the control socket, the ledger and other files
//! beside disks, notes, and git's output. No parser may panic, and a parsed value must survive writing and parsing
//! again unchanged.
//!
//! The first byte of the input selects the parser.

#![no_main]

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use agentiso_core::config::{Config, UserDirs};
use agentiso_daemon::control::wire::{Reply, Request};
use agentiso_daemon::control::{Hello, HelloError, Welcome, read_hello, read_line};
use agentiso_daemon::ledger::{self, Description, Found, LedgerDocument, TeamDescription};
use agentiso_disk::qcow2_header::Header;
use agentiso_disk::{Qcow2Storage, VOLUME_FILE};
use agentiso_git::{BranchName, GitUrl, Status, redact};
use agentiso_image::manifest::ImageManifest;
use agentiso_vault::frontmatter;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("agentiso-fuzz-documents-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory to work in");
    dir
});

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 15 {
        0 => configuration(bytes),
        1 => same_again::<Request>(bytes),
        2 => same_again::<Reply>(bytes),
        3 => same_again::<Hello>(bytes),
        4 => same_again::<Welcome>(bytes),
        5 => kept_ledger(bytes),
        6 => same_again::<ImageManifest>(bytes),
        7 => volume(bytes),
        8 => drop(Header::parse(bytes)),
        9 => drop(Status::parse(bytes)),
        10 => git_text(bytes),
        11 => note(bytes),
        12 => same_again::<Description>(bytes),
        13 => settles::<TeamDescription>(bytes),
        _ => greeting(bytes),
    }
});

/// Reads the first line of a connection, and no byte after it.
fn greeting(bytes: &[u8]) {
    let line = bytes.split_inclusive(|byte| *byte == b'\n').next().filter(|line| line.ends_with(b"\n"));
    RUNTIME.block_on(async {
        let mut left = bytes;
        match (read_line(&mut left).await, line) {
            (Ok(read), Some(line)) => {
                assert_eq!(read, line[..line.len() - 1]);
                assert_eq!(left, &bytes[line.len()..]);
            }
            (Err(HelloError::Ended), None) | (Err(HelloError::TooLong), _) => {}
            (other, _) => panic!("{other:?}"),
        }
        let mut left = bytes;
        // A read from memory never blocks.
        let hello = read_hello(&mut left, Duration::from_secs(60)).await;
        assert!(!matches!(hello, Err(HelloError::TimedOut | HelloError::Io(_))), "{hello:?}");
        if let Ok(hello) = hello {
            let line = line.expect("a hello is a line");
            assert_eq!(left, &bytes[line.len()..]);
            let same: Hello = serde_json::from_slice(line).expect("it was read from this line");
            assert_eq!(hello, same);
        }
    });
}

/// Checks that a parsed value survives writing and parsing again.
fn same_again<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    let text = serde_json::to_vec(&read).expect("what was read can be written");
    let again: T = serde_json::from_slice(&text).expect("what was written can be read");
    assert!(again == read || has_fractions(&text), "{again:?} is not {read:?}");
}

/// Like [`same_again`], for types that drop fields of earlier versions when they are written.
fn settles<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(bytes) else { return };
    same_again::<T>(&serde_json::to_vec(&read).expect("what was read can be written"));
}

/// Whether the text contains fractions, which serde_json may not parse to the last bit.
fn has_fractions(text: &[u8]) -> bool {
    fn look(value: &Value) -> bool {
        match value {
            Value::Number(number) => number.is_f64(),
            Value::Array(values) => values.iter().any(look),
            Value::Object(fields) => fields.values().any(look),
            Value::Null | Value::Bool(_) | Value::String(_) => false,
        }
    }
    serde_json::from_slice(text).is_ok_and(|value: Value| look(&value))
}

fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let dirs = UserDirs { uid: 1000, home: "/home/u".into(), state_home: None, runtime_dir: None };
    if let Err(error) = Config::parse(text, &dirs) {
        assert!(!error.to_string().is_empty());
    }
}

fn kept_ledger(bytes: &[u8]) {
    let path = DIR.join("state.json");
    fs::write(&path, bytes).expect("the ledger is written");
    let Some(document) = ledger::read(&path).ok().and_then(Found::into_document) else { return };
    // The first write drops the inboxes that earlier versions kept in the ledger.
    let once = written(&path, &document);
    let again = written(&path, &once);
    let text = fs::read(&path).expect("the ledger is there");
    assert!(again == once || has_fractions(&text), "{again:?} is not {once:?}");
}

fn written(path: &Path, document: &LedgerDocument) -> LedgerDocument {
    ledger::write(path, document).expect("what was read can be written");
    match ledger::read(path).expect("what was written can be read") {
        Found::Whole(document) => *document,
        other @ (Found::Absent | Found::Damaged { .. }) => panic!("what was written is {other:?}"),
    }
}

fn volume(bytes: &[u8]) {
    fs::write(DIR.join(VOLUME_FILE), bytes).expect("the record is written");
    let _ = Qcow2Storage::origin_now(&DIR);
}

fn git_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = redact(&text);
    if let Ok(url) = GitUrl::parse(&text) {
        assert!(!url.shown().is_empty());
    }
    let _ = BranchName::parse(&text);
}

fn note(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = frontmatter::read(text);
    if let Some(parts) = frontmatter::split(text) {
        assert!(!parts.line_end().is_empty());
    }
}
