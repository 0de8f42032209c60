//! Opens the layers of a volume for a QEMU that cannot open them itself: the head for writing, the layers below it
//! read-only.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use agentiso_disk::qcow2_header::Header;
use agentiso_disk::{DiskError, Qcow2Storage, Storage};
use agentiso_sys::files::FileError;

use crate::qemu::argv::{Given, Layer};

/// Lower fd sets are used for other files.
const FIRST_SET: u64 = 10;

/// The files of a volume, from the head down to the image.
pub(crate) async fn of(dir: &Path) -> Result<Vec<PathBuf>, DiskError> {
    let layers = Qcow2Storage.chain(dir, None).await?;
    if let Some(lowest) = layers.last() {
        let header =
            Header::read(lowest).map_err(|source| DiskError::Format { path: lowest.clone(), source })?;
        // QEMU gets the chain as options. If the last layer had another one below it, QEMU would read nothing there.
        if let Some(on) = header.backing_file {
            return Err(DiskError::Outside { layer: lowest.clone(), on });
        }
    }
    Ok(layers)
}

/// Opens the layers. Layers below the head may be shared with other workspaces and are opened read-only.
pub(super) fn open(files: &[PathBuf]) -> Result<(Vec<Layer>, Vec<OwnedFd>), FileError> {
    let (mut layers, mut opened) = (Vec::new(), Vec::new());
    for (set, file) in (FIRST_SET..).zip(files) {
        let is_head = set == FIRST_SET;
        let fd: OwnedFd = File::options()
            .read(true)
            .write(is_head)
            .open(file)
            .map_err(FileError::at("open the layer", file))?
            .into();
        layers.push(Layer { file: file.clone(), given: Given { set, fd: fd.as_raw_fd() } });
        opened.push(fd);
    }
    Ok((layers, opened))
}
