//! Keeps a VM's logs from filling the host's disk, because a guest may print without limit.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// A log above this size is cut down to its end.
const MAX_LOG: u64 = 8 << 20;

/// The length that is kept of a cut log.
const KEPT: u64 = 1 << 20;

/// Interval of checks of a log that QEMU writes itself. A serial console writes some hundred KB per second at most, so
/// a log exceeds its bound by little.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(15);

const _: () = assert!(KEPT < MAX_LOG);

/// Cuts a log that grew too large. Must not be called concurrently: a second caller would cut what the first has yet to
/// write back. The log's writer appends, so it continues behind the kept part; a line written at the very moment of the
/// cut may be lost.
pub(super) fn bound(path: &Path) -> io::Result<bool> {
    let mut file = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let length = file.metadata()?.len();
    if length <= MAX_LOG {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(length - KEPT))?;
    let mut kept = Vec::new();
    (&mut file).take(KEPT).read_to_end(&mut kept)?;
    file.set_len(0)?;
    file.write_all(b"[the beginning of this log was dropped]\n")?;
    file.write_all(&kept)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_log_keeps_its_end_and_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.log");
        let mut writer = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        writer.write_all(&vec![b'a'; MAX_LOG as usize]).unwrap();
        assert!(!bound(&path).unwrap(), "at the bound nothing is cut");
        writer.write_all(b"the end").unwrap();
        assert!(bound(&path).unwrap());
        writer.write_all(b" and more").unwrap();
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(log.len() < KEPT as usize + 100);
        assert!(log.starts_with("[the beginning") && log.ends_with("the end and more"));
    }

    #[test]
    fn missing_log_needs_no_cut() {
        assert!(!bound(Path::new("/no/such/log")).unwrap());
    }
}
