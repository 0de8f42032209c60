//! The log on disk: lines of JSON in two files, of which the older one is replaced when the newer one is full.
//!
//! What is lost with a crash is what was recorded in the last moment; what was cut by it is skipped when it is read.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::FlowRecord;

/// A file as large as this is full. Some thousand records; twice that is what a guest can fill.
const FULL: u64 = 1 << 20;

const NEWER: &str = "network.log";
const OLDER: &str = "network.log.1";

#[derive(Debug)]
pub(super) struct LogFile {
    newer: PathBuf,
    older: PathBuf,
    /// Opened by the first record: the directory may not be there before.
    open: Option<(File, u64)>,
}

impl LogFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { newer: directory.join(NEWER), older: directory.join(OLDER), open: None }
    }

    /// The last records in the files, oldest first.
    pub(super) fn last(&self, count: usize) -> VecDeque<FlowRecord> {
        let mut records = VecDeque::new();
        for path in [&self.older, &self.newer] {
            let text = match fs::read(path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "an earlier log cannot be read");
                    continue;
                }
            };
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            records.extend(lines.filter_map(|line| serde_json::from_slice::<FlowRecord>(line).ok()));
        }
        records.drain(..records.len().saturating_sub(count));
        records
    }

    pub(super) fn append(&mut self, records: &[FlowRecord]) -> io::Result<()> {
        let mut text = Vec::new();
        for record in records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        let (mut file, mut length) = match self.open.take() {
            Some(open) => open,
            None => open(&self.newer)?,
        };
        if length > 0 && length + text.len() as u64 > FULL {
            drop(file);
            fs::rename(&self.newer, &self.older)?;
            (file, length) = open(&self.newer)?;
        }
        // In one call, so that a crash cuts one line at most.
        file.write_all(&text)?;
        self.open = Some((file, length + text.len() as u64));
        Ok(())
    }
}

/// For its owner only: it tells where a workspace goes.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::log::FlowEvent;
    use crate::rules::Transport;

    fn record(port: u16) -> FlowRecord {
        let to = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
        FlowRecord::now(FlowEvent::Opened, Transport::Tcp, to)
    }

    fn ports(records: &VecDeque<FlowRecord>) -> Vec<u16> {
        records.iter().filter_map(|record| record.port).collect()
    }

    #[test]
    fn the_last_records_come_back_and_what_was_cut_does_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(LogFile::new(dir.path()).last(10).is_empty());
        let records: Vec<_> = (1..=5).map(record).collect();
        LogFile::new(dir.path()).append(&records[..3]).unwrap();
        let mut file = LogFile::new(dir.path());
        file.append(&records[3..]).unwrap();
        assert_eq!(file.last(10), records);
        assert_eq!(ports(&file.last(2)), [4, 5]);
        let path = dir.path().join(NEWER);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 10);
        text.extend(b"\nnot a record\n\xff\xfe\n{}\n");
        fs::write(&path, text).unwrap();
        file = LogFile::new(dir.path());
        file.append(&[record(6)]).unwrap();
        assert_eq!(ports(&file.last(10)), [1, 2, 3, 4, 6]);
    }

    #[test]
    fn two_files_are_never_larger_than_they_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LogFile::new(dir.path());
        let mut long = record(0);
        long.message = Some("x".repeat(500));
        for port in 1..=10_000 {
            long.port = Some(port);
            file.append(std::slice::from_ref(&long)).unwrap();
        }
        let size = |name| fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size(NEWER) <= FULL && size(OLDER) <= FULL);
        let last = ports(&file.last(2000));
        assert_eq!(last, (8001..=10_000).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn without_its_directory_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        assert!(LogFile::new(&gone).append(&[record(1)]).is_err());
        assert!(!gone.exists());
    }
}
