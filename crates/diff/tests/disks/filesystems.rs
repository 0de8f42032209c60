//! Reading and comparing file systems made by e2fsprogs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agentiso_diff::ext4::{Ext4Error, FileSystem, Kind};
use agentiso_diff::qcow2::Chain;
use agentiso_diff::{DiffError, DiffOptions, Difference, Ended, ReadAt, Watch, diff_paths};

use crate::ext4_image::{Images, assert_same_tree, bytes, diff, numbered, paths};
use crate::qcow2_file::Qcow2File;
use crate::tools::{find, need, run};

#[test]
fn every_layout_of_a_file_system_is_read() {
    need!("mke2fs");
    let layouts: [&[&str]; 7] = [
        &[],
        &["-b", "4096"],
        &["-b", "2048", "-O", "^64bit,^metadata_csum"],
        &["-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "512"],
        &["-b", "4096", "-O", "^filetype,^dir_index", "-I", "128"],
        &["-b", "1024", "-O", "^flex_bg,sparse_super2,large_dir", "-N", "4096"],
        &["-b", "4096", "-O", "^has_journal,metadata_csum_seed", "-I", "1024"],
    ];
    let images = Images::new();
    for layout in layouts {
        let image = bytes(&images.make("image", layout));
        let files = FileSystem::open(&image).unwrap_or_else(|error| panic!("{layout:?}: {error}"));
        assert_eq!(assert_same_tree(&files, &images.at("tree")), 600 + 11, "{layout:?}");
    }
}

#[test]
fn files_in_many_pieces_are_read() {
    need!("mke2fs");
    let images = Images::new();
    let sparse = File::create(images.tree().join("sparse")).unwrap();
    for index in 0..2000 {
        sparse.write_all_at(&numbered(1024), index * 8192).unwrap();
    }
    let image = bytes(&images.make("image", &["-b", "1024"]));
    let files = FileSystem::open(&image).unwrap();
    assert_same_tree(&files, &images.at("tree"));
}

#[test]
fn indexed_directories_are_read() {
    need!("mke2fs", "e2fsck", "debugfs");
    let images = Images::new();
    let path = images.make("image", &["-b", "1024"]);
    let name = path.display().to_string();
    // It ends with 1 after it changed something, here by rebuilding the directories.
    let status =
        std::process::Command::new(find("e2fsck").unwrap()).args(["-fyD", &name]).output().unwrap().status;
    assert!(status.code().is_some_and(|code| code <= 1));
    assert!(run("debugfs", ["-R", "htree_dump /many", &name]).contains("Root node dump"));
    let image = bytes(&path);
    assert_eq!(assert_same_tree(&FileSystem::open(&image).unwrap(), &images.at("tree")), 611);
}

#[test]
fn paths_are_followed_through_links() {
    need!("mke2fs");
    let images = Images::new();
    let tree = images.tree();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, tree.join(name)).unwrap();
    link("/etc/deep/../deep/er", "absolute");
    link("../../../../etc", "empty/out");
    link("circle", "circle");
    link("absolute/note", "twice");
    let image = bytes(&images.make("image", &[]));
    let files = FileSystem::open(&image).unwrap();
    let kind = |path: &str| files.find(path.as_bytes()).unwrap().map(|inode| inode.kind());
    for path in
        ["/etc/hostname", "etc//./hostname", "/short", "/twice", "/absolute/note", "/empty/out/hostname"]
    {
        assert_eq!(kind(path), Some(Kind::File), "{path}");
    }
    assert_eq!(
        (kind("/"), kind(".."), kind("/empty/out")),
        (Some(Kind::Directory), Some(Kind::Directory), Some(Kind::Directory))
    );
    for path in ["/none", "/etc/hostname/below", "/circle", "/long", "/etc/none/../hostname"] {
        assert_eq!(kind(path), None, "{path}");
    }
}

#[test]
fn unsupported_file_systems_are_named() {
    need!("mke2fs");
    let images = Images::new();
    let refused = |options: &[&str]| match FileSystem::open(&bytes(&images.make("image", options))) {
        Err(Ext4Error::Unsupported(what)) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&["-O", "inline_data"]), "data in inodes");
    assert_eq!(refused(&["-O", "encrypt"]), "encryption");
    assert!(matches!(FileSystem::open(&vec![0; 4096]), Err(Ext4Error::Magic)));
    assert!(matches!(FileSystem::open(&Vec::new()), Err(Ext4Error::Read { .. })));
}

#[test]
fn disk_does_not_differ_from_itself() {
    need!("mke2fs");
    let images = Images::new();
    let image = images.make("image", &[]);
    assert_eq!(diff(&image, &image), Default::default());
}

#[test]
fn added_removed_and_modified_paths_are_separated() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let new = images.copy(&old, "new");
    let content = images.at("content");
    fs::write(&content, "new content").unwrap();
    let content = content.display();
    images.change(
        &new,
        &[
            &format!("write {content} etc/added"),
            "mkdir fresh",
            "mkdir fresh/inner",
            &format!("write {content} fresh/inner/file"),
            "symlink fresh/link ../etc",
            "rm many/file-with-a-name-0007",
            "rm etc/deep/er/note",
            "rmdir etc/deep/er",
            "rm nothing",
            &format!("write {content} nothing"),
            "rm short",
            "symlink short elsewhere",
        ],
    );
    let found = diff(&old, &new);
    let expected = [
        "+/etc/added",
        "+/fresh",
        "+/fresh/inner",
        "+/fresh/inner/file",
        "+/fresh/link",
        "~/nothing",
        "~/short",
        "-/etc/deep/er",
        "-/etc/deep/er/note",
        "-/many/file-with-a-name-0007",
    ];
    assert_eq!(paths(&found), expected);
    assert_eq!((found.counts.added, found.counts.modified, found.counts.removed), (5, 2, 3));
    assert!(!found.truncated);
    assert_eq!((found.added[0].kind, found.added[0].size), (Kind::File, 11));
    assert_eq!((found.removed[1].kind, found.removed[1].size), (Kind::File, 100_000));
    let back: Vec<_> =
        paths(&diff(&new, &old)).iter().map(|path| path.replace('+', "_").replace('-', "+")).collect();
    assert_eq!(back.iter().filter(|path| path.starts_with('_')).count(), 3);
}

#[test]
fn path_with_changed_type_lists_its_contents() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let new = images.copy(&old, "new");
    images.change(
        &new,
        &[
            "rm etc/deep/er/note",
            "rmdir etc/deep/er",
            "symlink etc/deep/er x",
            "rm short",
            "mkdir short",
            "mkdir short/in",
        ],
    );
    assert_eq!(paths(&diff(&old, &new)), ["+/short/in", "~/etc/deep/er", "~/short", "-/etc/deep/er/note"]);
}

#[test]
fn only_relevant_fields_mark_a_file_modified() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let modified = |commands: &[&str]| {
        let new = images.copy(&old, "new");
        images.change(&new, commands);
        paths(&diff(&old, &new))
    };
    for (file, field, value) in [
        ("nothing", "mode", "0100700"),
        ("nothing", "uid", "70000"),
        ("nothing", "gid", "70000"),
        ("nothing", "mtime", "20200101"),
        ("nothing", "mtime_extra", "4"),
        ("etc/deep/er/note", "size", "99999"),
        ("empty", "mode", "040700"),
        ("empty", "uid", "1"),
        ("long", "gid", "1"),
    ] {
        assert_eq!(modified(&[&format!("sif {file} {field} {value}")]), [format!("~/{file}")], "{field}");
    }
    for (file, field) in [
        ("nothing", "atime"),
        ("nothing", "ctime"),
        ("etc/deep/er/note", "ctime"),
        ("etc/deep/er/note", "generation"),
        ("empty", "mtime"),
        ("empty", "ctime"),
        ("short", "mtime"),
        ("long", "mtime"),
    ] {
        let value = if field == "generation" { "77" } else { "20200101" };
        assert!(modified(&[&format!("sif {file} {field} {value}")]).is_empty(), "{file} {field}");
    }
    assert_eq!(modified(&["ea_set nothing user.colour blue"]), ["~/nothing"]);
    assert_eq!(modified(&["sif /etc/hostname mode 0100600"]), ["~/etc/hostname", "~/etc/link"]);
    assert_eq!(modified(&["sif / mode 040700"]), ["~/"]);
}

#[test]
fn external_attribute_blocks_are_compared() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let value = |name: &str, byte: u8| {
        fs::write(images.at(name), [byte; 600]).unwrap();
        format!("ea_set -f {} nothing user.long", images.at(name).display())
    };
    let old = images.make("old", &["-b", "4096"]);
    images.change(&old, &[&value("a", b'a')]);
    let new = images.copy(&old, "new");
    images.change(&new, &["sif nothing ctime 20200101"]);
    assert_eq!(paths(&diff(&old, &new)), Vec::<String>::new());
    images.change(&new, &[&value("b", b'b')]);
    assert_eq!(paths(&diff(&old, &new)), ["~/nothing"]);
}

#[test]
fn touched_file_is_compared_by_content() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let new = images.copy(&old, "new");
    images.change(&new, &["sif etc/deep/er/note ctime 20200101"]);
    let mut changed = bytes(&new);
    let (block, content) = (1024, numbered(1024));
    let start = changed.chunks(block).position(|chunk| chunk == content).unwrap();
    changed[start * block + 99_000] ^= 1;
    let old = bytes(&old);
    let compare = |options: &DiffOptions<'_>| paths(&diff_paths(&old, &changed, options).unwrap());
    assert_eq!(compare(&DiffOptions::default()), ["~/etc/deep/er/note"]);
    // Without reading the content, equality is unknown.
    let unread = DiffOptions { max_compared_bytes: 1000, ..DiffOptions::default() };
    let untouched = bytes(&new);
    assert_eq!(paths(&diff_paths(&old, &untouched, &unread).unwrap()), ["~/etc/deep/er/note"]);
    assert!(diff_paths(&old, &untouched, &DiffOptions::default()).unwrap().modified.is_empty());
}

#[test]
fn changed_blocks_modify_despite_equal_inode() {
    need!("mke2fs");
    let images = Images::new();
    let old = bytes(&images.make("old", &[]));
    let mut new = old.clone();
    let (block, content) = (1024, numbered(1024));
    let start = block * old.chunks(block).position(|chunk| chunk == content).unwrap();
    new[start + 99_000] ^= 1;
    let is_shared = |range: std::ops::Range<u64>| {
        old[range.start as usize..range.end as usize] == new[range.start as usize..range.end as usize]
    };
    let shared = DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() };
    assert_eq!(paths(&diff_paths(&old, &new, &shared).unwrap()), ["~/etc/deep/er/note"]);
    assert_eq!(paths(&diff_paths(&old, &old, &shared).unwrap()), Vec::<String>::new());
}

#[test]
fn identical_replacement_is_not_modified() {
    need!("mke2fs");
    let images = Images::new();
    let one = images.make("one", &["-b", "1024"]);
    // The same tree in another layout: other inodes and other blocks everywhere.
    let other = images.at("other");
    images.make("other", &["-b", "4096"]);
    let found = diff(&one, &other);
    assert_eq!(paths(&found), Vec::<String>::new());
}

#[test]
fn lists_are_limited_and_counts_are_not() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let new = images.copy(&old, "new");
    let commands: Vec<String> =
        (0..600).map(|index| format!("rm many/file-with-a-name-{index:04}")).collect();
    images.change(&new, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    let (old, new) = (bytes(&old), bytes(&new));
    let found = diff_paths(&old, &new, &DiffOptions { max_paths: 10, ..DiffOptions::default() }).unwrap();
    assert_eq!((found.removed.len(), found.counts.removed, found.truncated), (10, 600, true));
    assert!(found.removed.is_sorted());
    let few = DiffOptions { max_entries: 500, ..DiffOptions::default() };
    assert!(matches!(diff_paths(&old, &new, &few), Err(DiffError::TooManyEntries(500))));
    let cancelled = AtomicBool::new(true);
    let cancelled = DiffOptions { cancelled: Some(&cancelled), ..DiffOptions::default() };
    assert!(matches!(diff_paths(&old, &new, &cancelled), Err(DiffError::Ended(Ended::Cancelled))));
}

#[test]
fn overlong_paths_are_counted_but_not_listed() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &[]);
    let new = images.copy(&old, "new");
    let name = "n".repeat(250);
    let commands: Vec<String> =
        (0..20).flat_map(|_| [format!("mkdir {name}"), format!("cd {name}")]).collect();
    images.change(&new, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    let found = diff(&old, &new);
    // 16 names with their slashes are 4016 bytes.
    assert_eq!((found.added.len(), found.counts.added, found.truncated), (16, 20, true));
}

/// A disk that counts what is read of it.
struct Counted<'a>(&'a Chain, AtomicU64);

impl ReadAt for Counted<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        ReadAt::read_at(self.0, offset, buf)
    }
}

#[test]
fn shared_layers_are_read_only_once() {
    need!("mke2fs", "debugfs");
    let images = Images::new();
    let old = images.make("old", &["-b", "1024"]);
    let new = images.copy(&old, "new");
    images.change(
        &new,
        &["rm many/file-with-a-name-0300", "mkdir etc/fresh", "sif etc/deep/er/note ctime 20200101"],
    );
    let (old, new) = (bytes(&old), bytes(&new));
    Qcow2File::between(&vec![0; old.len()], &old).write(&images.at("old.qcow2"));
    Qcow2File::between(&old, &new).on("old.qcow2").write(&images.at("new.qcow2"));
    let open = |name: &str| Chain::open(&images.at(name)).unwrap();
    let (old, new) = (open("old.qcow2"), open("new.qcow2"));
    let difference = Difference::between(&old, &new, Watch::default()).unwrap();
    assert!(difference.bytes() > 0 && difference.bytes() < 2 << 20, "{}", difference.bytes());
    let is_shared = |range| difference.is_shared(range);
    let read = |options: &DiffOptions<'_>| {
        let new = Counted(&new, AtomicU64::new(0));
        (diff_paths(&old, &new, options).unwrap(), new.1.into_inner())
    };
    let (all, read_all) = read(&DiffOptions::default());
    let (fast, read_fast) = read(&DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() });
    assert_eq!(paths(&all), ["+/etc/fresh", "-/many/file-with-a-name-0300"]);
    assert_eq!(all, fast);
    assert!(read_fast < read_all, "{read_fast} {read_all}");
}
