//! File systems made by e2fsprogs, from a small tree with every kind of file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use agentiso_diff::ext4::{FileSystem, Inode, Kind, ROOT_INODE};
use agentiso_diff::{DiffOptions, PathDiff, ReadAt, diff_paths};
use tempfile::TempDir;

use crate::tools::run;

pub(crate) struct Images {
    dir: TempDir,
}

/// Content in which every part shows its position in the file.
pub(crate) fn numbered(length: usize) -> Vec<u8> {
    (0..length as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

impl Images {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Every kind of file that an ordinary user can make.
    pub(crate) fn tree(&self) -> PathBuf {
        let tree = self.at("tree");
        if tree.exists() {
            return tree;
        }
        for dir in ["etc/deep/er", "many", "empty"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
        }
        fs::write(tree.join("etc/hostname"), "machine\n").unwrap();
        fs::write(tree.join("etc/deep/er/note"), numbered(100_000)).unwrap();
        fs::write(tree.join("nothing"), "").unwrap();
        fs::set_permissions(tree.join("nothing"), fs::Permissions::from_mode(0o4751)).unwrap();
        symlink("etc/hostname", tree.join("short")).unwrap();
        symlink("x/".repeat(100), tree.join("long")).unwrap();
        fs::hard_link(tree.join("etc/hostname"), tree.join("etc/link")).unwrap();
        for index in 0..600 {
            fs::write(tree.join(format!("many/file-with-a-name-{index:04}")), [index as u8; 3]).unwrap();
        }
        tree
    }

    /// Makes a file system of the tree, with further options for mke2fs.
    pub(crate) fn make(&self, name: &str, options: &[&str]) -> PathBuf {
        let (image, tree) = (self.at(name).display().to_string(), self.tree().display().to_string());
        let mut arguments =
            vec!["-q", "-F", "-t", "ext4", "-U", "12345678-1234-1234-1234-123456789abc", "-d", &tree];
        arguments.extend(options);
        arguments.extend([image.as_str(), "24M"]);
        // mke2fs would leave parts of an older image.
        let _ = fs::remove_file(&image);
        run("mke2fs", arguments);
        self.at(name)
    }

    pub(crate) fn copy(&self, image: &Path, name: &str) -> PathBuf {
        fs::copy(image, self.at(name)).unwrap();
        self.at(name)
    }

    /// Changes a file system with the commands of debugfs.
    pub(crate) fn change(&self, image: &Path, commands: &[&str]) {
        let script = self.at("commands");
        fs::write(&script, commands.join("\n") + "\n").unwrap();
        let (script, image) = (script.display().to_string(), image.display().to_string());
        let said = run("debugfs", ["-w", "-f", script.as_str(), image.as_str()]);
        let complaint = said.lines().find(|line| line.contains("not found") || line.contains("nvalid"));
        assert!(complaint.is_none(), "{said}");
    }
}

pub(crate) fn bytes(image: &Path) -> Vec<u8> {
    fs::read(image).unwrap()
}

pub(crate) fn diff(old: &Path, new: &Path) -> PathDiff {
    diff_paths(&bytes(old), &bytes(new), &DiffOptions::default()).unwrap()
}

/// The paths, marked with `+`, `~` and `-`.
pub(crate) fn paths(diff: &PathDiff) -> Vec<String> {
    let marked = [("+", &diff.added), ("~", &diff.modified), ("-", &diff.removed)];
    marked
        .iter()
        .flat_map(|(mark, list)| list.iter().map(move |path| format!("{mark}{}", path.lossy())))
        .collect()
}

/// Compares a directory of the image with one on the host, recursively.
pub(crate) fn assert_same_tree<D: ReadAt>(files: &FileSystem<'_, D>, tree: &Path) -> usize {
    assert_same_directory(files, &files.inode(ROOT_INODE).unwrap(), tree)
}

fn assert_same_directory<D: ReadAt>(files: &FileSystem<'_, D>, directory: &Inode, path: &Path) -> usize {
    let mut expected: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    expected.sort();
    let entries = files.entries(directory).unwrap();
    let found: Vec<_> = entries.iter().filter(|entry| entry.name != b"lost+found").collect();
    let mut count = 0;
    for (entry, name) in found.iter().zip(&expected) {
        assert_eq!(entry.name, name.as_encoded_bytes());
        let (inode, path) = (files.inode(entry.inode).unwrap(), path.join(name));
        let real = fs::symlink_metadata(&path).unwrap();
        assert_eq!(u32::from(inode.mode()), real.mode() & 0o7777, "{}", path.display());
        assert_eq!((inode.uid(), inode.gid()), (real.uid(), real.gid()));
        count += 1;
        match inode.kind() {
            Kind::Directory => count += assert_same_directory(files, &inode, &path),
            Kind::Symlink => {
                assert_eq!(
                    files.target(&inode).unwrap(),
                    fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes()
                );
            }
            Kind::File => assert_same_content(files, &inode, &path),
            Kind::CharacterDevice | Kind::BlockDevice | Kind::Pipe | Kind::Socket => {
                panic!("{:?} at {}", inode.kind(), path.display())
            }
        }
    }
    assert_eq!(found.len(), expected.len());
    count
}

fn assert_same_content<D: ReadAt>(files: &FileSystem<'_, D>, inode: &Inode, path: &Path) {
    let expected = fs::read(path).unwrap();
    assert_eq!(inode.size(), expected.len() as u64);
    let extents = files.extents(inode).unwrap();
    let mut content = vec![0xAA; expected.len()];
    files.read_file(&extents, 0, &mut content).unwrap();
    assert!(content == expected, "{}", path.display());
    if let Some(tail) = expected.get(1001..) {
        let mut content = vec![0xAA; tail.len()];
        files.read_file(&extents, 1001, &mut content).unwrap();
        assert!(content == tail, "{}", path.display());
    }
}
