//! Reading the ledger file, and replacing it so that a crash at any moment leaves the old or the new one whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::schema::{LedgerDocument, SCHEMA_VERSION};

/// Far beyond what 10,000 workspaces need; a larger file is not a ledger.
const MAX_LEDGER_BYTES: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum LedgerError {
    #[error("no space left on the disk of {path}")]
    NoSpace { path: PathBuf },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} was written by a newer agentiso (schema {found}, this one knows {SCHEMA_VERSION}); use that version or move the file away"
    )]
    Newer { path: PathBuf, found: u64 },
    #[error("{path} is not a ledger: {problem}")]
    Unreadable { path: PathBuf, problem: String },
    #[error("the state does not serialize: {0}")]
    Serialize(#[source] serde_json::Error),
}

impl LedgerError {
    fn io(path: &Path, source: io::Error) -> Self {
        let full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if full { Self::NoSpace { path: path.into() } } else { Self::Io { path: path.into(), source } }
    }
}

/// What was found at start.
#[derive(Debug)]
pub enum Loaded {
    /// No file: the first start.
    Fresh,
    Ledger(Box<LedgerDocument>),
    /// A file that cannot be used. It was moved to `kept`; the daemon starts empty.
    KeptAside {
        kept: PathBuf,
        problem: String,
    },
}

/// Reads the file and changes nothing.
pub fn read(path: &Path) -> Result<Option<LedgerDocument>, LedgerError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LedgerError::io(path, error)),
    };
    let size = file.metadata().map_err(|error| LedgerError::io(path, error))?.len();
    if size > MAX_LEDGER_BYTES {
        let problem = format!("it has {size} bytes, more than any ledger");
        return Err(LedgerError::Unreadable { path: path.into(), problem });
    }
    let text = io::read_to_string(file).map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            return LedgerError::Unreadable { path: path.into(), problem: error.to_string() };
        }
        LedgerError::io(path, error)
    })?;
    parse(path, &text).map(Some)
}

fn parse(path: &Path, text: &str) -> Result<LedgerDocument, LedgerError> {
    /// The version alone: a newer file may differ in everything else.
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
    }
    let unreadable = |problem: String| LedgerError::Unreadable { path: path.into(), problem };
    let version: Version = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    if version.schema_version > SCHEMA_VERSION {
        return Err(LedgerError::Newer { path: path.into(), found: version.schema_version });
    }
    if version.schema_version < SCHEMA_VERSION {
        let found = version.schema_version;
        return Err(unreadable(format!(
            "schema {found} belongs to an earlier program; its machines cannot be taken over"
        )));
    }
    serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))
}

/// Reads the ledger at start. What is unreadable is moved aside and reported, never overwritten.
pub fn load(path: &Path, now: jiff::Timestamp) -> Result<Loaded, LedgerError> {
    let temporary = temporary(path);
    match fs::remove_file(&temporary) {
        Ok(()) => {
            tracing::warn!(file = %temporary.display(), "a save was interrupted; the ledger before it counts")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(LedgerError::io(&temporary, error)),
    }
    match read(path) {
        Ok(None) => Ok(Loaded::Fresh),
        Ok(Some(document)) => Ok(Loaded::Ledger(Box::new(document))),
        Err(LedgerError::Unreadable { problem, .. }) => {
            let kept = keep_aside(path, now)?;
            Ok(Loaded::KeptAside { kept, problem })
        }
        Err(error) => Err(error),
    }
}

/// Moves the file to `state.json.corrupt-<time>`, under a name that is free.
pub(crate) fn keep_aside(path: &Path, now: jiff::Timestamp) -> Result<PathBuf, LedgerError> {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    for attempt in 0..u32::MAX {
        let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".corrupt-{stamp}{suffix}"));
        let kept = PathBuf::from(name);
        // A hard link fails where a rename would replace what is there.
        match fs::hard_link(path, &kept) {
            Ok(()) => {
                fs::remove_file(path).map_err(|error| LedgerError::io(path, error))?;
                sync_directory(path)?;
                return Ok(kept);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(LedgerError::io(&kept, error)),
        }
    }
    Err(LedgerError::Unreadable { path: path.into(), problem: "no name is free to keep it aside".to_owned() })
}

/// Replaces the file: written beside it, synced, renamed, the directory synced.
pub fn write(path: &Path, document: &LedgerDocument) -> Result<(), LedgerError> {
    let text = serde_json::to_vec_pretty(document).map_err(LedgerError::Serialize)?;
    let temporary = temporary(path);
    let written = write_temporary(&temporary, &text)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|error| LedgerError::io(path, error));
    if let Err(error) = written {
        match fs::remove_file(&temporary) {
            Err(cleanup) if cleanup.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %temporary.display(), %cleanup, "the unfinished ledger stays behind");
            }
            Ok(()) | Err(_) => {}
        }
        return Err(error);
    }
    sync_directory(path)
}

fn write_temporary(temporary: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    file.write_all(text)?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> Result<(), LedgerError> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|file| file.sync_all()).map_err(|error| LedgerError::io(directory, error))
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::ledger::schema::Counters;

    fn now() -> jiff::Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn empty() -> LedgerDocument {
        LedgerDocument {
            schema_version: SCHEMA_VERSION,
            saved_at: now(),
            workspaces: Default::default(),
            sessions: Vec::new(),
            teams: Default::default(),
            counters: Counters::default(),
        }
    }

    #[test]
    fn what_is_written_is_read_back_private_and_without_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write(&path, &empty()).unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), empty());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_fixture_of_this_schema_can_be_read() {
        let text = include_str!("../../tests/fixtures/ledger-v4.json");
        let document = parse(Path::new("state.json"), text).unwrap();
        assert_eq!(document.workspaces.len(), 3);
        assert_eq!(document.sessions[0].workspace_ids.len(), 1);
        assert_eq!(document.counters.last_address, Some("10.42.0.4".parse().unwrap()));
    }

    #[test]
    fn a_ledger_with_snapshots_and_forks_can_be_read() {
        let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
        let document = parse(Path::new("state.json"), text).unwrap();
        let all: Vec<_> = document.workspaces.values().collect();
        assert_eq!(all[0].snapshots[1].parent, Some(all[0].snapshots[0].id));
        assert_eq!(all[0].current, Some(all[0].snapshots[1].id));
        assert_eq!(all[1].restoring, all[1].current);
        assert_eq!(all[1].forked_from.as_ref().unwrap().snapshot_id, all[0].snapshots[1].id);
    }

    #[test]
    fn an_unreadable_file_is_kept_aside_each_time_under_its_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        for bad in ["", "{", "[]", "{\"schema_version\":\"x\"}", "{\"schema_version\":4}", "\u{0}\u{1}"] {
            fs::write(&path, bad).unwrap();
            let Loaded::KeptAside { kept, .. } = load(&path, now()).unwrap() else {
                panic!("{bad:?} was used")
            };
            assert_eq!(fs::read_to_string(&kept).unwrap(), bad);
            assert!(!path.exists());
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_kept_aside_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(matches!(load(&path, now()).unwrap(), Loaded::KeptAside { .. }));
    }

    #[test]
    fn an_earlier_programs_file_is_kept_aside_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        for fixture in [
            include_str!("../../tests/fixtures/ledger-v1.json"),
            include_str!("../../tests/fixtures/ledger-v3.json"),
        ] {
            fs::write(&path, fixture).unwrap();
            let Loaded::KeptAside { problem, .. } = load(&path, now()).unwrap() else { panic!("was used") };
            assert!(problem.contains("earlier program"), "{problem}");
        }
    }

    #[test]
    fn a_newer_ledger_is_refused_and_left_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, "{\"schema_version\": 5, \"workspaces\": \"in a form to come\"}").unwrap();
        assert!(matches!(load(&path, now()), Err(LedgerError::Newer { found: 5, .. })));
        assert!(path.exists());
    }

    #[test]
    fn a_save_that_was_cut_short_leaves_the_ledger_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write(&path, &empty()).unwrap();
        fs::write(dir.path().join("state.json.tmp"), "{\"schema_ver").unwrap();
        assert!(matches!(load(&path, now()).unwrap(), Loaded::Ledger(_)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_named_and_leaves_no_temporary_file() {
        // /dev/full takes the bytes and refuses them when they are written.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write(&path, &empty()).unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
        assert!(matches!(write(&path, &empty()), Err(LedgerError::NoSpace { .. })));
        assert_eq!(read(&path).unwrap().unwrap(), empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
