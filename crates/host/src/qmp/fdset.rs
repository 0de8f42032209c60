//! Passes open files to QEMU, which is in a jail and opens none by itself.
//!
//! QEMU keeps them in numbered sets, and opens `/dev/fdset/NUMBER` by taking the descriptor of the set that fits the
//! access. The note on each describes it, so that a later daemon can identify it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use agentiso_sys::files::FileError;
use serde_json::{Value, json};

use super::client::{QmpClient, QmpError};
use crate::qemu::argv::layer_note;

/// The note on a file for the VM's state, which QEMU reads or writes.
pub(super) const STATE: &str = "state";

/// The prefix of the note on a layer that is writable during a merge.
const MERGING: &str = "merge:";

/// A descriptor in one of QEMU's sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdSetEntry {
    pub(super) set: u64,
    fd: u64,
}

/// The access mode of a file that is passed.
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
    /// Passes a file to QEMU, in a new set or in an existing one.
    pub(super) async fn give(
        &self,
        file: File,
        set: Option<u64>,
        note: &str,
    ) -> Result<FdSetEntry, QmpError> {
        let mut arguments = json!({"opaque": note});
        if let Some(set) = set {
            arguments["fdset-id"] = json!(set);
        }
        let answer = self.execute_with("add-fd", Some(arguments), Some(file.into())).await?;
        let number = |key: &str| answer.get(key).and_then(Value::as_u64);
        match (number("fdset-id"), number("fd")) {
            (Some(set), Some(fd)) => Ok(FdSetEntry { set, fd }),
            _ => Err(QmpError::Unexpected { command: "add-fd".to_owned() }),
        }
    }

    /// Passes a layer of the disk to QEMU.
    pub(super) async fn give_layer(&self, layer: &Path, access: Access) -> Result<FdSetEntry, QmpError> {
        let note = layer_note(layer, access == Access::ReadWrite);
        self.give(open(layer, access)?, None, &note).await
    }

    /// Removes a file that nothing in QEMU has open. If it is still open, it is removed when it is closed.
    pub(super) async fn take_back(&self, given: FdSetEntry) -> Result<(), QmpError> {
        let arguments = json!({"fdset-id": given.set, "fd": given.fd});
        self.execute("remove-fd", Some(arguments)).await.map(drop)
    }

    /// Passes frozen layers to QEMU for writing, because it is about to merge them. Layers that QEMU opened itself, in
    /// a VM that was started without a jail, do not need this.
    pub(super) async fn give_writable(&self, layers: &[&Path]) -> Result<Vec<FdSetEntry>, QmpError> {
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

    pub(super) async fn take_all_back(&self, lent: &[FdSetEntry]) -> Result<(), QmpError> {
        for given in lent {
            self.take_back(*given).await?;
        }
        Ok(())
    }

    /// Removes the writable layers of a merge whose initiator is gone.
    pub(super) async fn take_writable_back(&self) -> Result<(), QmpError> {
        let lent: Vec<FdSetEntry> = self
            .sets()
            .await?
            .into_iter()
            .filter(|(_, note)| note.starts_with(MERGING))
            .map(|(at, _)| at)
            .collect();
        self.take_all_back(&lent).await
    }

    /// Removes the files for copies of the VM's state whose initiator failed or is gone: each may be as long as the
    /// VM's RAM. Only for a running VM: older QEMU closes nothing while the VM is stopped.
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
            tracing::warn!(%error, "QEMU may hold a copy of the VM's memory until it ends");
        }
    }

    /// The notes on all files that QEMU was given.
    pub(super) async fn notes(&self) -> Result<BTreeSet<String>, QmpError> {
        Ok(self.sets().await?.into_iter().map(|(_, note)| note).collect())
    }

    /// The descriptor with that note.
    pub(super) async fn find_by_note(&self, note: &str) -> Result<Option<FdSetEntry>, QmpError> {
        Ok(self.sets().await?.into_iter().find(|(_, found)| found == note).map(|(at, _)| at))
    }

    /// Removes all descriptors of a layer that is no longer part of the disk.
    pub(super) async fn take_layer_back(&self, layer: &Path) -> Result<(), QmpError> {
        let notes = [layer_note(layer, false), layer_note(layer, true)];
        for (at, note) in self.sets().await? {
            if notes.contains(&note) {
                self.take_back(at).await?;
            }
        }
        Ok(())
    }

    async fn sets(&self) -> Result<Vec<(FdSetEntry, String)>, QmpError> {
        let sets = self.execute("query-fdsets", None).await?;
        Ok(parse(&sets))
    }
}

fn parse(sets: &Value) -> Vec<(FdSetEntry, String)> {
    let mut found = Vec::new();
    for set in sets.as_array().into_iter().flatten() {
        let Some(number) = set["fdset-id"].as_u64() else { continue };
        for fd in set["fds"].as_array().into_iter().flatten() {
            let Some(at) = fd["fd"].as_u64() else { continue };
            let note = fd["opaque"].as_str().unwrap_or_default().to_owned();
            found.push((FdSetEntry { set: number, fd: at }, note));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_sets_are_read_with_their_notes() {
        let told = json!([
            {"fdset-id": 10, "fds": [{"fd": 8, "opaque": "rw:disk.qcow2"}]},
            {"fdset-id": 11, "fds": [{"fd": 9, "opaque": "ro:a.qcow2"}, {"fd": 12}]},
            {"nonsense": true},
        ]);
        let expected = vec![
            (FdSetEntry { set: 10, fd: 8 }, "rw:disk.qcow2".to_owned()),
            (FdSetEntry { set: 11, fd: 9 }, "ro:a.qcow2".to_owned()),
            (FdSetEntry { set: 11, fd: 12 }, String::new()),
        ];
        assert_eq!(parse(&told), expected);
        assert_eq!(parse(&Value::Null), []);
    }
}
