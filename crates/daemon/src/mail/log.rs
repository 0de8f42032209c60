//! The file of one inbox: frames are appended and synced, read by their place, and replaced all at once. Everything here
//! blocks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agentiso_host::fault;

use super::frame::MAGIC;

/// A frame in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) len: usize,
}

/// What a file holds.
pub(super) enum Bytes {
    All(Vec<u8>),
    TooMany,
}

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Opened by the first use.
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

    /// The whole file, unless it is larger than `most`. A rewrite that was interrupted is removed: it is not complete,
    /// and the file that it was made from is there.
    pub(super) fn read_all(&self, most: u64) -> io::Result<Option<Bytes>> {
        remove_if_there(&temporary(&self.path))?;
        read_all(&self.path, most)
    }

    /// So many bytes of the file are good; the rest is removed.
    pub(super) fn begin_at(&mut self, len: u64) -> io::Result<()> {
        self.len = len;
        let file = self.open()?;
        if file.metadata()?.len() != len {
            file.set_len(len)?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Where the next frame begins.
    pub(super) fn next_place(&self) -> u64 {
        if self.len == 0 { MAGIC.len() as u64 } else { self.len }
    }

    /// Appends frames and syncs them; they count once they are [accepted](Self::accept). A failure leaves nothing.
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
        self.len = self.next_place() + frames;
    }

    /// Removes what does not count. If that fails, the next append overwrites it.
    pub(super) fn cut_back(&mut self) {
        let len = self.len;
        let Some(file) = self.file.take() else { return };
        if let Err(error) = file.set_len(len).and_then(|()| file.sync_data()) {
            tracing::warn!(file = %self.path.display(), %error, "an unfinished entry stays at the end of an inbox");
        }
    }

    /// Empties the inbox; the next append makes this durable.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.open()?.set_len(0)?;
        self.len = 0;
        Ok(())
    }

    /// The bytes at a place. A file that has become shorter is as one that has changed.
    pub(super) fn frame_at(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.len];
        match self.open()?.read_exact_at(&mut bytes, place.at) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            Ok(()) | Err(_) => Ok(bytes),
        }
    }

    /// Replaces the file by another: the old one or the new one is there, whole, at every moment.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary(&self.path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&temporary)?;
        write_durably(&file, bytes, 0)?;
        fs::rename(&temporary, &self.path)?;
        (self.file, self.len) = (Some(file), bytes.len() as u64);
        if let Err(error) = sync(parent(&self.path)) {
            // After a power cut the old file may be there again, which says the same.
            tracing::warn!(file = %self.path.display(), %error, "the directory of an inbox cannot be synced");
        }
        Ok(())
    }

    pub(super) fn remove(&mut self) -> io::Result<()> {
        (self.file, self.len) = (None, 0);
        remove_if_there(&temporary(&self.path))?;
        remove_if_there(&self.path)
    }

    /// Copies the file beside itself, under a name that is free.
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
        Err(io::Error::other("no name is free to keep a damaged inbox aside"))
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let directory = parent(&self.path);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&self.path)?;
            // The names of the file and of its directory must outlast a power cut too.
            sync(directory)?;
            sync(parent(directory))?;
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("the file of an inbox is not open"))
    }
}

pub(super) fn read_all(path: &Path, most: u64) -> io::Result<Option<Bytes>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A device may have no end.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(Some(if bytes.len() as u64 > most { Bytes::TooMany } else { Bytes::All(bytes) }))
}

/// A file's length is part of what is synced.
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
