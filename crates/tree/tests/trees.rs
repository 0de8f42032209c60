//! Packing and unpacking of directories, and hostile archives that must not leave the directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use agentiso_tree::{Links, TreeError, pack, unpack};
use tar::{Builder, EntryType, Header};

fn open(path: &Path) -> OwnedFd {
    File::open(path).expect("a directory").into()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode is set");
}

#[test]
fn directory_survives_packing_and_unpacking() {
    let (from, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let deep = from.path().join("a").join("d".repeat(120)).join("e".repeat(120));
    fs::create_dir_all(&deep).expect("made");
    fs::write(deep.join("f\n\"ä"), vec![7; 100_000]).expect("written");
    fs::write(from.path().join("empty"), "").expect("written");
    fs::write(from.path().join("run"), "#!/bin/sh\n").expect("written");
    chmod(&from.path().join("run"), 0o4750);
    fs::create_dir(from.path().join("locked")).expect("made");
    fs::write(from.path().join("locked/in"), "x").expect("written");
    chmod(&from.path().join("locked"), 0o550);
    symlink("/etc/passwd", from.path().join("absolute")).expect("linked");
    symlink(format!("../{}", "l".repeat(300)), from.path().join("dangling")).expect("linked");
    rustix::fs::mknodat(
        File::open(from.path()).expect("open"),
        "pipe",
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    chmod(from.path(), 0o751);

    let mut archive = Vec::new();
    let packed = pack(open(from.path()), &mut archive).expect("packed");
    assert_eq!((packed.bytes, packed.skipped), (100_000 + 10 + 1, 1));
    let unpacked = unpack(&archive[..], open(to.path()).as_fd(), 0o777, Links::Any).expect("unpacked");
    assert_eq!(unpacked.bytes, packed.bytes);

    let below = deep.strip_prefix(from.path()).expect("below");
    assert_eq!(fs::read(to.path().join(below).join("f\n\"ä")).expect("read"), vec![7; 100_000]);
    assert_eq!(fs::read(to.path().join("empty")).expect("read"), b"");
    assert_eq!((mode(&to.path().join("run")), mode(&to.path().join("locked"))), (0o750, 0o550));
    assert_eq!(mode(to.path()), 0o751);
    assert_eq!(fs::read_link(to.path().join("absolute")).expect("a link"), Path::new("/etc/passwd"));
    assert_eq!(fs::read_link(to.path().join("dangling")).expect("a link").as_os_str().len(), 303);
    assert!(!to.path().join("pipe").exists());
    for dir in [&from, &to] {
        chmod(&dir.path().join("locked"), 0o750);
    }
}

/// An archive with exactly these entries.
fn archive(entries: &[(EntryType, &[u8], &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, data) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o777);
        let symlink = *kind == EntryType::Symlink;
        header.set_size(if symlink { 0 } else { data.len() as u64 });
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        if symlink {
            header.as_old_mut().linkname[..data.len()].copy_from_slice(data);
        }
        header.set_cksum();
        builder.append(&header, if symlink { &[][..] } else { data }).expect("appended");
    }
    builder.into_inner().expect("finished")
}

/// The kind, the name, and the content or target.
type Entry<'a> = (EntryType, &'a [u8], &'a [u8]);

#[test]
fn unpacking_never_leaves_the_directory() {
    use EntryType::{Block, Char, Continuous, Fifo, GNULongName, Link, Regular, Symlink, XHeader};
    let long = vec![b'x'; 100_000];
    let deep = [b"a/".repeat(500), b"b\0".to_vec()].concat();
    let outside = tempfile::tempdir().expect("a directory");
    let target = outside.path().as_os_str().as_encoded_bytes();
    let cases: Vec<Vec<Entry<'_>>> = vec![
        vec![(Regular, b"../escaped", b"x")],
        vec![(Regular, b"a/../../escaped", b"x")],
        vec![(Regular, b"/tmp/agentiso-escaped", b"x")],
        vec![(Symlink, b"link", target), (Regular, b"link/escaped", b"x")],
        vec![(Symlink, b"link", target), (EntryType::Directory, b"link/escaped", b"")],
        vec![(Symlink, b"link", b".."), (Symlink, b"link/escaped", b"x")],
        vec![(Regular, b"twice", b"x"), (Regular, b"twice", b"y")],
        vec![(Symlink, b"file", target), (Regular, b"file", b"y")],
        vec![(Symlink, b"nowhere", b"")],
        vec![(Regular, b"missing/parent", b"x")],
        vec![(Regular, b"", b"x")],
        vec![(Link, b"hard", b"")],
        vec![(Fifo, b"pipe", b"")],
        vec![(Char, b"null", b"")],
        vec![(Block, b"disk", b"")],
        vec![(Continuous, b"odd", b"")],
        vec![(XHeader, b"pax", b"20 path=../escaped\n")],
        vec![(GNULongName, b"././@LongLink", &long), (Regular, b"short", b"x")],
        vec![(GNULongName, b"././@LongLink", &deep), (Regular, b"short", b"x")],
        vec![(GNULongName, b"././@LongLink", b"../../escaped\0"), (Regular, b"short", b"x")],
    ];
    for entries in cases {
        let parent = tempfile::tempdir().expect("a directory");
        let into = parent.path().join("into");
        fs::create_dir(&into).expect("made");
        let result = unpack(&archive(&entries)[..], open(&into).as_fd(), 0o777, Links::Any);
        assert!(result.is_err(), "{entries:?}");
        assert_eq!(fs::read_dir(parent.path()).expect("listed").count(), 1, "{entries:?}");
        assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 0, "{entries:?}");
    }
}

#[test]
fn truncated_or_invalid_archive_is_an_error() {
    let whole = archive(&[(EntryType::Regular, b"file", &[1; 5000])]);
    for length in [1, 511, 513, 3000] {
        let into = tempfile::tempdir().expect("a directory");
        let result = unpack(&whole[..length], open(into.path()).as_fd(), 0o777, Links::Any);
        assert!(matches!(result, Err(TreeError::Archive(_))), "{length}: {result:?}");
    }
    let into = tempfile::tempdir().expect("a directory");
    assert!(unpack(&[1; 2048][..], open(into.path()).as_fd(), 0o777, Links::Any).is_err());
}

#[test]
fn failing_writer_ends_packing() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let from = tempfile::tempdir().expect("a directory");
    File::create(from.path().join("f")).expect("made").write_all(b"x").expect("written");
    assert!(matches!(pack(open(from.path()), Full), Err(TreeError::Archive(_))));
}

#[test]
fn links_that_leave_the_directory_are_refused() {
    use EntryType::{Directory, Symlink};
    let unpacked = |link: &[u8], target: &[u8]| {
        let into = tempfile::tempdir().expect("a directory");
        let entries: [Entry<'_>; 3] =
            [(Directory, b"sub", b""), (Directory, b"sub/deep", b""), (Symlink, link, target)];
        let result = unpack(&archive(&entries)[..], open(into.path()).as_fd(), 0o777, Links::Inside);
        result.map(|_| fs::read_link(into.path().join(OsStr::from_bytes(link))).expect("a link"))
    };
    let outside: [(&[u8], &[u8]); 8] = [
        (b"link", b"/etc/passwd"),
        (b"link", b".."),
        (b"link", b"./../x"),
        (b"sub/link", b"../.."),
        (b"sub/deep/link", b"../../../x"),
        // The target of these depends on what the first name is.
        (b"link", b"sub/.."),
        (b"link", b"sub/../.."),
        (b"sub/link", b"deep/../../../x"),
    ];
    for (link, target) in outside {
        let error = unpacked(link, target).expect_err("refused").to_string();
        let path = String::from_utf8_lossy(link);
        assert!(error.starts_with(&*path) && error.contains("leads out of the directory"), "{error}");
    }
    let inside: [(&[u8], &[u8]); 5] = [
        (b"link", b"sub/deep"),
        (b"link", b"."),
        (b"sub/link", b"../x"),
        (b"sub/deep/link", b"../.."),
        (b"link", b"none"),
    ];
    for (link, target) in inside {
        assert_eq!(unpacked(link, target).expect("kept").as_os_str().as_bytes(), target);
    }
}
