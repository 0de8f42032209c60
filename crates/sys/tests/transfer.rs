//! Tests that hostile guests and clients cannot read or write outside the transfer directory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use agentiso_sys::transfer::{Source, TransferDir, TransferError};
use tempfile::TempDir;

fn room() -> (TempDir, TransferDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let inside = dir.path().join("transfers");
    let transfers = TransferDir::open(&inside).expect("it is made");
    fs::write(dir.path().join("secret"), "hush").expect("written");
    fs::create_dir(inside.join("sub")).expect("made");
    fs::write(inside.join("sub/file"), "content").expect("written");
    (dir, transfers)
}

fn read(transfers: &TransferDir, path: impl AsRef<Path>) -> Result<String, TransferError> {
    match transfers.source(path.as_ref())? {
        Source::File(mut source) => {
            let mut text = String::new();
            source.file.read_to_string(&mut text).expect("readable");
            assert_eq!(source.size, text.len() as u64);
            Ok(text)
        }
        Source::Directory(_) => Ok("a directory".to_owned()),
    }
}

#[test]
fn transfer_paths_are_relative_or_inside() {
    let (dir, transfers) = room();
    let inside = dir.path().join("transfers");
    for path in ["sub/file", "./sub/file", "sub/../sub/file", "sub//file"] {
        assert_eq!(read(&transfers, path).expect("inside"), "content", "{path}");
    }
    assert_eq!(read(&transfers, inside.join("sub/file")).expect("inside"), "content");
    assert_eq!(read(&transfers, "sub").expect("inside"), "a directory");
    assert_eq!(read(&transfers, &inside).expect("itself"), "a directory");
    symlink(&inside, dir.path().join("other name")).expect("linked");
    let same = TransferDir::open(&dir.path().join("other name")).expect("it is there");
    assert_eq!(read(&same, inside.join("sub/file")).expect("inside"), "content");
}

#[test]
fn nothing_outside_is_read_by_any_path() {
    let (dir, transfers) = room();
    let inside = dir.path().join("transfers");
    symlink("../secret", inside.join("out")).expect("linked");
    symlink(dir.path(), inside.join("up")).expect("linked");
    symlink("sub", inside.join("in")).expect("linked");
    symlink("file", inside.join("sub/link")).expect("linked");
    symlink("/proc/self/root", inside.join("magic")).expect("linked");
    let outside = ["../secret", "sub/../../secret", "/etc/passwd"];
    for path in outside {
        assert!(matches!(read(&transfers, path), Err(TransferError::Outside { .. })), "{path}");
    }
    let absolute = dir.path().join("secret");
    assert!(matches!(read(&transfers, &absolute), Err(TransferError::Outside { .. })));
    assert!(matches!(read(&transfers, inside.join("../secret")), Err(TransferError::Outside { .. })));
    // No link is followed, wherever it leads and wherever in the path it is.
    for path in ["out", "sub/link", "in", "in/file", "up/secret", "magic/etc/passwd"] {
        assert!(matches!(read(&transfers, path), Err(TransferError::Link { .. })), "{path}");
    }
    assert!(matches!(read(&transfers, "none"), Err(TransferError::Missing { .. })));
    assert!(matches!(read(&transfers, ""), Err(TransferError::BadName { .. })));
    assert!(matches!(read(&transfers, "a\0b"), Err(TransferError::BadName { .. })));
    assert!(matches!(read(&transfers, "x".repeat(5000)), Err(TransferError::BadName { .. })));
}

#[test]
fn transferred_file_appears_complete_or_never() {
    let (dir, transfers) = room();
    let inside = dir.path().join("transfers");
    let count = || fs::read_dir(&inside).expect("listed").count();
    let slot = transfers.file_slot(Path::new("new")).expect("a place");
    slot.file().write_all(b"half").expect("written");
    drop(slot);
    assert_eq!(count(), 1);
    let slot = transfers.file_slot(Path::new("new")).expect("a place");
    slot.file().write_all(b"whole").expect("written");
    slot.commit(0o4751).expect("in its place");
    assert_eq!((fs::read(inside.join("new")).expect("read"), count()), (b"whole".to_vec(), 2));
    assert_eq!(fs::metadata(inside.join("new")).expect("there").permissions().mode() & 0o7777, 0o751);
    let slot = transfers.file_slot(Path::new("new")).expect("it may be replaced");
    slot.commit(0o600).expect("in its place");
    assert_eq!(fs::read(inside.join("new")).expect("read"), b"");
}

#[test]
fn nothing_outside_is_written_by_any_path() {
    let (dir, transfers) = room();
    let inside = dir.path().join("transfers");
    symlink("../secret", inside.join("out")).expect("linked");
    symlink("..", inside.join("up")).expect("linked");
    for path in ["../new", "/tmp/agentiso-new", "sub/../../new"] {
        let file = transfers.file_slot(Path::new(path)).expect_err("refused");
        assert!(matches!(file, TransferError::Outside { .. }), "{path}: {file}");
        let tree = transfers.tree_slot(Path::new(path)).expect_err("refused");
        assert!(matches!(tree, TransferError::Outside { .. }), "{path}: {tree}");
    }
    assert!(matches!(transfers.file_slot(Path::new("up/new")), Err(TransferError::Link { .. })));
    assert!(matches!(transfers.tree_slot(Path::new("up/new")), Err(TransferError::Link { .. })));
    assert!(matches!(transfers.file_slot(Path::new("out")), Err(TransferError::Link { .. })));
    assert!(matches!(transfers.file_slot(Path::new("sub")), Err(TransferError::Exists { .. })));
    assert!(matches!(transfers.file_slot(Path::new("none/new")), Err(TransferError::NoParent { .. })));
    for path in [".", "..", "sub/..", "sub/."] {
        assert!(transfers.file_slot(Path::new(path)).is_err(), "{path}");
        assert!(transfers.tree_slot(Path::new(path)).is_err(), "{path}");
    }
    // A link that is made meanwhile is replaced, not followed.
    let slot = transfers.file_slot(Path::new("late")).expect("a place");
    symlink("../secret", inside.join("late")).expect("linked");
    slot.file().write_all(b"mine").expect("written");
    slot.commit(0o600).expect("in its place");
    assert_eq!(fs::read(dir.path().join("secret")).expect("read"), b"hush");
    assert_eq!(fs::read(inside.join("late")).expect("read"), b"mine");
}

#[test]
fn transferred_directory_replaces_only_empty_ones() {
    let (dir, transfers) = room();
    let inside = dir.path().join("transfers");
    let mut archive = Vec::new();
    let source = match transfers.source(Path::new("sub")).expect("there") {
        Source::Directory(directory) => directory,
        Source::File(_) => panic!("a directory"),
    };
    agentiso_tree::pack(source, &mut archive).expect("packed");
    fs::create_dir(inside.join("empty")).expect("made");
    for name in ["new", "empty"] {
        let slot = transfers.tree_slot(Path::new(name)).expect("a place");
        slot.fill(&archive[..]).expect("unpacked");
        slot.commit().expect("in its place");
        assert_eq!(fs::read(inside.join(name).join("file")).expect("read"), b"content");
    }
    for name in ["new", "sub/file"] {
        assert!(matches!(transfers.tree_slot(Path::new(name)), Err(TransferError::Exists { .. })), "{name}");
    }
    let slot = transfers.tree_slot(Path::new("cut")).expect("a place");
    assert!(slot.fill(&archive[..700]).is_err());
    let before = fs::read_dir(&inside).expect("listed").count();
    drop(slot);
    assert_eq!(fs::read_dir(&inside).expect("listed").count(), before - 1);
    let slot = transfers.tree_slot(Path::new("full")).expect("a place");
    slot.fill(&archive[..]).expect("unpacked");
    drop(slot);
    assert_eq!(fs::read_dir(&inside).expect("listed").count(), before - 1);
}
