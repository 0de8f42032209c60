//! Panics of the daemon, which a client may not notice: another answer, or another daemon, comes soon enough.
//!
//! Whoever starts a daemon gives it `daemon.log` for what it writes to standard error, so the message is there. A log that
//! has grown becomes `daemon.log.1`; it is known again by its inode, so that no line is read twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The older one first, so that the lines come in their order.
const LOGS: [&str; 2] = ["daemon.log.1", "daemon.log"];

/// What Rust prints when a thread panics, and when a process cannot even do that.
const SIGNS: [&str; 3] = ["panicked at", "has overflowed its stack", "fatal runtime error"];

/// What was read of the logs of one server.
#[derive(Debug, Default)]
pub(crate) struct Panics {
    /// By inode, how many bytes.
    read: BTreeMap<u64, u64>,
}

impl Panics {
    /// The panics in what was written since the last look, each with the line after it, which has the message.
    pub(crate) fn look(&mut self, data: &Path) -> Vec<String> {
        let (mut read, mut found) = (BTreeMap::new(), Vec::new());
        for name in LOGS {
            // There may be none, and one that is put aside at this moment is found by the next look.
            let Ok(mut file) = File::open(data.join(name)) else { continue };
            let Ok(metadata) = file.metadata() else { continue };
            let inode = metadata.ino();
            // A number that was given to another file, which is shorter.
            let from = self.read.get(&inode).copied().filter(|from| *from <= metadata.len()).unwrap_or(0);
            let mut text = Vec::new();
            let whole = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut text)).is_ok();
            let (lines, length) = if whole { panics_in(&text) } else { (Vec::new(), 0) };
            found.extend(lines);
            read.insert(inode, from + length as u64);
        }
        // One that is gone is forgotten: its number may soon be another's.
        if !read.is_empty() {
            self.read = read;
        }
        found
    }
}

/// The panics in a text, and how much of it need not be read again: a line that is not finished, and a panic whose message
/// has not come yet, are left for later.
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

/// The finished line that begins here, and where the next one does.
fn line_at(text: &[u8], from: usize) -> Option<(String, usize)> {
    let rest = text.get(from..)?;
    let length = rest.iter().position(|byte| *byte == b'\n')?;
    Some((String::from_utf8_lossy(&rest[..length]).into_owned(), from + length + 1))
}

/// The panics in what a program wrote that has ended.
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
    fn panic_is_told_once_across_rotation() {
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
