//! The directories and files in use, derived from the configuration and the user's directories.

use std::path::PathBuf;

use super::sections::File;

/// The user's directories, from the environment. The program reads them once and passes them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDirs {
    pub uid: u32,
    pub home: PathBuf,
    /// `XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`
    pub runtime_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The directory of the state file. Everything that is neither shared nor volatile is below it.
    pub data: PathBuf,
    pub state_file: PathBuf,
    pub workspaces: PathBuf,
    /// Inboxes of the members of teams.
    pub mail: PathBuf,
    pub transfer: PathBuf,
    pub images: PathBuf,
    pub kernels: PathBuf,
    pub initramfs: PathBuf,
    pub templates: PathBuf,
    /// Sockets. The path is short, because a unix socket's path has at most 107 bytes.
    pub run: PathBuf,
}

impl Paths {
    pub(super) fn resolve(file: &File, dirs: &UserDirs) -> Self {
        let is_root = dirs.uid == 0;
        let default_data = || match (is_root, &dirs.state_home) {
            (true, _) => PathBuf::from("/var/lib/agentiso"),
            (false, Some(state)) => state.join("agentiso"),
            (false, None) => dirs.home.join(".local/state/agentiso"),
        };
        let state_file = file.server.state_file.clone().unwrap_or_else(|| default_data().join("state.json"));
        let data = state_file.parent().map_or_else(default_data, PathBuf::from);
        let run = match (&file.vm.run_dir, &file.server.state_file, &dirs.runtime_dir) {
            (Some(run), _, _) => run.clone(),
            // A daemon with its own state file must not share the run directory of the default daemon.
            (None, Some(_), _) => data.join("run"),
            (None, None, _) if is_root => PathBuf::from("/run/agentiso"),
            (None, None, Some(runtime)) => runtime.join("agentiso"),
            (None, None, None) => data.join("run"),
        };
        let cache = file.storage.cache_dir.clone().unwrap_or_else(|| data.clone());
        Self {
            workspaces: data.join("workspaces"),
            mail: data.join("mail"),
            transfer: file.server.transfer_dir.clone().unwrap_or_else(|| data.join("transfers")),
            images: cache.join("images"),
            kernels: cache.join("kernels"),
            initramfs: cache.join("initramfs"),
            templates: cache.join("templates"),
            state_file,
            data,
            run,
        }
    }

    /// The directory of one workspace's sockets.
    pub fn workspace_run(&self, id: &crate::ids::WorkspaceId) -> PathBuf {
        self.run.join(id.short())
    }

    /// The socket to which its network card connects. Its directory is all that QEMU sees of the run directory, and
    /// stays as long as the VM, while every daemon makes the socket anew.
    pub fn workspace_net(&self, id: &crate::ids::WorkspaceId) -> PathBuf {
        self.run.join(format!("n-{}.d", id.short())).join("s")
    }

    /// The path of that socket for VMs that were started by versions without the directory.
    pub fn earlier_workspace_net(&self, id: &crate::ids::WorkspaceId) -> PathBuf {
        self.run.join(format!("n-{}", id.short()))
    }

    /// The short id of the workspace, if this entry of the run directory is such a socket or its directory.
    pub fn workspace_of_net(name: &std::ffi::OsStr) -> Option<&str> {
        let short = name.to_str()?.strip_prefix("n-")?;
        let short = short.strip_suffix(".d").unwrap_or(short);
        (short.len() == 8 && short.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(short)
    }

    /// The disk of an image, whether it exists or not.
    pub fn image_disk(&self, name: &crate::names::ImageName) -> PathBuf {
        self.images.join(name.as_str()).join("disk.qcow2")
    }

    pub fn workspace_data(&self, id: &crate::ids::WorkspaceId) -> PathBuf {
        self.workspaces.join(id.to_string())
    }

    pub fn daemon_socket(&self) -> PathBuf {
        self.run.join("daemon.sock")
    }

    pub fn lock_file(&self) -> PathBuf {
        self.data.join("agentiso.lock")
    }

    /// The lock of the one `agentiso orchestrate` that runs.
    pub fn orchestrate_lock(&self) -> PathBuf {
        self.data.join("orchestrate.lock")
    }

    pub fn daemon_log(&self) -> PathBuf {
        self.data.join("daemon.log")
    }

    /// The token of HTTP clients, unless `--token-file` names another file.
    pub fn http_token(&self) -> PathBuf {
        self.data.join("http-token")
    }

    /// The directory of templates if they cannot be kept beside the images.
    pub fn own_templates(&self) -> PathBuf {
        self.data.join("templates")
    }

    pub fn probe_file(&self) -> PathBuf {
        self.data.join("probe.json")
    }
}
