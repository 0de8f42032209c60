//! The file of one inbox: frames are appended and synced, read by their position, and replaced all at once. All
//! functions here block.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agentiso_sys::fault;

use super::frame::MAGIC;

/// Position of a frame in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameRange {
    pub(super) at: u64,
    pub(super) len: usize,
}

/// The content of a file, unless it is too large.
pub(super) enum FileBytes {
    All(Vec<u8>),
    TooMany,
}

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Opened on first use.
    file: Option<File>,
    /// Bytes beyond this length come from a failed write and are ignored.
    len: u64,
}

impl Log {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, len: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads the whole file, unless it is larger than `most`. The temporary file of an interrupted rewrite is removed:
    /// it is incomplete, and the original still exists.
    pub(super) fn read_all(&self, most: u64) -> io::Result<Option<FileBytes>> {
        remove_if_there(&temporary(&self.path))?;
        read_all(&self.path, most)
    }

    /// Keeps the first `len` bytes of the file, which are valid, and removes the rest.
    pub(super) fn begin_at(&mut self, len: u64) -> io::Result<()> {
        self.len = len;
        let file = self.open()?;
        if file.metadata()?.len() != len {
            file.set_len(len)?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Offset of the next frame.
    pub(super) fn next_offset(&self) -> u64 {
        if self.len == 0 { MAGIC.len() as u64 } else { self.len }
    }

    /// Appends frames and syncs them; they count once they are [accepted](Self::accept). After a failure the log is
    /// unchanged.
    pub(super) fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        let at = self.len;
        let bytes = if at == 0 { [MAGIC, frames].concat() } else { frames.to_vec() };
        let done = self.open().and_then(|file| write_durably(file, &bytes, at));
        if done.is_err() {
            self.cut_back();
        }
        done
    }

    pub(super) fn accept(&mut self, frames: u64) {
        self.len = self.next_offset() + frames;
    }

    /// Removes bytes that were not accepted. If that fails, the next append overwrites them.
    pub(super) fn cut_back(&mut self) {
        let len = self.len;
        let Some(file) = self.file.take() else { return };
        if let Err(error) = file.set_len(len).and_then(|()| file.sync_data()) {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove an unfinished entry from the end of an inbox");
        }
    }

    /// Empties the file; the next append makes this durable.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.open()?.set_len(0)?;
        self.len = 0;
        Ok(())
    }

    /// Reads the bytes of one frame. If the file has become shorter, the rest is zero, so that the checksums do not
    /// match.
    pub(super) fn frame_at(&mut self, range: FrameRange) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; range.len];
        match self.open()?.read_exact_at(&mut bytes, range.at) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            Ok(()) | Err(_) => Ok(bytes),
        }
    }

    /// Replaces the file atomically: at every moment either the old or the new one exists as a whole.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(&self.path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&temporary)?;
        write_durably(&file, bytes, 0)?;
        fs::rename(&temporary, &self.path)?;
        (self.file, self.len) = (Some(file), bytes.len() as u64);
        if let Err(error) = sync(parent(&self.path)) {
            // After a power failure the old file may be back, which has the same contents.
            tracing::warn!(file = %self.path.display(), %error, "cannot sync the directory of an inbox");
        }
        Ok(())
    }

    pub(super) fn remove(&mut self) -> io::Result<()> {
        (self.file, self.len) = (None, 0);
        remove_if_there(&temporary(&self.path))?;
        remove_if_there(&self.path)
    }

    /// Copies the file to a free name in the same directory.
    pub(super) fn keep_aside(&self, problem: &str) -> io::Result<()> {
        let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        for attempt in 0..u32::MAX {
            let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let kept = with_suffix(&self.path, &format!(".damaged-{stamp}{suffix}"));
            let mut options = OpenOptions::new();
            let mut copy = match options.write(true).create_new(true).mode(0o600).open(&kept) {
                Ok(copy) => copy,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            io::copy(&mut File::open(&self.path)?, &mut copy)?;
            copy.sync_all()?;
            tracing::error!(
                file = %self.path.display(), kept = %kept.display(), problem,
                "an inbox is damaged; a copy of it was kept"
            );
            return Ok(());
        }
        Err(io::Error::other("no free name for the copy of a damaged inbox"))
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let directory = parent(&self.path);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&self.path)?;
            // The directory entries of the file and of its directory must survive a power failure too.
            sync(directory)?;
            sync(parent(directory))?;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("the file of an inbox is not open"))
    }
}

pub(super) fn read_all(path: &Path, most: u64) -> io::Result<Option<FileBytes>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A device may be endless.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(Some(if bytes.len() as u64 > most { FileBytes::TooMany } else { FileBytes::All(bytes) }))
}

/// Writes and syncs. `sync_data` includes the file's length.
fn write_durably(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    fault::write("mail.write")?;
    file.write_all_at(bytes, at)?;
    fault::write("mail.sync")?;
    file.sync_data()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn temporary(path: &Path) -> PathBuf {
    with_suffix(path, ".tmp")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
