//! Finds and removes strays: processes and run directories that a killed daemon left behind.
//!
//! A process is ours if this user runs it, or the user that root assigned to it, its `-name` is one of ours, and its
//! `-pidfile` is in our run directory, by whatever path. All others are left alone, including VMs of another daemon
//! with another run directory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_sys::files::FileError;
use agentiso_sys::jail::uid_of;
use agentiso_sys::process::{Process, ProcessError, VmRecord, host_boot_id, start_time_of};
use agentiso_vm::{Stray, TEMPLATE_BUILD};
use thiserror::Error;

use crate::qemu::argv::NAME_PREFIX;

const ROOT: u32 = 0;

/// A killed process is gone as soon as the kernel has freed its memory.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// The files in a VM's run directory, and the socket in the directory of its network card.
const OWN_FILES: [&str; 9] = [
    "qmp.sock",
    "agent.sock",
    "tty.sock",
    "net.sock",
    "qemu.pid",
    "console.log",
    "stderr.log",
    "stderr.pipe",
    "s",
];

#[derive(Debug, Error)]
pub enum StrayError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("process {pid} did not end within {} s of being killed", KILL_DEADLINE.as_secs())]
    Survived { pid: i32 },
}

/// The VMs below `run_root` that are neither among the known ones nor children of this process.
pub fn find_strays(run_root: &Path, known: &HashSet<VmRecord>) -> Result<Vec<Stray>, FileError> {
    let mut found = vms(run_root)?;
    found.retain(|stray| !known.contains(&stray.record));
    Ok(found)
}

fn vms(run_root: &Path) -> Result<Vec<Stray>, FileError> {
    let proc = Path::new("/proc");
    let us = rustix::process::getuid().as_raw();
    let our_pid = std::process::id();
    let boot_id = host_boot_id();
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).map_err(FileError::at("read", proc))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // A process that ends meanwhile is no stray.
        let Ok(meta) = entry.metadata() else { continue };
        let Ok(cmdline) = fs::read(entry.path().join("cmdline")) else { continue };
        let Some((id, run_dir)) = recognise(&cmdline, run_root) else { continue };
        // A VM that root started runs as its own user, which is derived from its id.
        let is_ours = meta.uid() == us || (us == ROOT && meta.uid() == uid_of(id));
        if !is_ours || parent_of(&entry.path()) == Some(our_pid) {
            continue;
        }
        let Some(start_time) = start_time_of(pid) else { continue };
        found.push(Stray { record: VmRecord { pid, start_time, boot_id: boot_id.clone() }, id, run_dir });
    }
    Ok(found)
}

/// The result of reading the command line of a recorded process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// It is the VM, with its sockets in this run directory.
    Vm,
    /// It is the VM, with its sockets in another run directory.
    Elsewhere(PathBuf),
    /// It is another process.
    Other,
}

/// Compares the command line of a process with that of its VM.
pub(crate) fn command_line_of(pid: i32, id: WorkspaceId, run_dir: &Path) -> Result<Says, FileError> {
    let path = PathBuf::from(format!("/proc/{pid}/cmdline"));
    let cmdline = fs::read(&path).map_err(FileError::at("read", &path))?;
    Ok(match marks(&cmdline) {
        Some((found, dir)) if found == id && dir.file_name() == run_dir.file_name() => {
            let is_here = match (dir.parent(), run_dir.parent()) {
                (Some(root), Some(ours)) => is_same_directory(root, ours),
                (_, _) => false,
            };
            if is_here { Says::Vm } else { Says::Elsewhere(dir) }
        }
        Some(_) | None => Says::Other,
    })
}

/// The id and run directory in a command line, if both are ours and the directory is below `run_root`.
fn recognise(cmdline: &[u8], run_root: &Path) -> Option<(WorkspaceId, PathBuf)> {
    let (id, run_dir) = marks(cmdline)?;
    let (root, name) = (run_dir.parent()?, run_dir.file_name()?);
    is_same_directory(root, run_root).then(|| (id, run_root.join(name)))
}

/// The id in a command line, and the run directory that is named after it.
fn marks(cmdline: &[u8]) -> Option<(WorkspaceId, PathBuf)> {
    let args: Vec<&[u8]> = cmdline.split(|b| *b == 0).collect();
    let value = |flag: &[u8]| args.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1]);
    let name = std::str::from_utf8(value(b"-name")?).ok()?;
    let id: WorkspaceId = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
    let run_dir = Path::new(OsStr::from_bytes(value(b"-pidfile")?)).parent()?;
    // A process can change its own command line, but it cannot claim another VM's directory this way.
    let name = run_dir.file_name()?.to_str()?;
    let is_own = name.strip_prefix(TEMPLATE_BUILD).unwrap_or(name) == id.short();
    is_own.then(|| (id, run_dir.to_owned()))
}

/// Whether two paths lead to the same directory, for example through a link or a mount.
fn is_same_directory(one: &Path, other: &Path) -> bool {
    let node = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    one == other || node(one).is_some_and(|found| node(other) == Some(found))
}

fn parent_of(proc_dir: &Path) -> Option<u32> {
    let status = fs::read_to_string(proc_dir.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Ends a stray and removes its sockets. Does nothing to a process that has the same pid but is another one.
pub async fn remove_stray(stray: &Stray) -> Result<(), StrayError> {
    if let Some(process) = Process::find(&stray.record)? {
        process.kill();
        let gone = tokio::time::timeout(KILL_DEADLINE, process.wait()).await;
        gone.map_err(|_elapsed| StrayError::Survived { pid: stray.record.pid })?;
    }
    remove_run_dir(&stray.run_dir)?;
    Ok(())
}

/// Removes a VM's files from its run directory, and the directory if it is empty then. Returns whether it is gone.
pub fn remove_run_dir(run_dir: &Path) -> Result<bool, FileError> {
    for name in OWN_FILES {
        let path = run_dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::at("remove", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    match fs::remove_dir(run_dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(FileError::at("remove", run_dir)(error)),
    }
}

/// The directories in `root` whose names are ours, except those of known workspaces. Files, and directories with other
/// names, are not ours to remove.
fn stray_dirs(root: &Path, known: &HashSet<String>, is_ours: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_ours(name) && !known.contains(name)))
        .map(|entry| entry.path())
        .collect()
}

/// The run directories that belong to no known workspace, including those of template builds.
pub fn stray_run_dirs(run_root: &Path, known: &HashSet<WorkspaceId>) -> Vec<PathBuf> {
    let names = known.iter().map(WorkspaceId::short).collect();
    let is_short = |name: &str| {
        name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let mut found =
        stray_dirs(run_root, &names, |name| is_short(name.strip_prefix(TEMPLATE_BUILD).unwrap_or(name)));
    // The directory of the socket of its network card.
    found.extend(stray_dirs(run_root, &HashSet::new(), |name| {
        let short = name.strip_prefix("n-").and_then(|name| name.strip_suffix(".d"));
        short.is_some_and(|short| is_short(short) && !names.contains(short))
    }));
    found
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use super::*;

    const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn cmdline(args: &[&str]) -> Vec<u8> {
        args.join("\0").into_bytes()
    }

    #[test]
    fn own_vms_are_recognised_by_command_line() {
        let ours =
            cmdline(&["qemu", "-name", &format!("agentiso-{ID}"), "-pidfile", "/run/a/0f8fad5b/qemu.pid"]);
        let (id, dir) = recognise(&ours, Path::new("/run/a")).unwrap();
        assert_eq!((id.to_string().as_str(), dir.as_path()), (ID, Path::new("/run/a/0f8fad5b")));
        assert_eq!(recognise(&ours, Path::new("/run/b")), None, "another daemon's");
        assert_eq!(recognise(&ours, Path::new("/run")), None, "a directory further up");
    }

    #[test]
    fn similar_foreign_processes_are_not_recognised() {
        let name = format!("agentiso-{ID}");
        let cases: [&[&str]; 6] = [
            &["vim", "agentiso-x", "/run/a/0f8fad5b/qemu.pid"],
            &["qemu", "-name", "agentiso-x", "-pidfile", "/run/a/0f8fad5b/qemu.pid"],
            &["qemu", "-name", "other", "-pidfile", "/run/a/0f8fad5b/qemu.pid"],
            &["qemu", "-name", &name],
            &["qemu", "-name"],
            &["qemu", "-name", &name, "-pidfile", "/run/a/11111111/qemu.pid"],
        ];
        for args in cases {
            assert_eq!(recognise(&cmdline(args), Path::new("/run/a")), None, "{args:?}");
        }
        assert_eq!(recognise(b"", Path::new("/run/a")), None);
        assert_eq!(recognise(b"\xff\0-name\0\xff\0", Path::new("/run/a")), None);
    }

    #[test]
    fn vms_are_recognised_through_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        let (run, link) = (dir.path().join("run"), dir.path().join("link"));
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&run, &link).unwrap();
        for (started, looking) in [(&run, &link), (&link, &run)] {
            let pid_file = started.join("0f8fad5b/qemu.pid");
            let name = format!("agentiso-{ID}");
            let ours = cmdline(&["qemu", "-name", &name, "-pidfile", pid_file.to_str().unwrap()]);
            assert_eq!(recognise(&ours, looking).unwrap().1, looking.join("0f8fad5b"));
        }
    }

    #[tokio::test]
    async fn command_line_identifies_vm_and_run_directory() {
        let id = WorkspaceId::random();
        let run_dir = Path::new("/run/a").join(id.short());
        let started = |name: String, pid_file: PathBuf| {
            let mut command = tokio::process::Command::new("sh");
            command.args(["-c", "kill -STOP $$", "x", "-name", &name, "-pidfile"]);
            command.arg(pid_file).kill_on_drop(true).spawn().unwrap()
        };
        let (name, here) = (format!("agentiso-{id}"), run_dir.join("qemu.pid"));
        let elsewhere = Path::new("/run/b").join(id.short());
        let cases = [
            (name.clone(), here.clone(), Says::Vm),
            (name, elsewhere.join("qemu.pid"), Says::Elsewhere(elsewhere)),
            (format!("agentiso-{ID}"), here.clone(), Says::Other),
            ("something else".to_owned(), here, Says::Other),
        ];
        for (name, pid_file, says) in cases {
            let process = started(name, pid_file);
            let pid = process.id().unwrap() as i32;
            // For a moment after the start the command line is that of this program, then it is empty: the kernel lets
            // the parent of a vfork go on before the child has its own memory.
            let own = async {
                while !fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"sh\0") {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), own).await.unwrap();
            assert_eq!(command_line_of(pid, id, &run_dir).unwrap(), says);
        }
    }

    #[test]
    fn foreign_files_stay_in_run_directories() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("0f8fad5b");
        fs::create_dir(&run_dir).unwrap();
        for name in OWN_FILES.iter().chain(&["thesis.tex"]) {
            fs::write(run_dir.join(name), "x").unwrap();
        }
        assert!(!remove_run_dir(&run_dir).unwrap());
        assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 1);
        fs::remove_file(run_dir.join("thesis.tex")).unwrap();
        assert!(remove_run_dir(&run_dir).unwrap() && !run_dir.exists());
        assert!(remove_run_dir(&run_dir).unwrap(), "nothing is as good as removed");
    }

    #[test]
    fn only_directories_named_like_workspaces_are_strays() {
        let dir = tempfile::tempdir().unwrap();
        let (known, unknown) = (WorkspaceId::random(), WorkspaceId::random());
        for name in [known.to_string(), unknown.to_string(), "precious".to_owned(), unknown.short()] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join(WorkspaceId::random().to_string()), "a file").unwrap();
        assert_eq!(stray_run_dirs(dir.path(), &HashSet::new()), [dir.path().join(unknown.short())]);
        assert_eq!(stray_run_dirs(dir.path(), &HashSet::from([unknown])), Vec::<PathBuf>::new());
    }

    #[tokio::test]
    async fn process_with_reused_pid_is_not_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut bystander =
            tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let pid = bystander.id().unwrap() as i32;
        let start_time = start_time_of(pid).unwrap() + 1;
        let record = VmRecord { pid, start_time, boot_id: host_boot_id() };
        let run_dir = dir.path().join("gone");
        remove_stray(&Stray { record, id: WorkspaceId::random(), run_dir }).await.unwrap();
        assert!(bystander.try_wait().unwrap().is_none());
    }
}
