//! Files and directories between a guest and the host's transfer directory.
//!
//! ```text
//!   file:       host file ──────────────▶ guest        guest ──▶ temporary file ──▶ its place
//!   directory:  thread that packs ──────▶ guest        guest ──▶ thread that unpacks ──▶ its place
//! ```
//!
//! A transfer that ends early, for any reason, leaves nothing on either side.

use std::path::{Path, PathBuf};

use agentiso_core::paths::GuestPath;
use agentiso_sys::files::FileError;
use agentiso_sys::transfer::{FileSlot, Source, SourceFile, TransferDir, TransferError};
use agentiso_tree::{Packed, TreeError, pack};
use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::StreamReader;

use super::Guest;
use super::pipes::{Chunks, Counted, Meter, QUEUED, Received};
use crate::error::OpError;
use crate::vms::{AgentFailure, Arrived, Download, GuestCode, Pieces, Progress, WriteFile};

/// The number of bytes from a guest after which the space on the host's disk is checked again: a guest may send
/// without end.
const SPACE_CHECK_BYTES: u64 = 64 << 20;

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// Bytes in files.
    pub bytes: u64,
    pub directory: bool,
    /// Pipes, sockets and devices that were left out.
    pub skipped: u64,
}

impl Guest {
    /// Copies a file or a directory of the transfer directory into the guest.
    pub async fn upload(
        &self,
        from: &Path,
        to: &GuestPath,
        progress: &Progress,
    ) -> Result<Transferred, OpError> {
        let _call = self.session.begin_call();
        let given = from.to_owned();
        let source = self.in_transfer_dir(move |transfers| transfers.source(&given)).await?;
        match source {
            Source::File(file) => self.upload_file(file, to, progress).await,
            Source::Directory(directory) => {
                let (sender, pieces) = mpsc::channel(QUEUED);
                let packing = tokio::task::spawn_blocking(move || {
                    let mut archive = Chunks::new(sender);
                    let packed = pack(directory, &mut archive);
                    archive.finish(packed.as_ref().err());
                    packed
                });
                let archive = StreamReader::new(ReceiverStream::new(pieces));
                let archive = Counted::new(archive, Meter::new("sent", None, progress));
                let sent = self
                    .while_running("uploading a directory", self.agent.upload_tree(to, Box::pin(archive)))
                    .await;
                let packed = packing.await.map_err(std::io::Error::other);
                self.packed(from, sent, packed)
            }
        }
    }

    async fn upload_file(
        &self,
        file: SourceFile,
        to: &GuestPath,
        progress: &Progress,
    ) -> Result<Transferred, OpError> {
        let target = WriteFile { path: to.clone(), mode: Some(file.mode), create_parents: true };
        let meter = Meter::new("sent", Some(file.size), progress);
        let source = Counted::new(tokio::fs::File::from_std(file.file), meter);
        let upload = self.agent.upload_file(target, Box::pin(source));
        let bytes = self.while_running("uploading a file", upload).await?;
        Ok(Transferred { bytes, directory: false, skipped: 0 })
    }

    /// Combines the results of packing and sending. If both failed, the packing failed first, unless its archive
    /// was no longer taken.
    fn packed(
        &self,
        from: &Path,
        sent: Result<(), OpError>,
        packed: std::io::Result<Result<Packed, TreeError>>,
    ) -> Result<Transferred, OpError> {
        let path = || from.to_owned();
        match (packed, sent) {
            (Ok(Ok(packed)), Ok(())) => {
                Ok(Transferred { bytes: packed.bytes, directory: true, skipped: packed.skipped })
            }
            (Ok(Ok(_)), Err(error)) => Err(error),
            (Ok(Err(TreeError::Archive(cut))), Err(error))
                if cut.kind() == std::io::ErrorKind::BrokenPipe =>
            {
                Err(error)
            }
            (Ok(Err(source)), _) => Err(self.not_transferred(TransferError::Tree { path: path(), source })),
            (Err(source), _) => Err(self.not_transferred(TransferError::Io { path: path(), source })),
        }
    }

    /// Copies a file or a directory of the guest into the transfer directory.
    pub async fn download(
        &self,
        from: &GuestPath,
        to: &Path,
        progress: &Progress,
    ) -> Result<Transferred, OpError> {
        let _call = self.session.begin_call();
        self.session.refuse_when_full()?;
        let given = to.to_owned();
        match self.while_running("downloading a file", self.agent.download_file(from)).await {
            Ok(download) => {
                let slot = self.in_transfer_dir(move |transfers| transfers.file_slot(&given)).await?;
                self.download_file(download, slot, to, progress).await
            }
            Err(OpError::Guest {
                source: AgentFailure::Refused { code: GuestCode::IsDirectory, .. },
                ..
            }) => {
                let pieces =
                    self.while_running("downloading a directory", self.agent.download_tree(from)).await?;
                self.download_tree(pieces, given, progress).await
            }
            Err(error) => Err(error),
        }
    }

    async fn download_file(
        &self,
        download: Download,
        slot: FileSlot,
        to: &Path,
        progress: &Progress,
    ) -> Result<Transferred, OpError> {
        let failed = |source| self.not_transferred(TransferError::Io { path: to.to_owned(), source });
        let file = slot.file().try_clone().map_err(failed)?;
        let mut file = tokio::fs::File::from_std(file);
        let mut meter = Meter::new("received", Some(download.size), progress);
        let mut incoming =
            Incoming { guest: self, pieces: download.pieces, unchecked_bytes: 0, skipped: None };
        while let Some(data) = incoming.next().await? {
            file.write_all(&data).await.map_err(failed)?;
            meter.add(data.len());
        }
        // Writes are done by another thread and reported with the next one.
        file.flush().await.map_err(failed)?;
        let mode = download.mode;
        self.blocking(to, move || slot.commit(mode)).await?;
        Ok(Transferred { bytes: meter.total(), directory: false, skipped: 0 })
    }

    async fn download_tree(
        &self,
        pieces: Pieces,
        to: PathBuf,
        progress: &Progress,
    ) -> Result<Transferred, OpError> {
        let given = to.clone();
        let slot = self.in_transfer_dir(move |transfers| transfers.tree_slot(&given)).await?;
        let (sender, received) = mpsc::channel(QUEUED);
        // Ends with the sender and then drops the slot, so dropping this future leaves nothing behind.
        let filling = tokio::task::spawn_blocking(move || {
            let filled = slot.fill(Received::new(received));
            (slot, filled)
        });
        let mut meter = Meter::new("received", None, progress);
        let mut incoming = Incoming { guest: self, pieces, unchecked_bytes: 0, skipped: None };
        while let Some(data) = incoming.next().await? {
            meter.add(data.len());
            // Data after the end of an archive, or after a fault in it, is not read.
            if sender.send(data).await.is_err() {
                break;
            }
        }
        drop(sender);
        let (slot, filled) = filling.await.map_err(|error| {
            let source = std::io::Error::other(error);
            self.not_transferred(TransferError::Io { path: to.clone(), source })
        })?;
        let unpacked = filled.map_err(|error| self.not_transferred(error))?;
        // A fault would have been found above; this is the rest of the padding.
        while incoming.next().await?.is_some() {}
        self.blocking(&to, move || slot.commit()).await?;
        let skipped = incoming.skipped.unwrap_or(0);
        Ok(Transferred { bytes: unpacked.bytes, directory: true, skipped })
    }

    /// Runs `work` on the transfer directory.
    async fn in_transfer_dir<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TransferDir) -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, OpError> {
        let root = self.session.shared().config.paths.transfer.clone();
        let unusable = |FileError { path, source, .. }| TransferError::Io { path, source };
        let path = root.clone();
        self.blocking(&path, move || work(&TransferDir::open(&root).map_err(unusable)?)).await
    }

    /// Runs `work` on files of the host, on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
    ) -> Result<T, OpError> {
        let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
            Err(TransferError::Io { path: path.to_owned(), source: std::io::Error::other(error) })
        });
        done.map_err(|error| self.not_transferred(error))
    }

    fn not_transferred(&self, source: TransferError) -> OpError {
        OpError::Transfer { name: self.name.clone(), source }
    }
}

/// Data that arrives from a guest, as long as the host has room for it.
struct Incoming<'a> {
    guest: &'a Guest,
    pieces: Pieces,
    /// Bytes since the space on the host's disk was last checked.
    unchecked_bytes: u64,
    /// Set when the end has arrived.
    skipped: Option<u64>,
}

impl Incoming<'_> {
    /// The next piece; `None` only after the end.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, OpError> {
        const OPERATION: &str = "downloading";
        if self.skipped.is_some() {
            return Ok(None);
        }
        let pieces = &mut self.pieces;
        let next = async move {
            pieces.next().await.unwrap_or_else(|| {
                Err(AgentFailure::Broken { reason: "the transfer was cut short".to_owned() })
            })
        };
        match self.guest.while_running(OPERATION, next).await? {
            Arrived::Data(data) => {
                self.unchecked_bytes += data.len() as u64;
                if self.unchecked_bytes >= SPACE_CHECK_BYTES {
                    self.guest.session.refuse_when_full()?;
                    self.unchecked_bytes = 0;
                }
                Ok(Some(data))
            }
            Arrived::End { skipped } => {
                self.skipped = Some(skipped);
                Ok(None)
            }
        }
    }
}
