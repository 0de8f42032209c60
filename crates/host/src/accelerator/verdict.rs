//! The choice of accelerator with its reason, and the file that remembers it.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

use agentiso_sys::files::{self, FileError};
use serde::{Deserialize, Serialize};

use super::Chosen;

const SCHEMA: u32 = 1;

/// An accelerator and the reason for it, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub accelerator: Chosen,
    pub reason: String,
}

/// The circumstances that a verdict holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeKey {
    pub host_boot_id: String,
    pub qemu: String,
    pub kernel_sha256: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    schema: u32,
    key: ProbeKey,
    verdict: Verdict,
}

/// The verdict of an earlier probe under the same circumstances. A file that cannot be read counts as missing: the
/// probe is made again.
pub fn recall(file: &Path, key: &ProbeKey) -> Option<Verdict> {
    let stored: Stored = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    (stored.schema == SCHEMA && stored.key == *key).then_some(stored.verdict)
}

pub fn remember(file: &Path, key: &ProbeKey, verdict: &Verdict) -> Result<(), FileError> {
    let stored = Stored { schema: SCHEMA, key: key.clone(), verdict: verdict.clone() };
    let text = serde_json::to_vec_pretty(&stored).unwrap_or_default();
    files::write_durably(file, &text)
}

/// Checks whether this user may use KVM at all. The error is the reason in words.
pub fn open_kvm(device: &Path) -> Result<(), String> {
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{} does not exist", device.display()))
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(format!("no permission to open {} (is this user in the group kvm?)", device.display()))
        }
        Err(error) => Err(format!("{} cannot be opened: {error}", device.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(boot: &str) -> ProbeKey {
        ProbeKey { host_boot_id: boot.to_owned(), qemu: "q".to_owned(), kernel_sha256: "k".to_owned() }
    }

    #[test]
    fn verdict_is_recalled_only_for_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("probe.json");
        let verdict = Verdict { accelerator: Chosen::Kvm, reason: "it booted".to_owned() };
        assert_eq!(recall(&file, &key("a")), None);
        remember(&file, &key("a"), &verdict).unwrap();
        assert_eq!(recall(&file, &key("a")), Some(verdict));
        assert_eq!(recall(&file, &key("b")), None, "the host was restarted");
        std::fs::write(&file, "{").unwrap();
        assert_eq!(recall(&file, &key("a")), None, "a damaged file is no verdict");
    }

    #[test]
    fn missing_kvm_device_is_named() {
        assert_eq!(open_kvm(Path::new("/dev/no-kvm")).unwrap_err(), "/dev/no-kvm does not exist");
    }
}
