//! The view of the host that one program gets, prepared so that its child need only make system calls.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::filter::Filter;
use super::kind::Jail;
use super::landlock::Rules;

/// The way in which a file or directory of the host is shown in the jail, under the same path as outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    ReadOnly,
    Writable,
    /// The program itself and its libraries: readable and executable.
    Program,
    Device,
}

/// The jail of one program.
#[derive(Clone, Debug)]
pub struct Cell {
    pub(crate) jail: Jail,
    pub(crate) uid: u32,
    pub(crate) views: Vec<(PathBuf, View)>,
    pub(crate) scratch: Vec<PathBuf>,
    /// For a helper program: the largest file that it may make. Its memory is then limited too.
    pub(crate) file_bytes: Option<u64>,
}

impl Cell {
    /// A jail for a program, with what every program needs: its own file, the system's libraries and QEMU's firmware.
    /// `uid` is used only in jails with users.
    pub fn new(jail: Jail, uid: u32, program: &Path) -> Self {
        let mut cell = Self { jail, uid, views: Vec::new(), scratch: Vec::new(), file_bytes: None };
        if jail.holds() {
            cell.views.extend(system(program));
        }
        cell
    }

    /// No jail: the program runs as the daemon does.
    pub fn open() -> Self {
        Self::new(Jail::None, 0, Path::new("/"))
    }

    #[must_use]
    pub fn show(mut self, path: &Path, view: View) -> Self {
        self.views.push((path.to_owned(), view));
        self
    }

    /// Adds an empty directory of the program's own, under the path of a host directory that it does not see.
    #[must_use]
    pub fn scratch(mut self, path: &Path) -> Self {
        self.scratch.push(path.to_owned());
        self
    }
}

/// Directories of libraries. Those that are links on this host are links in the jail.
const LIBRARIES: [&str; 8] =
    ["/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/lib32", "/nix/store", "/gnu/store"];

/// Firmware that QEMU loads into a VM before its kernel, and the loader's cache of libraries.
const FIRMWARE: [&str; 3] = ["/usr/share/qemu", "/usr/share/seabios", "/etc/ld.so.cache"];

const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Directories below the prefix of a QEMU that does not come from the distribution.
const OWN_DIRECTORIES: [&str; 3] = ["lib", "lib64", "share/qemu"];

fn system(program: &Path) -> Vec<(PathBuf, View)> {
    let mut views: Vec<(PathBuf, View)> = vec![(program.to_owned(), View::Program)];
    views.extend(LIBRARIES.iter().map(|path| (PathBuf::from(path), View::Program)));
    views.extend(FIRMWARE.iter().map(|path| (PathBuf::from(path), View::ReadOnly)));
    views.extend(DEVICES.iter().map(|path| (PathBuf::from(path), View::Device)));
    let prefix = program.parent().and_then(Path::parent).filter(|prefix| *prefix != Path::new("/usr"));
    if let Some(prefix) = prefix.filter(|prefix| prefix.parent().is_some()) {
        views.extend(OWN_DIRECTORIES.iter().map(|name| (prefix.join(name), View::Program)));
    }
    views.retain(|(path, _)| path.exists());
    views
}

/// One mount of the jail.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) source: CString,
    /// Relative to the jail's root.
    pub(super) target: CString,
    pub(super) is_dir: bool,
    pub(super) view: View,
}

/// A [`Cell`] as the child needs it: everything is looked up and allocated.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) jail: Jail,
    pub(super) uid: u32,
    pub(super) mounts: Vec<Mount>,
    /// The descriptors of the opened sources, filled in by the child.
    pub(super) opened: Vec<i32>,
    pub(super) dirs: Vec<CString>,
    pub(super) links: Vec<(CString, CString)>,
    pub(super) scratch: Vec<CString>,
    pub(super) uid_map: Vec<u8>,
    pub(super) gid_map: Vec<u8>,
    pub(super) rules: Option<Rules>,
    pub(super) filter: Option<Filter>,
    pub(super) file_bytes: Option<u64>,
}

impl Prepared {
    pub(crate) fn new(cell: &Cell) -> io::Result<Self> {
        let (mut mounts, mut links, mut dirs) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut views = cell.views.clone();
        // A directory sorts before the paths inside it.
        views.sort_by(|(one, _), (other, _)| one.cmp(other));
        views.dedup_by(|(one, _), (other, _)| one == other);
        for (path, view) in &views {
            let target = inside(path)?;
            match path.read_link() {
                // A link such as `/lib`, which leads to `usr/lib` outside and inside.
                Ok(to) if path.components().count() == 2 && to.is_relative() => {
                    links.push((c_string(&to)?, c_string(&target)?));
                }
                Ok(_) | Err(_) => {
                    dirs.extend(parents(&target));
                    let is_dir = path.is_dir();
                    mounts.push(Mount {
                        source: c_string(path)?,
                        target: c_string(&target)?,
                        is_dir,
                        view: *view,
                    });
                }
            }
        }
        let mut scratch = Vec::new();
        for path in &cell.scratch {
            let target = inside(path)?;
            dirs.extend(parents(&target));
            scratch.push(c_string(&target)?);
        }
        let identity = |id: u32| format!("{id} {id} 1").into_bytes();
        Ok(Self {
            jail: cell.jail,
            uid: cell.uid,
            opened: vec![-1; mounts.len()],
            mounts,
            dirs: dirs.iter().map(|dir| c_string(dir)).collect::<io::Result<_>>()?,
            links,
            scratch,
            uid_map: identity(rustix::process::geteuid().as_raw()),
            gid_map: identity(rustix::process::getegid().as_raw()),
            rules: (cell.jail == Jail::Landlock).then(|| Rules::new(cell)).transpose()?,
            filter: cell.jail.holds().then(|| Filter::new(cell.jail)),
            file_bytes: cell.file_bytes,
        })
    }

    /// The namespaces that the child is created in.
    pub(crate) fn clone_flags(&self) -> libc::c_int {
        let apart = libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        match self.jail {
            Jail::Users => apart,
            Jail::UserNamespace => apart | libc::CLONE_NEWUSER,
            Jail::Landlock | Jail::None => 0,
        }
    }
}

/// A path of the host, relative to the jail's root.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    match path.strip_prefix("/") {
        Ok(relative) if plain => Ok(relative.to_owned()),
        Ok(_) | Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not an absolute path without ..", path.display()),
        )),
    }
}

/// The directories above a path. Their sort order puts the outermost first.
fn parents(target: &Path) -> impl Iterator<Item = PathBuf> {
    target.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()).map(Path::to_owned)
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jail_shows_only_named_paths() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ram");
        std::fs::write(&file, "x").unwrap();
        let cell = Cell { views: Vec::new(), ..Cell::new(Jail::UserNamespace, 0, Path::new("/bin/true")) }
            .show(&file, View::ReadOnly)
            .scratch(Path::new("/run/a/b"));
        let prepared = Prepared::new(&cell).unwrap();
        assert_eq!(prepared.mounts.len(), 1);
        assert!(!prepared.mounts[0].is_dir);
        let dirs: Vec<&str> = prepared.dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
        assert!(dirs.contains(&"run/a") && dirs.contains(&"run"), "{dirs:?}");
        let (outer, inner) = (dirs.iter().position(|d| *d == "run"), dirs.iter().position(|d| *d == "run/a"));
        assert!(outer < inner, "{dirs:?}");
    }

    #[test]
    fn relative_and_parent_paths_are_refused() {
        for path in ["relative", "/a/../b"] {
            let cell = Cell::open().show(Path::new(path), View::ReadOnly);
            assert!(Prepared::new(&cell).is_err(), "{path}");
        }
    }
}
