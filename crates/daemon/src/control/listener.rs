//! The socket file. It appears under its name only when it accepts connections, and replaces a stale one in the
//! same step, so that nobody ever meets a socket that is not yet or no longer listened on by us.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::UnixListener;

#[derive(Debug, Error)]
pub enum BindError {
    #[error("the socket {path} cannot be made: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Only the holder of the daemon's lock may call it: a socket that is there is taken for a dead daemon's.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { path: path.into(), source };
        let unborn = path.with_file_name(format!(".d{}", std::process::id()));
        match fs::remove_file(&unborn) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let socket = UnixListener::bind(&unborn).map_err(failed)?;
        let published = fs::set_permissions(&unborn, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&unborn, path));
        if let Err(error) = published {
            // The failure that counts is the first.
            let _ = fs::remove_file(&unborn);
            return Err(failed(error));
        }
        Ok(Self { socket, path: path.into() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "was gone already");
        }
    }
}
