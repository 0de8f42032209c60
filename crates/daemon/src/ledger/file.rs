//! Reads and writes the ledger file, `state.json`.

use std::path::Path;

use agentiso_core::config::MAX_LEDGER_BYTES;
use agentiso_sys::seal::seal;

use super::error::LedgerError;
use super::parse::{Parsed, parse};
use super::schema::LedgerDocument;
use super::whole_file::{self, Content};

/// The result of reading the ledger.
#[derive(Debug)]
pub enum Found {
    /// There is no file: this is the first start, or the file was removed.
    Absent,
    Whole(Box<LedgerDocument>),
    /// Part of it cannot be used: the usable part, and what is wrong with the rest.
    Damaged {
        document: Option<Box<LedgerDocument>>,
        problems: Vec<String>,
    },
}

impl Found {
    /// The usable part, for callers that only read.
    pub fn into_document(self) -> Option<LedgerDocument> {
        match self {
            Self::Absent => None,
            Self::Whole(document) => Some(*document),
            Self::Damaged { document, .. } => document.map(|document| *document),
        }
    }
}

/// Reads the file and changes nothing. The ledger of a newer program is an error.
pub fn read(path: &Path) -> Result<Found, LedgerError> {
    let damaged = |problem| Found::Damaged { document: None, problems: vec![problem] };
    let text = match whole_file::read(path, MAX_LEDGER_BYTES)? {
        Content::Absent => return Ok(Found::Absent),
        Content::Unusable(problem) => return Ok(damaged(problem)),
        Content::Text(text) => text,
    };
    match parse(&text) {
        Parsed::Whole(document) => Ok(Found::Whole(document)),
        Parsed::Partial { document, problems } => Ok(Found::Damaged { document: Some(document), problems }),
        Parsed::Newer(found) => Err(LedgerError::Newer { path: path.into(), found }),
        Parsed::Unusable(problem) => Ok(damaged(problem)),
    }
}

/// Replaces the whole file and syncs it.
pub fn write(path: &Path, document: &LedgerDocument) -> Result<(), LedgerError> {
    let text = serde_json::to_string_pretty(document).map_err(LedgerError::Serialize)?;
    whole_file::replace(path, seal(&text).as_bytes(), MAX_LEDGER_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ledger::SCHEMA_VERSION;
    use crate::ledger::schema::Counters;

    fn empty() -> LedgerDocument {
        LedgerDocument {
            schema_version: SCHEMA_VERSION,
            saved_at: "2026-03-01T12:00:00Z".parse().unwrap(),
            revision: 3,
            workspaces: Default::default(),
            sessions: Vec::new(),
            teams: Default::default(),
            counters: Counters::default(),
            mended: None,
        }
    }

    #[test]
    fn ledger_is_read_back_from_a_private_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write(&path, &empty()).unwrap();
        let Found::Whole(document) = read(&path).unwrap() else { panic!("not whole") };
        assert_eq!(*document, empty());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn newer_ledger_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, "{\"schema_version\": 6, \"workspaces\": \"in a form to come\"}").unwrap();
        assert!(matches!(read(&path), Err(LedgerError::Newer { found: 6, .. })));
        assert!(path.exists());
    }

    #[test]
    fn oversized_ledgers_are_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::File::create(&path).unwrap().set_len(MAX_LEDGER_BYTES + 1).unwrap();
        assert!(matches!(read(&path).unwrap(), Found::Damaged { document: None, .. }));
    }

    #[test]
    fn interrupted_save_keeps_the_old_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write(&path, &empty()).unwrap();
        fs::write(dir.path().join("state.json.tmp"), "{\"schema_ver").unwrap();
        assert!(matches!(read(&path).unwrap(), Found::Whole(_)));
        whole_file::remove_temporary(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
