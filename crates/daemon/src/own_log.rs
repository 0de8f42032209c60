//! Bounds the daemon's own log, if a command started the daemon.
//!
//! A log that has grown too large becomes the older one, and the standard streams continue in a fresh one, so both
//! together have a bound however long the daemon runs. A log that was removed or moved is created again, because a
//! file without a name would grow unseen.
//!
//! A daemon that runs in the foreground or under a service manager writes elsewhere and is left alone.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstat;

/// A log larger than this is put aside.
pub(crate) const MAX_LOG_BYTES: u64 = 8 << 20;

/// The interval of the checks. A daemon that logs some thousand lines a second exceeds the bound by little.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The path that a log is moved to.
pub(crate) fn older(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// Keeps the log within its bound for as long as it is polled.
pub(crate) async fn keep_in_bounds(log: PathBuf) -> Infallible {
    let mut tick = tokio::time::interval(CHECK_INTERVAL);
    let mut is_ours = false;
    loop {
        tick.tick().await;
        let turned = rotate(&log, io::stderr(), MAX_LOG_BYTES, &mut is_ours).and_then(|fresh| match fresh {
            Some(fresh) => {
                rustix::stdio::dup2_stdout(&fresh)?;
                rustix::stdio::dup2_stderr(&fresh)?;
                Ok(())
            }
            None => Ok(()),
        });
        if let Err(error) = turned {
            tracing::warn!(log = %log.display(), %error, "cannot rotate the daemon's log");
        }
    }
}

/// Puts the log aside if it is the file being written and has grown too large, and returns the fresh one. Does the
/// same if it was the file being written and no longer is.
fn rotate(log: &Path, written_to: impl AsFd, max_bytes: u64, is_ours: &mut bool) -> io::Result<Option<File>> {
    let open = |path: &Path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let current = fstat(&written_to)?;
    let found = match fs::metadata(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found?),
    };
    let same = |found: &fs::Metadata| (found.dev(), found.ino()) == (current.st_dev, current.st_ino);
    let Some(found) = found.filter(same) else {
        return is_ours.then(|| open(log)).transpose();
    };
    *is_ours = true;
    if found.len() <= max_bytes {
        return Ok(None);
    }
    // The new file comes first: if it cannot be made, everything stays as it is and is tried again.
    let made = log.with_extension("log.new");
    let fresh = open(&made)?;
    fs::rename(log, older(log))?;
    fs::rename(&made, log)?;
    Ok(Some(fresh))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn full_log_is_put_aside_while_written() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        let mut writer = OpenOptions::new().append(true).create(true).open(&log).unwrap();
        writer.write_all(b"0123456789").unwrap();
        let is_ours = &mut false;
        assert!(rotate(&log, &writer, 10, is_ours).unwrap().is_none(), "at the bound it stays");
        for round in 0..3 {
            writer.write_all(b"and more").unwrap();
            writer = rotate(&log, &writer, 10, is_ours).unwrap().expect("a fresh log");
            writer.write_all(format!("round {round}, fresh").as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "round 2, fresh");
        assert_eq!(fs::read_to_string(older(&log)).unwrap(), "round 1, freshand more");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn removed_log_is_recreated() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        let mut writer = File::create(&log).unwrap();
        let is_ours = &mut false;
        assert!(rotate(&log, &writer, 10, is_ours).unwrap().is_none());
        fs::remove_file(&log).unwrap();
        writer = rotate(&log, &writer, 10, is_ours).unwrap().expect("a fresh log");
        writer.write_all(b"on").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "on");
        fs::rename(&log, dir.path().join("moved")).unwrap();
        fs::write(&log, "go ").unwrap();
        writer = rotate(&log, &writer, 10, is_ours).unwrap().expect("the one that has the name");
        writer.write_all(b"on").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "go on");
        assert!(rotate(&log, &writer, 10, is_ours).unwrap().is_none());
    }

    #[test]
    fn foreign_log_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        let elsewhere = File::create(dir.path().join("journal")).unwrap();
        let is_ours = &mut false;
        assert!(rotate(&log, &elsewhere, 0, is_ours).unwrap().is_none(), "there is none");
        fs::write(&log, "of another run").unwrap();
        assert!(rotate(&log, &elsewhere, 0, is_ours).unwrap().is_none());
        assert_eq!(fs::read_to_string(&log).unwrap(), "of another run");
    }
}
