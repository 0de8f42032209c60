//! The socket file. It appears under its name only when it accepts connections, and replaces a stale one in the same
//! step, so that no client ever finds a socket that this daemon does not listen on yet or any more.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::UnixListener;

#[derive(Debug, Error)]
pub enum BindError {
    #[error("cannot create the socket {path}: {source}")]
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
    /// Only the holder of the daemon's lock may call it: an existing socket is taken for that of a dead daemon.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { path: path.into(), source };
        let unpublished = path.with_file_name(format!(".d{}", std::process::id()));
        match fs::remove_file(&unpublished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let socket = UnixListener::bind(&unpublished).map_err(failed)?;
        let published = fs::set_permissions(&unpublished, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(&unpublished, path));
        if let Err(error) = published {
            // The first failure is the one to report.
            let _ = fs::remove_file(&unpublished);
            return Err(failed(error));
        }
        Ok(Self { socket, path: path.into() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "the socket was already gone");
        }
    }
}
