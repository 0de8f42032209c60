//! Tests of what hostile archives must not achieve.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Attributes, Stage, StageError, Survey, copy_directory, unpack};

struct Hostile(tar::Builder<Vec<u8>>);

impl Hostile {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// Writes the name into the header unchanged; the library's own setters would refuse the hostile names.
    fn add(mut self, kind: tar::EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1000);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    fn file(self, name: &str, data: &[u8]) -> Self {
        self.add(tar::EntryType::Regular, name, "", data)
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.add(tar::EntryType::Symlink, name, target, b"")
    }

    /// Unpacks into `<dir>/stage`; everything else in `dir` is outside.
    fn unpack(self, dir: &Path) -> Result<Stage, StageError> {
        let path = dir.join("hostile.tar");
        fs::write(&path, self.0.into_inner().unwrap()).unwrap();
        let mut stage = Stage::create(&dir.join("stage"), 0)?;
        unpack(&mut stage, File::open(path).unwrap(), &|_| true)?;
        Ok(stage)
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn archive_paths_with_parents_are_refused() {
    for hostile in [
        Hostile::new().file("../escaped", b"x"),
        Hostile::new().file("a/../../escaped", b"x"),
        Hostile::new().add(tar::EntryType::Link, "inside", "../hostile.tar", b""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = hostile.unpack(dir.path()).unwrap_err();
        assert!(matches!(error, StageError::Escapes { .. }), "{error}");
        assert_eq!(names(dir.path()), ["hostile.tar", "stage"]);
    }
}

#[test]
fn absolute_archive_paths_stay_inside() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("victim");
    let stage = Hostile::new().file(target.to_str().unwrap(), b"x").unpack(dir.path()).unwrap();
    assert!(!target.exists());
    assert!(stage.path().join(target.strip_prefix("/").unwrap()).is_file());
}

#[test]
fn writing_through_links_stays_inside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    let outside = dir.path().join("outside");
    let stage = Hostile::new()
        .symlink("absolute", outside.to_str().unwrap())
        .symlink("relative", "../outside")
        .add(tar::EntryType::Directory, "real", "", b"")
        .symlink("real/up", "../../../../../../..")
        .file("real/up/through-up", b"x")
        .file("relative-file", b"first")
        .symlink("relative-file", "../outside/replaced")
        .file("relative-file", b"second")
        .unpack(dir.path())
        .unwrap();
    assert_eq!(names(&outside), [""; 0]);
    assert_eq!(fs::read(stage.path().join("through-up")).unwrap(), b"x");
    assert_eq!(fs::read(stage.path().join("relative-file")).unwrap(), b"second");
    // A link whose target does not exist inside leads nowhere, and certainly not to the outside.
    for link in ["absolute", "relative"] {
        let dir = tempfile::tempdir().unwrap();
        let archive = Hostile::new().symlink(link, "../outside").file(&format!("{link}/planted"), b"x");
        fs::create_dir(dir.path().join("outside")).unwrap();
        let _ = archive.unpack(dir.path());
        assert_eq!(names(&dir.path().join("outside")), [""; 0]);
    }
}

#[test]
fn hard_link_cannot_reach_host_files() {
    let dir = tempfile::tempdir().unwrap();
    let error = Hostile::new()
        .add(tar::EntryType::Link, "passwd", "/etc/passwd", b"")
        .unpack(dir.path())
        .unwrap_err();
    assert!(matches!(error, StageError::DanglingLink { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let through = Hostile::new().symlink("etc", "/etc").add(tar::EntryType::Link, "p", "etc/passwd", b"");
    assert!(matches!(through.unpack(dir.path()), Err(StageError::DanglingLink { .. })));
}

#[test]
fn device_nodes_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Hostile::new()
        .add(tar::EntryType::Block, "dev/vda", "", b"")
        .add(tar::EntryType::Char, "dev/mem", "", b"")
        .add(tar::EntryType::Fifo, "pipe", "", b"")
        .file("kept", b"")
        .unpack(dir.path())
        .unwrap();
    assert_eq!(stage.skipped_special, 3);
    assert_eq!(names(stage.path()), ["kept"]);
}

#[test]
fn setuid_exists_in_the_image_only() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Hostile::new().file("su", b"#!").unpack(dir.path()).unwrap();
    let mode = fs::metadata(stage.path().join("su")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    let survey = Survey::take(&stage).unwrap();
    let su = survey.corrections.iter().find(|correction| correction.path == Path::new("/su")).unwrap();
    assert_eq!((su.mode, su.uid, su.gid), (Some(0o104755), Some(7), Some(8)));
}

#[test]
fn control_characters_and_name_clashes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = Hostile::new().file("line\nbreak", b"").unpack(dir.path()).unwrap_err();
    assert!(matches!(error, StageError::UnsupportedName { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let clash = Hostile::new().add(tar::EntryType::Directory, "x", "", b"").file("x", b"");
    assert!(matches!(clash.unpack(dir.path()), Err(StageError::Clash { .. })));
}

#[test]
fn garbage_is_not_an_archive() {
    for garbage in [&b""[..], &[0; 1024], &[0xff; 2048], b"hello"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("garbage");
        fs::write(&path, garbage).unwrap();
        let mut stage = Stage::create(&dir.path().join("stage"), 0).unwrap();
        let result = unpack(&mut stage, File::open(path).unwrap(), &|_| true);
        assert!(matches!(result, Err(StageError::Unreadable { .. })));
    }
}

#[test]
fn own_directory_becomes_owned_by_root() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("bin")).unwrap();
    fs::write(source.join("bin/sh"), "#!").unwrap();
    fs::hard_link(source.join("bin/sh"), source.join("bin/ash")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", source.join("link")).unwrap();
    let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut stage = Stage::create(&dir.path().join("stage"), 0).unwrap();
    copy_directory(&mut stage, &source, us).unwrap();
    assert!(stage.attributes.values().all(|attributes| attributes.uid == 0 && attributes.gid == 0));
    let survey = Survey::take(&stage).unwrap();
    // The root, bin, one file with two names, one link.
    assert_eq!(survey.inodes, 4);
    assert!(stage.path().join("link").is_symlink());
}

#[test]
fn rewriting_keeps_owner_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::create(&dir.path().join("stage"), 0).unwrap();
    let shadow = Attributes { gid: 42, ..Attributes::root(0o640, 5) };
    stage.file(Path::new("etc/shadow"), shadow.clone(), &mut &b"old"[..]).unwrap();
    stage.rewrite("etc/shadow", b"new").unwrap();
    assert_eq!(stage.read("etc/shadow").unwrap(), Some(b"new".to_vec()));
    assert!(stage.attributes.values().any(|attributes| *attributes == shadow));
}

#[test]
fn overlong_archive_headers_are_refused() {
    let long = vec![b'a'; 2 << 20];
    for kind in [tar::EntryType::GNULongName, tar::EntryType::GNULongLink, tar::EntryType::XHeader] {
        let dir = tempfile::tempdir().unwrap();
        let hostile = Hostile::new().add(kind, "long", "", &long).file("after", b"x");
        let error = hostile.unpack(dir.path()).unwrap_err();
        assert!(error.to_string().contains("a header is too long"), "{error}");
    }
    // Content may have any length, even if it is left out.
    let dir = tempfile::tempdir().unwrap();
    let fifo =
        Hostile::new().add(tar::EntryType::Fifo, "pipe", "", &long).file("large", &long).file("after", b"x");
    assert!(fifo.unpack(dir.path()).unwrap().contains("after"));
}

fn empty_file() -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

#[test]
fn too_deep_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut deep = Hostile::new();
    let mut header = empty_file();
    deep.0.append_data(&mut header, "d/".repeat(300) + "file", std::io::empty()).unwrap();
    assert!(matches!(deep.unpack(dir.path()), Err(StageError::TooDeep { .. })));

    // A link leads deeper than any path of the archive states.
    let dir = tempfile::tempdir().unwrap();
    let mut linked = Hostile::new();
    let mut header = empty_file();
    linked.0.append_data(&mut header.clone(), "d/".repeat(200) + "file", std::io::empty()).unwrap();
    header.set_entry_type(tar::EntryType::Symlink);
    linked.0.append_link(&mut header.clone(), "down", "d/".repeat(200)).unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    linked
        .0
        .append_data(&mut header, "down/".to_owned() + &"d/".repeat(200) + "file", std::io::empty())
        .unwrap();
    let stage = linked.unpack(dir.path()).unwrap();
    assert!(matches!(Survey::take(&stage), Err(StageError::TooDeep { .. })));
}
