//! Finds the installed QEMU and checks its version.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use agentiso_sys::command::{CommandError, Tool, which};
use agentiso_sys::files::FileError;

/// The oldest supported QEMU: the first that migrates to plain files and maps RAM files read-only.
pub const OLDEST: QemuVersion = QemuVersion { major: 8, minor: 2 };

const PACKAGE: &str = "qemu-system-x86";

/// A QEMU outside the system's directories may need these, and has them when it runs a VM.
const LIBRARIES: [&str; 2] = ["LD_LIBRARY_PATH", "TMPDIR"];

/// `--version` prints a line; a minute means that the disk or the host is stuck.
const VERSION_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QemuVersion {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug, Error)]
pub enum QemuError {
    #[error("QEMU is not installed: {} was not found in PATH; install the package qemu-system-x86", .0.display())]
    NotFound(PathBuf),
    #[error(transparent)]
    Run(#[from] CommandError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} --version printed no version, but {text:?}", path.display())]
    NoVersion { path: PathBuf, text: String },
    #[error("{} is QEMU {version}; {OLDEST} or newer is needed", path.display())]
    TooOld { path: PathBuf, version: QemuVersion },
}

/// A QEMU binary, identified so that another build of the same version is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qemu {
    pub path: PathBuf,
    pub version: QemuVersion,
    /// The whole first line of `--version`, with the distribution's build.
    pub version_line: String,
    pub size: u64,
    pub modified_ns: u64,
}

impl Qemu {
    pub async fn find(binary: &Path) -> Result<Self, QemuError> {
        let path = which(binary, std::env::var_os("PATH").as_deref())
            .ok_or(QemuError::NotFound(binary.to_owned()))?;
        let meta = path.metadata().map_err(FileError::at("read", &path))?;
        let asked = Tool::new(&path, PACKAGE, VERSION_DEADLINE).args(["--version"]).keep(&LIBRARIES);
        let done = asked.run().await?;
        let version_line = done.stdout.lines().next().unwrap_or_default().trim().to_owned();
        let version = parse_version(&version_line)
            .ok_or_else(|| QemuError::NoVersion { path: path.clone(), text: version_line.clone() })?;
        if version < OLDEST {
            return Err(QemuError::TooOld { path, version });
        }
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = modified.map_or(0, |age| age.as_nanos() as u64);
        Ok(Self { path, version, version_line, size: meta.len(), modified_ns })
    }
}

fn parse_version(line: &str) -> Option<QemuVersion> {
    let rest = line.split("version ").nth(1)?;
    let number = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = number.split('.');
    Some(QemuVersion { major: parts.next()?.parse().ok()?, minor: parts.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_versions_of_distributions_are_parsed() {
        let cases = [
            ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1)", Some((10, 0))),
            ("QEMU emulator version 8.2.0", Some((8, 2))),
            ("QEMU emulator version 9.1.50 (v9.1.0-rc1-dirty)", Some((9, 1))),
            ("QEMU emulator version x", None),
            ("", None),
        ];
        for (line, expected) in cases {
            let version = expected.map(|(major, minor)| QemuVersion { major, minor });
            assert_eq!(parse_version(line), version, "{line}");
        }
    }

    #[test]
    fn qemu_versions_are_ordered_numerically() {
        assert!(QemuVersion { major: 10, minor: 0 } > OLDEST);
        assert!(QemuVersion { major: 7, minor: 9 } < OLDEST);
        assert!(QemuVersion { major: 8, minor: 1 } < OLDEST);
    }

    #[tokio::test]
    async fn program_that_is_no_qemu_is_refused() {
        let error = Qemu::find(Path::new("true")).await.unwrap_err();
        assert!(matches!(error, QemuError::NoVersion { .. }), "{error}");
        let error = Qemu::find(Path::new("no-such-qemu")).await.unwrap_err();
        assert!(error.to_string().contains("install"), "{error}");
    }
}
