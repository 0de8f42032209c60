//! Tests of the archives that an import accepts and refuses.

use std::io::Write;

use agentiso_sys::Progress;
use agentiso_vm::Target;
use proptest::prelude::*;
use tar::EntryType;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::carry::manifest::tests::manifest;
use crate::carry::pack::pack;

const DISK: &[u8] = b"the disk";
const STATE: &[u8] = b"the devices";
const ABOUT: &[u8] = b"the memory's manifest";

fn ram() -> Vec<u8> {
    let mut ram = vec![0; 1 << 20];
    ram[70_000..70_005].copy_from_slice(b"pages");
    ram
}

fn meter() -> Meter {
    Meter::new("testing", &Progress::silent(), &CancellationToken::new())
}

fn of_memory(has_memory: bool) -> Manifest {
    let memory = has_memory.then_some((STATE.len() as u64, ABOUT.len() as u64));
    manifest(DISK.len() as u64, memory)
}

/// A directory with a valid exported file.
fn exported(has_memory: bool) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let mut sources = vec![(Member::Disk, write("a", DISK))];
    if has_memory {
        sources.push((Member::Ram, write("b", &ram())));
        sources.push((Member::DeviceState, write("c", STATE)));
        sources.push((Member::MemoryManifest, write("d", ABOUT)));
    }
    let target = Target { path: dir.path().join("file"), replace: false };
    pack(&of_memory(has_memory), &sources, &target, meter()).unwrap();
    (dir, target.path)
}

/// Unpacks into a new directory, and returns that too.
fn unpacked(file: &Path, memory: bool) -> (Result<Manifest, CarryError>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let paths = MemberPaths { disk: dir.path().join("disk"), memory: dir.path().join("memory") };
    (unpack(file, &paths, |_| memory, meter()), dir)
}

/// An archive with arbitrary headers.
struct Hostile(tar::Builder<Vec<u8>>);

impl Hostile {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn add(mut self, kind: EntryType, name: &str, size: u64, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        // Bypasses the checks of the library.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..11].copy_from_slice(b"/etc/passwd");
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.add(EntryType::Regular, name, content.len() as u64, content)
    }

    fn manifest(self, manifest: &Manifest) -> Self {
        self.file(MANIFEST, &serde_json::to_vec(manifest).unwrap())
    }

    fn hashes(self, of: &[(&str, &[u8])]) -> Self {
        let mut hashes = Hashes::default();
        for (name, content) in of {
            hashes.add(name, hex(&Sha256::digest(content)));
        }
        self.file(HASHES, &serde_json::to_vec(&hashes).unwrap())
    }

    fn refusal(self) -> String {
        self.refusal_with(b"")
    }

    fn written(self, after: &[u8]) -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let mut bytes = zstd::encode_all(&*self.0.into_inner().unwrap(), 1).unwrap();
        bytes.extend(after);
        fs::write(&file, bytes).unwrap();
        (dir, file)
    }

    fn refusal_with(self, after: &[u8]) -> String {
        let (dir, file) = self.written(after);
        let (refused, unpacked) = unpacked(&file, true);
        let outside: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(outside, ["file"], "nothing is written elsewhere");
        let inside = fs::read_dir(unpacked.path()).unwrap().flatten().map(|e| e.file_name());
        assert!(inside.into_iter().all(|name| name == "disk" || name == "memory"));
        refused.unwrap_err().to_string().split_once("imported: ").unwrap().1.to_owned()
    }
}

fn plain() -> Manifest {
    of_memory(false)
}

fn plain_text() -> Vec<u8> {
    serde_json::to_vec(&plain()).unwrap()
}

/// A valid archive without its hashes.
fn whole() -> Hostile {
    Hostile::new().manifest(&plain()).file("disk.qcow2", DISK)
}

#[test]
fn packed_snapshot_unpacks_unchanged() {
    for (has_memory, wanted) in [(false, true), (true, true), (true, false)] {
        let (_dir, file) = exported(has_memory);
        assert_eq!(look(&file).unwrap(), of_memory(has_memory));
        let (manifest, dir) = unpacked(&file, wanted);
        assert_eq!(manifest.unwrap(), of_memory(has_memory));
        assert_eq!(fs::read(dir.path().join("disk")).unwrap(), DISK);
        let memory = dir.path().join("memory");
        assert_eq!(memory.exists(), has_memory && wanted);
        if has_memory && wanted {
            assert_eq!(fs::read(memory.join("ram")).unwrap(), ram());
            assert_eq!(fs::read(memory.join("device-state")).unwrap(), STATE);
            assert_eq!(fs::read(memory.join("manifest.json")).unwrap(), ABOUT);
            assert_eq!(memory.join("ram").metadata().unwrap().permissions().mode() & 0o777, FROZEN);
        }
    }
}

#[test]
fn archive_of_zero_pages_stays_small() {
    let (_dir, file) = exported(true);
    assert!(file.metadata().unwrap().len() < 4096, "{}", file.metadata().unwrap().len());
}

#[test]
fn consistent_handmade_archive_is_accepted() {
    let text = plain_text();
    let archive = whole().hashes(&[(MANIFEST, &text), ("disk.qcow2", DISK)]);
    let (_dir, file) = archive.written(b"");
    assert_eq!(unpacked(&file, true).0.unwrap(), plain());
}

#[test]
fn foreign_files_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let zip = zstd::encode_all(&b"no archive"[..], 1).unwrap();
    for content in [&b""[..], b"x", b"#!/bin/sh\n", &zip, &[0; 2048]] {
        fs::write(&file, content).unwrap();
        for error in [look(&file).unwrap_err(), unpacked(&file, true).0.unwrap_err()] {
            assert!(
                matches!(&error, CarryError::Flawed { flaw: Flaw::Foreign(_) | Flaw::Ends(_), .. }),
                "{error}"
            );
        }
    }
    assert!(matches!(look(dir.path()), Err(CarryError::Flawed { flaw: Flaw::Foreign(_), .. })));
    assert!(matches!(look(&dir.path().join("none")), Err(CarryError::File(_))));
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(look(&pipe), Err(CarryError::Flawed { flaw: Flaw::Foreign(_), .. })), "and do not hang");
}

#[test]
fn unexpected_archive_members_are_refused() {
    let disk = DISK.len() as u64;
    let after = |kind, name: &str| Hostile::new().manifest(&plain()).add(kind, name, disk, DISK).refusal();
    for name in ["../disk.qcow2", "/etc/passwd", "./disk.qcow2", "disk.qcow2/", "memory/ram", "x", ""] {
        let refusal = after(EntryType::Regular, name);
        assert_eq!(refusal, format!("expected disk.qcow2, found {name:?}"));
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Directory,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::Block,
        EntryType::GNUSparse,
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
    ] {
        let refusal = after(kind, "disk.qcow2");
        assert!(refusal.contains("not a regular file"), "{kind:?}: {refusal}");
    }
    let again = whole().file("disk.qcow2", DISK).refusal();
    assert_eq!(again, r#"expected hashes.json, found "disk.qcow2""#);
    assert!(Hostile::new().file("disk.qcow2", DISK).refusal().starts_with("expected manifest.json"));
}

#[test]
fn wrong_member_sizes_are_refused() {
    let manifest = || Hostile::new().manifest(&plain());
    let huge = manifest().add(EntryType::Regular, "disk.qcow2", 1 << 60, DISK).refusal();
    assert_eq!(huge, "disk.qcow2 has 1152921504606846976 bytes instead of 8");
    assert!(manifest().file("disk.qcow2", b"short").refusal().contains("has 5"));
    let long = vec![b' '; MAX_MANIFEST as usize + 1];
    assert!(Hostile::new().file(MANIFEST, &long).refusal().contains("bytes instead of"));
    assert!(whole().file(HASHES, &long).refusal().contains("bytes instead of"));
    let mut large = plain();
    large.vm.resources.disk_gb = u32::MAX;
    large.members[0].bytes = 1 << 50;
    let (_dir, file) = Hostile::new().manifest(&large).written(b"");
    assert!(matches!(unpacked(&file, true).0, Err(CarryError::NoRoom { .. })));
}

#[test]
fn wrong_hashes_and_trailing_data_are_refused() {
    let text = plain_text();
    let (manifest, disk) = ((MANIFEST, &*text), ("disk.qcow2", DISK));
    assert!(whole().refusal().contains("it ends before hashes.json"));
    assert!(whole().file(HASHES, b"{").refusal().contains("invalid hashes"));
    assert!(whole().hashes(&[disk]).refusal().contains("no hash of manifest.json"));
    assert!(whole().hashes(&[manifest]).refusal().contains("no hash of disk.qcow2"));
    let more = whole().hashes(&[manifest, disk, ("x", b"")]).refusal();
    assert!(more.contains("that it does not contain"), "{more}");
    let other = whole().hashes(&[manifest, ("disk.qcow2", b"another")]).refusal();
    assert_eq!(other, "the content of disk.qcow2 does not match its hash");
    let other = whole().hashes(&[(MANIFEST, b"another"), disk]).refusal();
    assert_eq!(other, "the content of manifest.json does not match its hash");
    let sound = || whole().hashes(&[manifest, disk]);
    assert_eq!(sound().file("x", b"").refusal(), "unexpected data after its end");
    let bomb = zstd::encode_all(&*vec![0; 1 << 20], 1).unwrap();
    assert_eq!(sound().refusal_with(&bomb), "unexpected data after its end");
    let other = zstd::encode_all(&b"x"[..], 1).unwrap();
    assert_eq!(sound().refusal_with(&other), "unexpected data after its end");
    assert!(sound().refusal_with(b"not zstd").contains("damaged or truncated"));
}

#[test]
fn unpacking_stops_when_cancelled() {
    let (_dir, file) = exported(true);
    let dir = tempfile::tempdir().unwrap();
    let paths = MemberPaths { disk: dir.path().join("disk"), memory: dir.path().join("memory") };
    let cancel = CancellationToken::new();
    cancel.cancel();
    let meter = Meter::new("testing", &Progress::silent(), &cancel);
    assert!(matches!(unpack(&file, &paths, |_| true, meter), Err(CarryError::Cancelled)));
}

/// Whether a changed file was unpacked to the original content.
fn is_sound(result: &Result<Manifest, CarryError>, dir: &TempDir) -> bool {
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap_or_default();
    result.as_ref().is_ok_and(|manifest| *manifest == of_memory(true))
        && read("disk") == DISK
        && read("memory/ram") == ram()
        && read("memory/device-state") == STATE
        && read("memory/manifest.json") == ABOUT
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn truncated_archive_is_refused(part in 0.0..1.0f64) {
        let (_dir, file) = exported(true);
        let whole = fs::read(&file).unwrap();
        let length = (whole.len() as f64 * part) as usize;
        fs::write(&file, &whole[..length]).unwrap();
        prop_assert!(unpacked(&file, true).0.is_err());
    }

    #[test]
    fn flipped_file_bit_is_detected_or_harmless(at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let (_dir, file) = exported(true);
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        fs::write(&file, &bytes).unwrap();
        let (result, dir) = unpacked(&file, true);
        prop_assert!(result.is_err() || is_sound(&result, &dir), "byte {at}");
    }

    #[test]
    fn flipped_tar_bit_is_detected_or_harmless(at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let (_dir, file) = exported(true);
        let mut archive = zstd::decode_all(File::open(&file).unwrap()).unwrap();
        let at = at.index(archive.len());
        archive[at] ^= 1u8 << bit;
        // A repacked archive has a valid zstd checksum, so only our own hashes can detect the change.
        fs::write(&file, zstd::encode_all(&*archive, 1).unwrap()).unwrap();
        let (result, dir) = unpacked(&file, true);
        prop_assert!(result.is_err() || is_sound(&result, &dir), "byte {at}");
    }

    #[test]
    fn random_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4000), packed: bool) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let content = if packed { zstd::encode_all(&*bytes, 1).unwrap() } else { bytes };
        File::create(&file).unwrap().write_all(&content).unwrap();
        prop_assert!(unpacked(&file, true).0.is_err());
    }
}
