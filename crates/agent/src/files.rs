//! Reads, edits and lists files of the guest. Writing is in `upload`.

use std::time::Duration;

use agentiso_protocol::schema::v1;
use agentiso_protocol::{limits, version};
use agentiso_vm::{DirEntry, DirListing, EntryKind, ListOptions};
use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use tonic::Streaming;

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;
use super::system::too_large;

/// The longest pause within a transfer. The whole transfer has no limit, because its size has none.
pub(super) const STALL_DEADLINE: Duration = Duration::from_secs(60);

/// The longest time for a whole listing, so that a guest cannot send it entry by entry for ever.
const LISTING_DEADLINE: Duration = Duration::from_secs(300);

/// Total length of the names of one listing, which are all in memory: 300 bytes for each of the most entries that there
/// can be. Names beyond that are left out.
const MAX_LISTING_NAME_BYTES: usize = 15 << 20;

/// The longest file name in Linux.
const MAX_NAME_BYTES: usize = 255;

/// Metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its kind.
    pub kind: EntryKind,
    /// Its size in bytes, as stated by the guest.
    pub size: u64,
    /// Permission bits, at most 07777.
    pub mode: u32,
    /// Seconds since 1970 of the last change.
    pub modified_s: i64,
    /// Nanoseconds beyond the seconds, below a billion.
    pub modified_ns: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A file that is being read. Dropping it ends the transfer.
#[derive(Debug)]
pub struct FileReader {
    client: AgentClient,
    chunks: Streaming<v1::ReadFileChunk>,
    info: FileInfo,
    first: Bytes,
    /// Bytes that the guest may still send.
    left: u64,
}

impl FileReader {
    /// The file's metadata at the time of opening.
    pub fn info(&self) -> FileInfo {
        self.info
    }

    /// The next piece, never empty; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AgentError> {
        let mut data = std::mem::take(&mut self.first);
        if data.is_empty() {
            match next_message(&self.client, "read_file", &mut self.chunks).await? {
                // Otherwise a guest could send empty pieces without end.
                Some(chunk) if chunk.data.is_empty() => {
                    return Err(AgentError::violation("read_file", "an empty piece of a file"));
                }
                Some(chunk) => data = chunk.data,
                None => return Ok(None),
            }
        }
        self.left = self
            .left
            .checked_sub(data.len() as u64)
            .ok_or_else(|| AgentError::violation("read_file", "more data than requested"))?;
        Ok(Some(data))
    }

    /// Reads everything that is left, if it is at most `max_bytes`.
    pub async fn collect(mut self, max_bytes: usize) -> Result<Bytes, AgentError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await? {
            too_large("the file", all.len() + piece.len(), max_bytes)?;
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

impl AgentClient {
    /// Opens a file for reading from `offset`, at most `limit` bytes.
    pub async fn read_file(
        &self,
        path: impl AsRef<[u8]>,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<FileReader, AgentError> {
        let path = guest_path(path)?;
        let mut stub = self.stub::<v1::ReadFileChunk>();
        let request = v1::ReadFileRequest { path, offset, limit };
        let mut chunks = self.answer("read_file", CALL_DEADLINE, stub.read_file(request)).await?;
        let head = next_message(self, "read_file", &mut chunks).await?.unwrap_or_default();
        let info = info(head.info, "read_file")?;
        let left = limit.unwrap_or(u64::MAX);
        Ok(FileReader { client: self.clone(), chunks, info, first: head.data, left })
    }

    /// Replaces the first occurrence of `old`, or all of them. Returns how many were replaced.
    pub async fn edit_file(
        &self,
        path: impl AsRef<[u8]>,
        old: impl Into<Bytes>,
        new: impl Into<Bytes>,
        replace_all: bool,
    ) -> Result<u64, AgentError> {
        let (path, old, new) = (guest_path(path)?, old.into(), new.into());
        too_large("the edit", path.len() + old.len() + new.len(), limits::MAX_MESSAGE_BYTES - 1024)?;
        let mut stub = self.stub::<v1::EditFileResponse>();
        let request = v1::EditFileRequest { path, old, new, replace_all };
        // The guest answers after the file is on its disk.
        Ok(self.answer("edit_file", STALL_DEADLINE, stub.edit_file(request)).await?.replacements)
    }

    /// Lists a directory. Does not follow symbolic links and does not enter other file systems.
    pub async fn list_dir(
        &self,
        path: impl AsRef<[u8]>,
        options: &ListOptions,
    ) -> Result<DirListing, AgentError> {
        const CALL: &str = "list_dir";
        let path = guest_path(path)?;
        let glob = options.glob.as_deref().unwrap_or_default();
        too_large("the pattern", glob.len(), limits::MAX_GLOB_BYTES)?;
        let plain = options.depth == 1 && glob.is_empty();
        if !plain && !self.has_feature(version::LIST_TREES) {
            return Err(AgentError::Unsupported { call: "list_dir with depth or glob" });
        }
        let mut stub = self.stub::<v1::ListDirBatch>();
        let request = v1::ListDirRequest {
            path,
            limit: limits::MAX_DIR_ENTRIES,
            depth: options.depth,
            glob: Bytes::copy_from_slice(glob.as_bytes()),
        };
        let mut batches = self.answer(CALL, CALL_DEADLINE, stub.list_dir(request)).await?;
        let listing = async {
            let mut growing = PartialListing::default();
            while let Some(batch) = next_message(self, CALL, &mut batches).await? {
                growing.add(batch, options.depth)?;
                if growing.full {
                    break;
                }
            }
            Ok(growing.finish())
        };
        let after = LISTING_DEADLINE;
        timeout(after, listing).await.unwrap_or(Err(AgentError::TimedOut { call: CALL, after }))
    }

    /// Metadata of the file at a path; with `follow` a symbolic link at the end of the path is followed.
    pub async fn stat(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<FileInfo, AgentError> {
        let path = guest_path(path)?;
        let mut stub = self.stub::<v1::StatResponse>();
        let answer = self.answer("stat", CALL_DEADLINE, stub.stat(v1::StatRequest { path, follow })).await?;
        info(answer.info, "stat")
    }
}

pub(super) fn guest_path(path: impl AsRef<[u8]>) -> Result<Bytes, AgentError> {
    let path = path.as_ref();
    too_large("the path", path.len(), limits::MAX_PATH_BYTES)?;
    Ok(Bytes::copy_from_slice(path))
}

pub(super) async fn next_message<T>(
    client: &AgentClient,
    call: &'static str,
    messages: &mut Streaming<T>,
) -> Result<Option<T>, AgentError> {
    match timeout(STALL_DEADLINE, messages.message()).await {
        Ok(result) => result.map_err(|status| client.failure(call, &status)),
        Err(_elapsed) => Err(AgentError::TimedOut { call, after: STALL_DEADLINE }),
    }
}

/// A listing that still receives batches.
#[derive(Debug, Default)]
struct PartialListing {
    entries: Vec<(Vec<u8>, FileInfo)>,
    truncated: bool,
    name_bytes: usize,
    /// Set by a batch without entries, which must be the last one. Otherwise a guest could send empty batches without
    /// end.
    ended: bool,
    /// Set when the names exceed the limit: everything that follows is ignored.
    full: bool,
}

impl PartialListing {
    fn add(&mut self, batch: v1::ListDirBatch, depth: u32) -> Result<(), AgentError> {
        const CALL: &str = "list_dir";
        if self.ended
            || self.full
            || self.entries.len() + batch.entries.len() > limits::MAX_DIR_ENTRIES as usize
        {
            return Err(AgentError::violation(CALL, "more entries than requested"));
        }
        self.ended = batch.entries.is_empty();
        self.truncated |= batch.truncated;
        for entry in batch.entries {
            self.name_bytes += entry.name.len();
            if self.name_bytes > MAX_LISTING_NAME_BYTES {
                self.truncated = true;
                self.full = true;
                break;
            }
            let name = relative_path(&entry.name, depth)?;
            self.entries.push((name, info(entry.info, CALL)?));
        }
        Ok(())
    }

    /// Sorts by the bytes of the names, which Linux does not require to be UTF-8.
    fn finish(mut self) -> DirListing {
        self.entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let entry = |(name, info): (Vec<u8>, FileInfo)| DirEntry {
            name: String::from_utf8(name)
                .unwrap_or_else(|name| String::from_utf8_lossy(name.as_bytes()).into_owned()),
            kind: info.kind,
            size: info.size,
            mode: info.mode,
            modified: info.modified_s,
        };
        DirListing { entries: self.entries.into_iter().map(entry).collect(), truncated: self.truncated }
    }
}

/// Checks a name, or a path of at most `levels` names, none of which may leave its directory.
fn relative_path(bytes: &[u8], levels: u32) -> Result<Vec<u8>, AgentError> {
    let mut names = bytes.split(|byte| *byte == b'/');
    let plain = |name: &[u8]| {
        !matches!(name, b"" | b"." | b"..") && name.len() <= MAX_NAME_BYTES && !name.contains(&0)
    };
    let few = bytes.len() <= limits::MAX_PATH_BYTES && names.clone().count() <= levels as usize;
    if few && names.all(plain) {
        Ok(bytes.to_vec())
    } else {
        Err(AgentError::violation("list_dir", "an invalid file name"))
    }
}

fn info(info: Option<v1::FileInfo>, call: &'static str) -> Result<FileInfo, AgentError> {
    let info = info.ok_or_else(|| AgentError::violation(call, "the file's attributes are missing"))?;
    let kind = match info.kind() {
        v1::FileKind::File => EntryKind::File,
        v1::FileKind::Directory => EntryKind::Dir,
        v1::FileKind::Symlink => EntryKind::Symlink,
        v1::FileKind::Other => EntryKind::Other,
        v1::FileKind::Unspecified => return Err(AgentError::violation(call, "a file without a type")),
    };
    if info.mode > 0o7777 || info.modified_ns >= 1_000_000_000 {
        return Err(AgentError::violation(call, "an invalid mode or time"));
    }
    Ok(FileInfo {
        kind,
        size: info.size,
        mode: info.mode,
        modified_s: info.modified_s,
        modified_ns: info.modified_ns,
        uid: info.uid,
        gid: info.gid,
    })
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::schema::v1;

    use super::{MAX_LISTING_NAME_BYTES, PartialListing, info, relative_path};

    fn batch(entries: usize, name: usize) -> v1::ListDirBatch {
        let info = v1::FileInfo { kind: v1::FileKind::File.into(), ..v1::FileInfo::default() };
        let entry = v1::DirEntry { name: vec![b'x'; name].into(), info: Some(info) };
        v1::ListDirBatch { entries: vec![entry; entries], truncated: false }
    }

    #[test]
    fn listing_stays_within_its_bounds() {
        let mut long = PartialListing::default();
        for _ in 0..250 {
            long.add(batch(200, 255), 1).expect("no more entries than were asked for");
        }
        assert!(long.add(batch(1, 1), 1).is_err(), "one entry too many");
        let mut wide = PartialListing::default();
        let path = vec!["y".repeat(200); 10].join("/");
        let entry = v1::DirEntry { name: path.clone().into(), ..batch(1, 1).entries[0].clone() };
        let more = || v1::ListDirBatch { entries: vec![entry.clone(); 500], truncated: false };
        while !wide.full {
            wide.add(more(), 10).expect("it is cut instead");
        }
        assert!(wide.truncated);
        assert!(wide.add(more(), 10).is_err(), "nothing is read any more");
        assert!(wide.entries.len() * path.len() <= MAX_LISTING_NAME_BYTES);
    }

    #[test]
    fn empty_batches_end_a_listing() {
        let mut growing = PartialListing::default();
        growing.add(batch(3, 1), 1).expect("entries");
        growing.add(batch(0, 0), 1).expect("the last batch");
        assert!(growing.add(batch(0, 0), 1).is_err());
    }

    #[test]
    fn listed_names_outside_the_directory_are_refused() {
        for bad in [&b""[..], b"a/b", b"/", b"a\0", b".", b"..", &[b'a'; 256]] {
            assert!(relative_path(bad, 1).is_err(), "{bad:?}");
        }
        assert!(relative_path(b"a\xff\n", 1).is_ok() && relative_path(&[b'a'; 255], 1).is_ok());
        for bad in [&b"a/../b"[..], b"../a", b"/a", b"a//b", b"a/", b"a/b/c"] {
            assert!(relative_path(bad, 2).is_err(), "{bad:?}");
        }
        assert!(relative_path(b"a/b", 2).is_ok() && relative_path(b"a/b/.c", 3).is_ok());
    }

    #[test]
    fn impossible_file_metadata_is_refused() {
        let good = v1::FileInfo { kind: v1::FileKind::File.into(), mode: 0o7777, ..v1::FileInfo::default() };
        assert!(info(Some(good), "stat").is_ok());
        assert!(info(None, "stat").is_err());
        assert!(info(Some(v1::FileInfo { kind: 9, ..good }), "stat").is_err());
        assert!(info(Some(v1::FileInfo { mode: 0o10000, ..good }), "stat").is_err());
        assert!(info(Some(v1::FileInfo { modified_ns: 1_000_000_000, ..good }), "stat").is_err());
    }
}
