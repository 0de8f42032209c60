//! The sockets to which the network cards of VMs at the gateway connect.
//!
//! ```text
//! n-0f8fad5b.d/s                    the socket; its directory is what the VM's QEMU sees in its jail
//! n-0f8fad5b -> n-0f8fad5b.d/s      for VMs that were started by versions that had no directory
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use agentiso_core::config::Paths;
use agentiso_core::ids::WorkspaceId;
use tokio::net::UnixListener;

/// A socket that is removed when this is dropped. Its directory stays: a VM that outlives the daemon has it in its
/// jail.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    earlier: PathBuf,
}

impl Socket {
    /// Listens on the socket, after removing the one of an earlier daemon.
    pub(super) fn listen(paths: &Paths, id: &WorkspaceId) -> io::Result<(Self, UnixListener)> {
        let socket = Self { path: paths.workspace_net(id), earlier: paths.earlier_workspace_net(id) };
        let dir = socket.path.parent().unwrap_or(Path::new("/"));
        // An existing directory is kept: a running VM has exactly this directory in its jail.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        remove(&socket.path)?;
        let listener = UnixListener::bind(&socket.path)?;
        // The directory already admits only its owner; the socket's mode does so again.
        fs::set_permissions(&socket.path, fs::Permissions::from_mode(0o600))?;
        if agentiso_sys::jail::gives_users() {
            // The VM has a user of its own.
            let user = Some(agentiso_sys::jail::uid_of(*id));
            chown(dir, user, user)?;
            chown(&socket.path, user, user)?;
        }
        remove(&socket.earlier)?;
        symlink(&socket.path, &socket.earlier)?;
        Ok((socket, listener))
    }

    /// Removes the directory too, because no VM will connect any more.
    pub(super) fn retire(self) {
        let dir = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        drop(self);
        if let Err(error) = fs::remove_dir(&dir) {
            tracing::warn!(dir = %dir.display(), %error, "cannot remove the directory of a socket");
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        for path in [&self.earlier, &self.path] {
            if let Err(error) = remove(path) {
                tracing::warn!(socket = %path.display(), %error, "cannot remove a socket");
            }
        }
    }
}

/// Removes the sockets of an earlier daemon; every workspace gets a new one. Directories stay, because running VMs
/// have them in their jails.
pub(super) fn sweep(run: &Path) -> io::Result<()> {
    for entry in fs::read_dir(run)?.flatten() {
        if Paths::workspace_of_net(&entry.file_name()).is_some() {
            match entry.file_type()?.is_dir() {
                true => remove(&entry.path().join("s"))?,
                false => remove(&entry.path())?,
            }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn paths(dir: &Path) -> Paths {
        let text = format!("[vm]\nrun_dir = {dir:?}\n");
        let dirs = agentiso_core::config::UserDirs {
            uid: 1000,
            home: dir.into(),
            state_home: None,
            runtime_dir: None,
        };
        agentiso_core::config::Config::parse(&text, &dirs).unwrap().paths
    }

    #[tokio::test]
    async fn socket_directory_outlives_its_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let (paths, id) = (paths(dir.path()), WorkspaceId::random());
        let (socket, _listener) = Socket::listen(&paths, &id).unwrap();
        let seen_by_vm = fs::File::open(paths.workspace_net(&id).parent().unwrap()).unwrap();
        drop(socket);
        assert!(!paths.workspace_net(&id).exists());
        let (socket, _listener) = Socket::listen(&paths, &id).unwrap();
        let now = fs::metadata(paths.workspace_net(&id).parent().unwrap()).unwrap();
        assert_eq!(seen_by_vm.metadata().unwrap().ino(), now.ino());
        socket.retire();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
