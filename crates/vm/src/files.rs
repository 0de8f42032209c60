//! Files and directories of a guest, and contents on their way from and to it.

use std::fmt;
use std::pin::Pin;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::stream::BoxStream;
use tokio::io::AsyncRead;

use crate::failure::AgentFailure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    pub data: Bytes,
    /// The size of the whole file.
    pub size: u64,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFile {
    pub path: GuestPath,
    pub mode: Option<u32>,
    pub create_parents: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    Symlink,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// File names in the guest are bytes; bytes that are not UTF-8 are replaced. In a listing of several levels
    /// this is the path below the directory.
    pub name: String,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    /// Unix seconds.
    pub modified: i64,
}

/// A directory, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    pub entries: Vec<DirEntry>,
    /// Whether there are more entries than are listed.
    pub truncated: bool,
}

/// Options for listing a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Levels of directories, from 1 on.
    pub depth: u32,
    /// A pattern that is matched against paths if it contains a slash, else against names.
    pub glob: Option<String>,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, glob: None }
    }
}

/// Data that is sent to a guest.
pub type Upload = Pin<Box<dyn AsyncRead + Send>>;

/// A piece of data from a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    Data(Bytes),
    /// Everything was sent, except pipes, sockets and devices.
    End {
        skipped: u64,
    },
}

/// A file on its way from a guest. Dropping it ends the transfer.
pub struct Download {
    /// The size that the guest reports.
    pub size: u64,
    pub mode: u32,
    pub pieces: Pieces,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("size", &self.size).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The bytes of a file, or of an archive of a directory. Complete only if the stream contained the end.
pub type Pieces = BoxStream<'static, Result<Arrived, AgentFailure>>;
