//! Files that QEMU is given open: it is in a jail and opens none by itself.
//!
//! QEMU keeps them in numbered sets, and opens `/dev/fdset/NUMBER` by taking the one of the set that fits the access. The
//! note on each says what it is, so that a later daemon knows too.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use super::client::{QmpClient, QmpError};
use crate::files::FileError;
use crate::qemu::argv::layer_note;

/// The note on a machine's state that QEMU is given to read or write.
pub(super) const STATE: &str = "state";

/// What a note begins with on a layer that is writable for the time of a merge.
const MERGING: &str = "merge:";

/// A descriptor in QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InSet {
    pub(super) set: u64,
    fd: u64,
}

/// How a file is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

pub(super) fn open(path: &Path, access: Access) -> Result<File, FileError> {
    let write = access == Access::ReadWrite;
    File::options().read(true).write(write).open(path).map_err(FileError::at("open", path))
}

impl QmpClient {
    /// Gives QEMU a file, in a set of its own or beside another.
    pub(super) async fn give(&self, file: File, set: Option<u64>, note: &str) -> Result<InSet, QmpError> {
        let mut arguments = json!({"opaque": note});
        if let Some(set) = set {
            arguments["fdset-id"] = json!(set);
        }
        let answer = self.execute_with("add-fd", Some(arguments), Some(file.into())).await?;
        let number = |key: &str| answer.get(key).and_then(Value::as_u64);
        match (number("fdset-id"), number("fd")) {
            (Some(set), Some(fd)) => Ok(InSet { set, fd }),
            _ => Err(QmpError::Unexpected { command: "add-fd".to_owned() }),
        }
    }

    /// Gives QEMU a layer of the disk.
    pub(super) async fn give_layer(&self, layer: &Path, access: Access) -> Result<InSet, QmpError> {
        let note = layer_note(layer, access == Access::ReadWrite);
        self.give(open(layer, access)?, None, &note).await
    }

    /// Takes back a file that nothing in QEMU has open. What is still open goes when it is closed.
    pub(super) async fn take_back(&self, given: InSet) -> Result<(), QmpError> {
        let arguments = json!({"fdset-id": given.set, "fd": given.fd});
        self.execute("remove-fd", Some(arguments)).await.map(drop)
    }

    /// Lends QEMU frozen layers for writing, because it is about to merge them. Layers that it opened by itself, in a
    /// machine that was started without a jail, need none.
    pub(super) async fn lend(&self, layers: &[&Path]) -> Result<Vec<InSet>, QmpError> {
        let sets = self.sets().await?;
        let mut lent = Vec::new();
        for layer in layers {
            let (read, written) = (layer_note(layer, false), layer_note(layer, true));
            let held = |note: &str| sets.iter().find(|(_, found)| found == note).map(|(at, _)| at.set);
            if let (Some(set), None) = (held(&read), held(&written)) {
                let note = format!("{MERGING}{read}");
                lent.push(self.give(open(layer, Access::ReadWrite)?, Some(set), &note).await?);
            }
        }
        Ok(lent)
    }

    pub(super) async fn take_all_back(&self, lent: &[InSet]) -> Result<(), QmpError> {
        for given in lent {
            self.take_back(*given).await?;
        }
        Ok(())
    }

    /// Takes back what was lent for a merge by somebody who is gone.
    pub(super) async fn end_loans(&self) -> Result<(), QmpError> {
        let lent: Vec<InSet> = self
            .sets()
            .await?
            .into_iter()
            .filter(|(_, note)| note.starts_with(MERGING))
            .map(|(at, _)| at)
            .collect();
        self.take_all_back(&lent).await
    }

    /// Takes back what was given to copy the machine's state to or from, by somebody who is gone or in vain: it may be as
    /// long as the machine's RAM. For a machine that runs: older QEMU closes nothing while one stands still.
    pub(crate) async fn take_states_back(&self) {
        let taken = async {
            for (at, note) in self.sets().await? {
                if note == STATE {
                    self.take_back(at).await?;
                }
            }
            Ok::<_, QmpError>(())
        };
        if let Err(error) = taken.await {
            tracing::warn!(%error, "QEMU may hold a copy of its machine's memory until it ends");
        }
    }

    /// What is noted with all that it was given.
    pub(super) async fn notes(&self) -> Result<BTreeSet<String>, QmpError> {
        Ok(self.sets().await?.into_iter().map(|(_, note)| note).collect())
    }

    /// The descriptor with that note.
    pub(super) async fn held(&self, note: &str) -> Result<Option<InSet>, QmpError> {
        Ok(self.sets().await?.into_iter().find(|(_, found)| found == note).map(|(at, _)| at))
    }

    /// Takes back all that belongs to a layer which is not part of the disk any more.
    pub(super) async fn take_layer_back(&self, layer: &Path) -> Result<(), QmpError> {
        let notes = [layer_note(layer, false), layer_note(layer, true)];
        for (at, note) in self.sets().await? {
            if notes.contains(&note) {
                self.take_back(at).await?;
            }
        }
        Ok(())
    }

    async fn sets(&self) -> Result<Vec<(InSet, String)>, QmpError> {
        let sets = self.execute("query-fdsets", None).await?;
        Ok(parse(&sets))
    }
}

fn parse(sets: &Value) -> Vec<(InSet, String)> {
    let mut found = Vec::new();
    for set in sets.as_array().into_iter().flatten() {
        let Some(number) = set["fdset-id"].as_u64() else { continue };
        for fd in set["fds"].as_array().into_iter().flatten() {
            let Some(at) = fd["fd"].as_u64() else { continue };
            let note = fd["opaque"].as_str().unwrap_or_default().to_owned();
            found.push((InSet { set: number, fd: at }, note));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_with_their_notes() {
        let told = json!([
            {"fdset-id": 10, "fds": [{"fd": 8, "opaque": "rw:disk.qcow2"}]},
            {"fdset-id": 11, "fds": [{"fd": 9, "opaque": "ro:a.qcow2"}, {"fd": 12}]},
            {"nonsense": true},
        ]);
        let expected = vec![
            (InSet { set: 10, fd: 8 }, "rw:disk.qcow2".to_owned()),
            (InSet { set: 11, fd: 9 }, "ro:a.qcow2".to_owned()),
            (InSet { set: 11, fd: 12 }, String::new()),
        ];
        assert_eq!(parse(&told), expected);
        assert_eq!(parse(&Value::Null), []);
    }
}
