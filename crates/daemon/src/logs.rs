//! Reads the last lines of a VM's log files, whatever a guest wrote into them.

use std::io;
use std::path::Path;

use agentiso_sys::files;

use crate::info::{LogKind, Logs};

/// The most that is read of a log: enough for thousands of lines, and a guest that writes one endless line cannot
/// make the answer larger.
const MAX_TAIL_BYTES: u64 = 1 << 20;

pub(crate) fn read(directory: &Path, kind: LogKind, max_lines: usize) -> io::Result<Logs> {
    let one = |file: &str| tail(&directory.join(file), max_lines).map(Some);
    Ok(match kind {
        LogKind::Console => Logs { console: one("console.log")?, ..Logs::default() },
        LogKind::Stderr => Logs { stderr: one("stderr.log")?, ..Logs::default() },
        LogKind::All => Logs { console: one("console.log")?, stderr: one("stderr.log")?, network: None },
        // The network log is not in a file.
        LogKind::Network => Logs::default(),
    })
}

/// The last lines of a file; empty if there is none yet.
fn tail(path: &Path, max_lines: usize) -> io::Result<String> {
    let (mut bytes, is_cut) = files::read_tail(path, MAX_TAIL_BYTES)?;
    if is_cut {
        // The first line is only the end of a line, unless all bytes are one line.
        let whole = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.drain(..whole);
    }
    Ok(last_lines(&String::from_utf8_lossy(&bytes), max_lines))
}

fn last_lines(text: &str, max_lines: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(max_lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_returns_last_lines_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("console.log"), "a\r\nb\nc\u{ff}\n").unwrap();
        let logs = read(dir.path(), LogKind::All, 2).unwrap();
        assert_eq!(logs.console.as_deref(), Some("b\nc\u{ff}"));
        assert_eq!(logs.stderr.as_deref(), Some(""));
        assert_eq!(read(dir.path(), LogKind::Stderr, 2).unwrap().console, None);
    }

    #[test]
    fn endless_log_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("console.log"), vec![b'x'; 3 << 20]).unwrap();
        let console = read(dir.path(), LogKind::Console, 100).unwrap().console.unwrap();
        assert_eq!(console.len(), 1 << 20);
    }

    #[test]
    fn non_text_log_bytes_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("console.log"), [0xff, 0xfe, b'\n', b'x']).unwrap();
        assert!(read(dir.path(), LogKind::Console, 9).unwrap().console.unwrap().ends_with("\nx"));
    }
}
