//! Checks the host's programs, directories, memory and disk space.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use agentiso_core::config::{Config, Paths};
use agentiso_sys::{command, files};

use super::report::Outcome;
use crate::output;

/// The longest path of a unix socket, without its terminating NUL (sun_path in unix(7)).
pub(super) const MAX_SOCKET_PATH: usize = 107;

/// The end of the longest socket path of a workspace, below the run directory.
const LONGEST_SOCKET: &str = "/01234567/agent.sock";

/// Free space below which the first workspaces fill the disk.
const LITTLE_SPACE: u64 = 2 << 30;

/// Checks for the programs that build images and export snapshots. Existing images work without them.
pub(super) fn image_tools(image_is_there: bool) -> Outcome {
    const TOOLS: [(&str, &str); 3] =
        [("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs"), ("qemu-img", "qemu-utils")];
    let missing: Vec<_> = TOOLS.iter().filter(|(program, _)| command::find(program).is_none()).collect();
    if missing.is_empty() {
        return Outcome::ok("image tools", "mmdebstrap, mke2fs, qemu-img");
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    let detail = format!("{} not found", programs.join(", "));
    let fix = format!("apt-get install {}", packages.join(" "));
    if image_is_there {
        Outcome::note("image tools", format!("{detail}; needed to build images and to export snapshots"), fix)
    } else {
        Outcome::failed("image tools", detail, fix)
    }
}

/// Makes the directories that agentiso writes to and checks that they are writable.
pub(super) fn directories(paths: &Paths) -> Vec<Outcome> {
    [
        ("state", &paths.data, "server.state_file"),
        ("sockets", &paths.run, "vm.run_dir"),
        ("transfers", &paths.transfer, "server.transfer_dir"),
    ]
    .into_iter()
    .map(|(name, dir, key)| directory(name, dir, key))
    .collect()
}

fn directory(name: &'static str, dir: &Path, key: &str) -> Outcome {
    let fix = format!("make {} writable for your user, or set {key} in the configuration", dir.display());
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    if let Err(error) = made {
        return Outcome::failed(name, format!("cannot create {}: {error}", dir.display()), fix);
    }
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if let Err(error) = rustix::fs::access(dir, access) {
        return Outcome::failed(name, format!("cannot write to {}: {error}", dir.display()), fix);
    }
    let uid = rustix::process::geteuid().as_raw();
    if dir.metadata().is_ok_and(|metadata| metadata.uid() != uid && uid != 0) {
        return Outcome::note(name, format!("{} belongs to another user", dir.display()), fix);
    }
    Outcome::ok(name, dir.display().to_string())
}

pub(super) fn socket_length(run: &Path) -> Option<Outcome> {
    let length = run.as_os_str().as_bytes().len() + LONGEST_SOCKET.len();
    (length > MAX_SOCKET_PATH).then(|| {
        Outcome::failed(
            "socket paths",
            format!(
                "{} is too long: a socket path in it would have {length} bytes, the limit is {MAX_SOCKET_PATH}",
                run.display()
            ),
            "set vm.run_dir in the configuration to a shorter path",
        )
    })
}

/// Checks that at least one workspace of the default size fits into memory.
pub(super) fn memory(config: &Config) -> Outcome {
    const NAME: &str = "memory";
    let wanted = u64::from(config.resources.default_memory_mb) << 20;
    let Some(available) = available_memory() else {
        return Outcome::note(
            NAME,
            "available memory is unknown: /proc/meminfo has no MemAvailable",
            "nothing to do",
        );
    };
    let detail = format!("{} available, {} per workspace", output::size(available), output::size(wanted));
    if available < wanted {
        Outcome::failed(NAME, detail, "free memory, or lower resources.default_memory_mb")
    } else {
        Outcome::ok(NAME, detail)
    }
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

pub(super) fn space(paths: &Paths) -> Outcome {
    const NAME: &str = "disk space";
    match files::space(&paths.data) {
        Ok(space) => {
            let detail = format!("{} free in {}", output::size(space.free_bytes), paths.data.display());
            if space.free_bytes < LITTLE_SPACE {
                Outcome::note(NAME, detail, "free some space, or move server.state_file to a larger disk")
            } else {
                Outcome::ok(NAME, detail)
            }
        }
        Err(error) => {
            Outcome::note(NAME, format!("unknown: {}", error.source), "make the state directory readable")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_socket_paths_fail_the_check() {
        assert!(socket_length(Path::new("/run/agentiso")).is_none());
        let deep = format!("/{}", "x".repeat(100));
        assert!(socket_length(Path::new(&deep)).is_some_and(|outcome| outcome.fix.is_some()));
    }

    #[test]
    fn unusable_directory_names_its_configuration_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let outcome = directory("state", &file.join("below"), "server.state_file");
        assert_eq!(outcome.verdict, super::super::report::Verdict::Failed);
        assert!(outcome.fix.unwrap().contains("server.state_file"));
    }

    #[test]
    fn available_memory_is_read_from_meminfo() {
        assert!(available_memory().is_some_and(|bytes| bytes > 0));
    }
}
