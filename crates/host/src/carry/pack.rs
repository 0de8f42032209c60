//! Writes the archive of an export in one pass, and hashes its members on the way.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use agentiso_sys::files::FileError;
use agentiso_sys::hex;
use agentiso_vm::Target;
use sha2::{Digest, Sha256};

use super::error::CarryError;
use super::manifest::{HASHES, Hashes, MANIFEST, Manifest, Member};
use super::meter::Meter;
use super::target::Unnamed;

/// Level 1 compresses memory and disks to a fifth. Higher levels take several times as long for a few percent.
const LEVEL: i32 = 1;

const BUFFER: usize = 1 << 20;

/// A fixed time, so that two exports of a snapshot differ only in their manifests.
const NO_TIME: u64 = 0;

/// The file of each member.
pub(super) type Sources = Vec<(Member, PathBuf)>;

type Archive = tar::Builder<zstd::Encoder<'static, BufWriter<File>>>;

/// Returns the size of the written file.
pub(super) fn pack(
    manifest: &Manifest,
    sources: &Sources,
    target: &Target,
    mut meter: Meter,
) -> Result<u64, CarryError> {
    let unnamed = Unnamed::create(target)?;
    meter.total = manifest.content_bytes();
    let failed = || FileError::at("write", &target.path);
    let file = unnamed.file.try_clone().map_err(failed())?;
    let mut archive = begin(file).map_err(failed())?;
    let mut hashes = Hashes::default();
    let text = serde_json::to_vec_pretty(manifest).unwrap_or_default();
    add_text(&mut archive, MANIFEST, &text).map_err(failed())?;
    hashes.add(MANIFEST, hex(&Sha256::digest(&text)));
    for (member, path) in sources {
        let bytes = manifest.bytes_of(*member);
        let mut source = Source::open(path, bytes, &mut meter)?;
        let added = add(&mut archive, member.as_str(), bytes, &mut source);
        hashes.add(member.as_str(), source.finish(added.map_err(failed()))?);
    }
    let text = serde_json::to_vec_pretty(&hashes).unwrap_or_default();
    add_text(&mut archive, HASHES, &text).map_err(failed())?;
    finish(archive).map_err(failed())?;
    unnamed.publish()
}

fn begin(file: File) -> io::Result<Archive> {
    let mut encoder = zstd::Encoder::new(BufWriter::with_capacity(BUFFER, file), LEVEL)?;
    // zstd's own checksum covers the archive's headers, which our hashes do not.
    encoder.include_checksum(true)?;
    Ok(tar::Builder::new(encoder))
}

fn finish(archive: Archive) -> io::Result<()> {
    let mut buffer = archive.into_inner()?.finish()?;
    buffer.flush()
}

fn add_text(archive: &mut Archive, name: &str, text: &[u8]) -> io::Result<()> {
    add(archive, name, text.len() as u64, text)
}

fn add(archive: &mut Archive, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(NO_TIME);
    archive.append_data(&mut header, name, BufReader::with_capacity(BUFFER, content))
}

/// A file that is read once, hashed and counted. Its own errors are kept apart from those of the archive it is read
/// into.
struct Source<'a> {
    file: io::Take<File>,
    path: &'a Path,
    hasher: Sha256,
    meter: &'a mut Meter,
    failed: Option<CarryError>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path, bytes: u64, meter: &'a mut Meter) -> Result<Self, CarryError> {
        let file = File::open(path).map_err(FileError::at("read", path))?.take(bytes);
        Ok(Self { file, path, hasher: Sha256::new(), meter, failed: None })
    }

    /// The hash of the whole file.
    fn finish(self, added: Result<(), FileError>) -> Result<String, CarryError> {
        match (self.failed, added) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(error.into()),
            // The file became shorter after its size was read.
            (None, Ok(())) if self.file.limit() > 0 => Err(CarryError::Changed(self.path.to_owned())),
            (None, Ok(())) => Ok(hex(&self.hasher.finalize())),
        }
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.file.read(buffer) {
            Ok(read) => {
                self.hasher.update(&buffer[..read]);
                self.meter.advance(read as u64).map(|()| read)
            }
            Err(error) => Err(FileError::at("read", self.path)(error).into()),
        };
        read.map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failed = Some(error);
            told
        })
    }
}
