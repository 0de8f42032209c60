//! The log on disk: lines of JSON in two pairs of files. One pair holds refusals, the other opened and closed flows, so
//! that neither takes the room of the other. In each pair the older file is replaced when the newer one is full.
//!
//! A crash loses only the records of the last moment; a line that it cut is skipped when the file is read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::FlowRecord;
use super::recent::{Part, RecentRecords};

/// The size at which a file is full: some thousand records. A guest can fill four such files.
const FULL: u64 = 512 << 10;

const FLOWS: &str = "network.log";
const REFUSALS: &str = "network-refused.log";

/// The files of one log.
#[derive(Debug)]
pub(super) struct Files {
    flows: LogFile,
    refusals: LogFile,
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self { flows: LogFile::new(directory, FLOWS), refusals: LogFile::new(directory, REFUSALS) }
    }

    /// The last records in the files.
    pub(super) fn read(&self) -> RecentRecords {
        let mut records = self.flows.read();
        records.extend(self.refusals.read());
        // A stable sort: records of the same instant keep their order.
        records.sort_by_key(|record| record.at);
        let mut recent = RecentRecords::default();
        records.into_iter().for_each(|record| recent.add(record));
        recent
    }

    pub(super) fn append(&mut self, records: Vec<FlowRecord>) -> io::Result<()> {
        let is_flow = |record: &FlowRecord| Part::of(record) == Part::Flows;
        let (flows, refusals): (Vec<_>, Vec<_>) = records.into_iter().partition(is_flow);
        let written = self.refusals.append(&refusals);
        self.flows.append(&flows).and(written)
    }
}

#[derive(Debug)]
struct LogFile {
    newer: PathBuf,
    older: PathBuf,
    /// Opened by the first record, because the directory may not exist before.
    open: Option<(File, u64)>,
}

impl LogFile {
    fn new(directory: &Path, name: &str) -> Self {
        Self { newer: directory.join(name), older: directory.join(format!("{name}.1")), open: None }
    }

    /// The records in both files, oldest first.
    fn read(&self) -> Vec<FlowRecord> {
        let mut records = Vec::new();
        for path in [&self.older, &self.newer] {
            let text = match fs::read(path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "cannot read an earlier log");
                    continue;
                }
            };
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            records.extend(lines.filter_map(|line| serde_json::from_slice::<FlowRecord>(line).ok()));
        }
        records
    }

    fn append(&mut self, records: &[FlowRecord]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
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
        // Written in one call, so that a crash cuts one line at most.
        file.write_all(&text)?;
        self.open = Some((file, length + text.len() as u64));
        Ok(())
    }
}

/// Opens a log file with mode 0600, because it tells where a workspace connects to.
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
    use crate::flow::log::FlowEvent;
    use crate::policy::Transport;

    fn record(port: u16) -> FlowRecord {
        let to = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
        FlowRecord::now(FlowEvent::Opened, Transport::Tcp, to)
    }

    fn ports(records: &[FlowRecord]) -> Vec<u16> {
        records.iter().filter_map(|record| record.port).collect()
    }

    #[test]
    fn damaged_log_lines_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(LogFile::new(dir.path(), FLOWS).read().is_empty());
        let records: Vec<_> = (1..=5).map(record).collect();
        LogFile::new(dir.path(), FLOWS).append(&records[..3]).unwrap();
        let mut file = LogFile::new(dir.path(), FLOWS);
        file.append(&records[3..]).unwrap();
        assert_eq!(file.read(), records);
        let path = dir.path().join(FLOWS);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 10);
        text.extend(b"\nnot a record\n\xff\xfe\n{}\n");
        fs::write(&path, text).unwrap();
        file = LogFile::new(dir.path(), FLOWS);
        file.append(&[record(6)]).unwrap();
        assert_eq!(ports(&file.read()), [1, 2, 3, 4, 6]);
    }

    #[test]
    fn refusals_survive_many_connections_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut refused = record(1);
        refused.event = FlowEvent::Refused;
        // An older log: all records in one file.
        LogFile::new(dir.path(), FLOWS).append(std::slice::from_ref(&refused)).unwrap();
        assert_eq!(ports(&Files::new(dir.path()).read().last(9)), [1]);
        let mut files = Files::new(dir.path());
        refused.port = Some(2);
        files.append(vec![refused.clone()]).unwrap();
        for port in 0..20_000 {
            files.append(vec![record(port)]).unwrap();
        }
        let last = Files::new(dir.path()).read().last(usize::MAX);
        assert_eq!(last[0], refused);
        assert_eq!(last.last().unwrap().port, Some(19_999));
    }

    #[test]
    fn log_files_stay_within_their_size_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LogFile::new(dir.path(), FLOWS);
        let mut long = record(0);
        long.message = Some("x".repeat(500));
        for port in 1..=10_000 {
            long.port = Some(port);
            file.append(std::slice::from_ref(&long)).unwrap();
        }
        let size = |name| fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size("network.log") <= FULL && size("network.log.1") <= FULL);
        let last = ports(&file.read());
        assert_eq!(last[last.len() - 600..], (9401..=10_000).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn log_does_not_create_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        assert!(Files::new(&gone).append(vec![record(1)]).is_err());
        assert!(!gone.exists());
    }
}
