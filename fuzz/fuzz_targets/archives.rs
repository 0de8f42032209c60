//! Untrusted tar archives for both readers: directories from a guest, and root file systems that are imported as
//! images. Nothing may be written outside of the directory, no link of a tree may lead out of it, and an unpacked tree
//! must survive packing and unpacking unchanged.
//!
//! The first byte of the input selects the reader.

#![no_main]

use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use agentiso_tree::Links;
use libfuzzer_sys::fuzz_target;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// The content of a file beside the directories that are written to.
const OUTSIDE: &[u8] = b"nobody writes here";

/// The mode bits that a guest's files keep on the host.
const MODES: u32 = 0o777;

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("agentiso-fuzz-archives-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory to work in");
    dir
});

fuzz_target!(|data: &[u8]| {
    let Some((which, archive)) = data.split_first() else { return };
    clear(&DIR);
    let outside = DIR.join("outside");
    fs::write(&outside, OUTSIDE).expect("a file outside");
    match which % 2 {
        0 => tree(archive),
        _ => image(archive),
    }
    assert_eq!(fs::read(&outside).expect("the file outside is there"), OUTSIDE);
    let expected = ["again", "archive.tar", "outside", "tree"];
    for entry in fs::read_dir(&*DIR).expect("the directory is there") {
        let name = entry.expect("an entry").file_name();
        assert!(expected.iter().any(|expected| name == *expected), "{name:?} was written outside");
    }
});

fn tree(archive: &[u8]) {
    let unpacked = fresh("tree");
    if agentiso_tree::unpack(archive, unpacked.as_fd(), MODES, Links::Inside).is_err() {
        return;
    }
    no_link_leads_out(&unpacked, Path::new("."));
    let mut packed = Vec::new();
    // An ordinary user may have no permission to read the files.
    if agentiso_tree::pack(unpacked, &mut packed).is_err() {
        return;
    }
    let again = fresh("again");
    agentiso_tree::unpack(&packed[..], again.as_fd(), MODES, Links::Inside)
        .expect("what was packed is unpacked");
    let mut same = Vec::new();
    agentiso_tree::pack(again, &mut same).expect("what was unpacked is packed");
    assert!(packed == same, "a tree changes on its way");
}

/// Opens every link with RESOLVE_BENEATH and checks that none leads out of the directory.
fn no_link_leads_out(tree: &OwnedFd, below: &Path) {
    let Ok(entries) = fs::read_dir(DIR.join("tree").join(below)) else { return };
    for entry in entries {
        let entry = entry.expect("an entry");
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().expect("its kind"));
        if kind.is_dir() {
            no_link_leads_out(tree, &path);
        } else if kind.is_symlink() {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let followed = openat2(tree, &path, flags, Mode::empty(), ResolveFlags::BENEATH);
            assert!(!matches!(followed, Err(Errno::XDEV)), "{path:?} leads out");
        }
    }
}

fn image(archive: &[u8]) {
    let file = DIR.join("archive.tar");
    fs::write(&file, archive).expect("the archive is written");
    let file = File::open(&file).expect("the archive is there");
    let _ = agentiso_image::unpack_tar(file, &DIR.join("tree"));
}

fn fresh(name: &str) -> OwnedFd {
    let path = DIR.join(name);
    fs::create_dir(&path).expect("a directory");
    File::open(&path).expect("the directory is there").into()
}

/// Empties a directory, also if modes forbid it.
fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let is_dir = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if is_dir {
            fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("our own directory");
            clear(&path);
            fs::remove_dir(&path).expect("an empty directory is removed");
        } else {
            fs::remove_file(&path).expect("a file is removed");
        }
    }
}
