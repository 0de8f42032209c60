//! The daemon's own log, if a command started it: a log that has grown too large becomes the older one, and the standard
//! streams go on in a fresh one. So both together have a bound, however long the daemon runs. One that somebody removed or
//! moved is made again: what has no name would grow where nobody sees it.
//!
//! A daemon that somebody runs in the foreground, or under a service manager, writes elsewhere and is left alone.

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstat;

/// A log that has grown beyond this is put aside.
pub(crate) const MAX_LOG_BYTES: u64 = 8 << 20;

/// How often to look. A daemon that logs some thousand lines a second exceeds the bound by little.
const LOOK: Duration = Duration::from_secs(5);

/// Where a log is put aside.
pub(crate) fn older(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// Keeps the log in bounds for as long as it is polled.
pub(crate) async fn keep_in_bounds(log: PathBuf) -> Infallible {
    let mut tick = tokio::time::interval(LOOK);
    let mut is_ours = false;
    loop {
        tick.tick().await;
        let turned = turn(&log, io::stderr(), MAX_LOG_BYTES, &mut is_ours).and_then(|fresh| match fresh {
            Some(fresh) => {
                rustix::stdio::dup2_stdout(&fresh)?;
                rustix::stdio::dup2_stderr(&fresh)?;
                Ok(())
            }
            None => Ok(()),
        });
        if let Err(error) = turned {
            tracing::warn!(log = %log.display(), %error, "the daemon's log cannot be put aside");
        }
    }
}

/// Puts a log aside if it is the one that is written to and has grown too large; gives the fresh one. The same if it was
/// the one that is written to and is not any more.
fn turn(log: &Path, written_to: impl AsFd, max_bytes: u64, is_ours: &mut bool) -> io::Result<Option<File>> {
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
    // Made first: if it cannot be, everything stays as it is and is tried again.
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
        assert!(turn(&log, &writer, 10, is_ours).unwrap().is_none(), "at the bound it stays");
        for round in 0..3 {
            writer.write_all(b"and more").unwrap();
            writer = turn(&log, &writer, 10, is_ours).unwrap().expect("a fresh log");
            writer.write_all(format!("round {round}, fresh").as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "round 2, fresh");
        assert_eq!(fs::read_to_string(older(&log)).unwrap(), "round 1, freshand more");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn log_that_was_removed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        let mut writer = File::create(&log).unwrap();
        let is_ours = &mut false;
        assert!(turn(&log, &writer, 10, is_ours).unwrap().is_none());
        fs::remove_file(&log).unwrap();
        writer = turn(&log, &writer, 10, is_ours).unwrap().expect("a fresh log");
        writer.write_all(b"on").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "on");
        fs::rename(&log, dir.path().join("moved")).unwrap();
        fs::write(&log, "go ").unwrap();
        writer = turn(&log, &writer, 10, is_ours).unwrap().expect("the one that has the name");
        writer.write_all(b"on").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "go on");
        assert!(turn(&log, &writer, 10, is_ours).unwrap().is_none());
    }

    #[test]
    fn log_of_somebody_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        let elsewhere = File::create(dir.path().join("journal")).unwrap();
        let is_ours = &mut false;
        assert!(turn(&log, &elsewhere, 0, is_ours).unwrap().is_none(), "there is none");
        fs::write(&log, "of another run").unwrap();
        assert!(turn(&log, &elsewhere, 0, is_ours).unwrap().is_none());
        assert_eq!(fs::read_to_string(&log).unwrap(), "of another run");
    }
}
