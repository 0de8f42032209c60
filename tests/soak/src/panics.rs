//! Search for panics in the daemon's log. A client may not notice them, because a retry or the next daemon answers.
//!
//! The daemon's standard error goes to `daemon.log`, so the panic message is there. A full log is renamed to
//! `daemon.log.1`; it is recognised by its inode, so that no line is read twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The older log first, so that lines come in order.
const LOGS: [&str; 2] = ["daemon.log.1", "daemon.log"];

/// Texts that Rust prints when a thread panics or a process aborts.
const SIGNS: [&str; 3] = ["panicked at", "has overflowed its stack", "fatal runtime error"];

/// The position in the logs of one host.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    /// The bytes already read, by inode.
    read: BTreeMap<u64, u64>,
}

impl Panics {
    /// The panics that were logged since the last call, each with the following line, which has the message.
    pub(crate) fn look(&mut self, data: &Path) -> Vec<String> {
        let (mut read, mut found) = (BTreeMap::new(), Vec::new());
        for name in LOGS {
            // The log may not exist; one that is being renamed is found by the next call.
            let Ok(mut file) = File::open(data.join(name)) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let inode = metadata.ino();
            // A shorter file has reused the inode and is read from its start.
            let from = self.read.get(&inode).copied().filter(|from| *from <= metadata.len()).unwrap_or(0);
            let mut text = Vec::new();
            let whole = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut text)).is_ok();
            let (lines, length) = if whole { panics_in(&text) } else { (Vec::new(), 0) };
            found.extend(lines);
            read.insert(inode, from + length as u64);
        }
        // A log that is gone is forgotten: its inode may be reused.
        if !read.is_empty() {
            self.read = read;
        }
        found
    }
}

/// The panics in a text, and the number of bytes that need not be read again. An incomplete line, and a panic whose
/// message is missing, are left for the next call.
fn panics_in(text: &[u8]) -> (Vec<String>, usize) {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((line, after)) = line_at(text, at) {
        if SIGNS.iter().any(|sign| line.contains(sign)) {
            let Some((message, end)) = line_at(text, after) else { break };
            found.push(format!("{} {}", line.trim(), message.trim()));
            at = end;
        } else {
            at = after;
        }
    }
    (found, at)
}

/// The complete line that begins here, and the start of the next one.
fn line_at(text: &[u8], from: usize) -> Option<(String, usize)> {
    let rest = text.get(from..)?;
    let length = rest.iter().position(|byte| *byte == b'\n')?;
    Some((String::from_utf8_lossy(&rest[..length]).into_owned(), from + length + 1))
}

/// The panics in the output of a program that has ended.
pub(crate) fn panics_told(text: &str) -> Vec<String> {
    panics_in(format!("{text}\n\n").as_bytes()).0
}

#[cfg(test)]
mod tests {
    use std::fs::{OpenOptions, create_dir_all, remove_dir_all, rename};
    use std::io::Write as _;

    use super::*;

    fn add(log: &Path, text: &str) {
        OpenOptions::new().append(true).create(true).open(log).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn panic_is_reported_once_across_rotation() {
        let dir = std::env::temp_dir().join(format!("aiso-soak-panics-{}", std::process::id()));
        create_dir_all(&dir).unwrap();
        let (log, older) = (dir.join("daemon.log"), dir.join("daemon.log.1"));
        let mut panics = Panics::default();
        assert!(panics.look(&dir).is_empty(), "there is no log");
        add(&log, "INFO listening\nthread 'main' panicked at a.rs:1:2:\n");
        assert!(panics.look(&dir).is_empty(), "its message is missing");
        add(&log, "index out of bounds\nINFO more\nthread 'x' panicked");
        assert_eq!(panics.look(&dir), ["thread 'main' panicked at a.rs:1:2: index out of bounds"]);
        add(&log, " at b.rs:3:4:\nno\n");
        rename(&log, &older).unwrap();
        add(&log, "thread 'y' panicked at c.rs:5:6:\nnever\n");
        let both = panics.look(&dir);
        let again = panics.look(&dir);
        remove_dir_all(&dir).unwrap();
        assert_eq!(both, ["thread 'x' panicked at b.rs:3:4: no", "thread 'y' panicked at c.rs:5:6: never"]);
        assert!(again.is_empty(), "{again:?}");
    }

    #[test]
    fn last_panic_needs_no_message() {
        assert_eq!(panics_told("thread 'main' panicked at a.rs:1:2:").len(), 1);
        assert!(panics_told("Kernel panic - not syncing\n").is_empty());
    }
}
