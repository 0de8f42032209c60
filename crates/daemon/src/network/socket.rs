//! The sockets to which the cards of machines at the gateway connect.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agentiso_core::config::Paths;
use tokio::net::UnixListener;

/// A socket that goes when this is dropped.
#[derive(Debug)]
pub(super) struct Socket(PathBuf);

impl Socket {
    /// Listens in place of a daemon that is gone.
    pub(super) fn listen(path: PathBuf) -> io::Result<(Self, UnixListener)> {
        remove(&path)?;
        let listener = UnixListener::bind(&path)?;
        let socket = Self(path);
        // The directory admits only its owner; the socket's own mode says so again.
        fs::set_permissions(&socket.0, fs::Permissions::from_mode(0o600))?;
        Ok((socket, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(socket = %self.0.display(), %error, "a socket is left");
        }
    }
}

/// Removes the sockets of an earlier daemon; every workspace gets its own again.
pub(super) fn sweep(run: &Path) -> io::Result<()> {
    for entry in fs::read_dir(run)?.flatten() {
        if Paths::is_workspace_net(&entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(socket: &Path) -> io::Result<()> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
