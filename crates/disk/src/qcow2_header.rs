//! The first clusters of a qcow2 file (version 3): enough to make an empty overlay and to read a disk's size.
//!
//! ```text
//! cluster 0   header, backing format, backing file name
//! cluster 1   refcount table: one entry, pointing to cluster 2
//! cluster 2   refcount block: the clusters below are in use once
//! cluster 3.. L1 table: all zero, every read goes to the backing file
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use agentiso_diff::qcow2::{
    EXTENSION_BACKING_FORMAT, Fields, FieldsError, HEADER_LENGTH, MAX_BACKING_NAME, MAX_VIRTUAL_SIZE,
};
use agentiso_sys::files::is_out_of_space;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use thiserror::Error;

use super::qcow2_lock::refuse_written;

const CLUSTER_BITS: u32 = 16;
pub(super) const CLUSTER: u64 = 1 << CLUSTER_BITS;

/// Refcounts of 16 bits: the only width every reader knows.
const REFCOUNT_ORDER: u32 = 4;

/// The bytes that one L1 entry covers: a cluster full of 8-byte entries, each for one cluster.
const BYTES_PER_L1_ENTRY: u64 = CLUSTER * (CLUSTER / 8);

/// The offsets for a changed backing name. There are two, so that the one in use stays intact until the header points
/// to the other. Both are far behind anything that is written after the header, and within the first cluster.
const NAME_SLOTS: [u64; 2] = [CLUSTER / 2, CLUSTER / 4 * 3];

/// Enough for the header and the name of most files. A volume may have a hundred layers to read.
const FIRST_READ: u64 = 4096;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

#[derive(Debug, Error)]
pub enum HeaderError {
    #[error("it could not be read or written: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Fields(FieldsError),
    #[error("invalid disk size of {0} bytes")]
    Size(u64),
    #[error("the backing file's name has {0} bytes; the format allows {MAX_BACKING_NAME}")]
    BackingName(usize),
    #[error("unsupported: {0}")]
    Unsupported(&'static str),
    #[error("its tables are damaged: {0}")]
    Damaged(&'static str),
    #[error("a VM has it open")]
    InUse,
    #[error("it was interrupted")]
    Interrupted,
}

impl From<FieldsError> for HeaderError {
    fn from(error: FieldsError) -> Self {
        match error {
            FieldsError::Short => Self::Read(io::ErrorKind::UnexpectedEof.into()),
            FieldsError::Magic | FieldsError::Version(_) => Self::Fields(error),
        }
    }
}

impl HeaderError {
    /// Whether another attempt may succeed although nothing is changed.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            // A file that is too short stays so.
            Self::Read(error) => error.kind() != io::ErrorKind::UnexpectedEof,
            Self::InUse | Self::Interrupted => true,
            Self::Fields(_)
            | Self::Size(_)
            | Self::BackingName(_)
            | Self::Unsupported(_)
            | Self::Damaged(_) => false,
        }
    }

    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::Read(error) => is_out_of_space(error),
            Self::Fields(_)
            | Self::Size(_)
            | Self::BackingName(_)
            | Self::Unsupported(_)
            | Self::Damaged(_)
            | Self::InUse
            | Self::Interrupted => false,
        }
    }
}

/// The properties of an existing disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub virtual_size: u64,
    pub backing_file: Option<String>,
}

impl Header {
    pub fn read(path: &Path) -> Result<Self, HeaderError> {
        let file = File::open(path)?;
        let mut start = Vec::with_capacity(FIRST_READ as usize);
        (&file).take(FIRST_READ).read_to_end(&mut start)?;
        match Self::parse(&start) {
            // In a few files, the name is further behind.
            Err(HeaderError::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                (&file).take(CLUSTER - FIRST_READ).read_to_end(&mut start)?;
                Self::parse(&start)
            }
            parsed => parsed,
        }
    }

    /// Parses the first cluster of a file.
    pub fn parse(start: &[u8]) -> Result<Self, HeaderError> {
        let Fields { virtual_size, backing_at, backing_length, .. } = Fields::parse(start)?;
        if virtual_size > MAX_VIRTUAL_SIZE {
            return Err(HeaderError::Size(virtual_size));
        }
        if backing_at == 0 {
            return Ok(Self { virtual_size, backing_file: None });
        }
        let length = backing_length as usize;
        if length > MAX_BACKING_NAME {
            return Err(HeaderError::BackingName(length));
        }
        let name = usize::try_from(backing_at)
            .ok()
            .and_then(|from| start.get(from..from.checked_add(length)?))
            .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(Self { virtual_size, backing_file: Some(String::from_utf8_lossy(name).into_owned()) })
    }
}

/// Makes an empty disk on top of a qcow2 file. A relative backing name is relative to the disk's directory.
pub fn create_overlay(path: &Path, backing_file: &str, virtual_size: u64) -> Result<(), HeaderError> {
    let tables = Tables::new(backing_file, virtual_size)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all_at(&tables.header, 0)?;
    file.write_all_at(&(2 * CLUSTER).to_be_bytes(), CLUSTER)?;
    file.write_all_at(&tables.refcounts, 2 * CLUSTER)?;
    // The L1 table is all zeroes, as the hole at the end of the file reads.
    file.set_len(tables.clusters * CLUSTER)?;
    Ok(())
}

/// Allocates the first cluster, most of which is a hole, so that a later write of the whole cluster needs no space.
pub fn reserve_header(file: &File) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, CLUSTER) {
        // This file system cannot reserve space.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Changes the backing name of a layer. A crash leaves the old name or the new one.
pub(super) fn change_backing(path: &Path, backing_file: &str) -> Result<(), HeaderError> {
    if backing_file.is_empty() || backing_file.len() > MAX_BACKING_NAME {
        return Err(HeaderError::BackingName(backing_file.len()));
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // A VM would overwrite the header with the name it knows.
    refuse_written(&file)?;
    let layout = Layout::read(&file)?;
    let mut sector = [0; SECTOR];
    file.read_exact_at(&mut sector, 0)?;
    let slot = NAME_SLOTS[usize::from(layout.backing_at == NAME_SLOTS[0])];
    file.write_all_at(backing_file.as_bytes(), slot)?;
    file.sync_data()?;
    sector[8..16].copy_from_slice(&slot.to_be_bytes());
    sector[16..20].copy_from_slice(&(backing_file.len() as u32).to_be_bytes());
    file.write_all_at(&sector, 0)?;
    Ok(file.sync_data()?)
}

/// The offsets of a layer's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) virtual_size: u64,
    backing_at: u64,
    pub(super) l1_at: u64,
    pub(super) l1_entries: u64,
    pub(super) refcount_table_at: u64,
    pub(super) refcount_table_clusters: u64,
}

impl Layout {
    pub(super) fn read(file: &File) -> Result<Self, HeaderError> {
        let fields = read_ours(file)?;
        let layout = Self {
            virtual_size: fields.virtual_size,
            backing_at: fields.backing_at,
            l1_at: fields.l1_at,
            l1_entries: fields.l1_entries.into(),
            refcount_table_at: fields.refcount_table_at,
            refcount_table_clusters: fields.refcount_table_clusters.into(),
        };
        if layout.virtual_size > MAX_VIRTUAL_SIZE {
            return Err(HeaderError::Size(layout.virtual_size));
        }
        let entries = layout.virtual_size.div_ceil(BYTES_PER_L1_ENTRY);
        let aligned =
            layout.l1_at.is_multiple_of(CLUSTER) && layout.refcount_table_at.is_multiple_of(CLUSTER);
        // One cluster of the refcount table covers 16 TiB.
        if !aligned || layout.l1_entries != entries || !(1..=4).contains(&layout.refcount_table_clusters) {
            return Err(HeaderError::Damaged("impossible position or size"));
        }
        Ok(layout)
    }
}

/// Reads a header and refuses features that our files never have, because changing or using such a file would require
/// support for them.
pub fn read_ours(file: &File) -> Result<Fields, HeaderError> {
    let mut start = [0; HEADER_LENGTH];
    file.read_exact_at(&mut start, 0)?;
    let fields = Fields::parse(&start)?;
    let unusual = [
        (fields.version != 3, "format version 2"),
        (
            fields.cluster_bits != CLUSTER_BITS || fields.refcount_order != REFCOUNT_ORDER,
            "unusual cluster or refcount sizes",
        ),
        (fields.encryption != 0, "encryption"),
        (fields.snapshots != 0, "internal snapshots"),
        // An external data file is an incompatible feature. Autoclear features are, for example, bitmaps in clusters
        // that we would take for unused.
        (fields.incompatible != 0 || fields.autoclear != 0, "unknown features"),
    ];
    match unusual.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, what)) => Err(HeaderError::Unsupported(what)),
        None => Ok(fields),
    }
}

struct Tables {
    header: Vec<u8>,
    refcounts: Vec<u8>,
    clusters: u64,
}

impl Tables {
    fn new(backing_file: &str, virtual_size: u64) -> Result<Self, HeaderError> {
        if virtual_size == 0 || !virtual_size.is_multiple_of(512) || virtual_size > MAX_VIRTUAL_SIZE {
            return Err(HeaderError::Size(virtual_size));
        }
        if backing_file.is_empty() || backing_file.len() > MAX_BACKING_NAME {
            return Err(HeaderError::BackingName(backing_file.len()));
        }
        let l1_entries = virtual_size.div_ceil(BYTES_PER_L1_ENTRY);
        let clusters = 3 + (l1_entries * 8).div_ceil(CLUSTER);
        let fields = Fields {
            version: 3,
            backing_at: HEADER_LENGTH as u64 + 16 + 8,
            backing_length: backing_file.len() as u32,
            cluster_bits: CLUSTER_BITS,
            virtual_size,
            l1_entries: l1_entries as u32,
            l1_at: 3 * CLUSTER,
            refcount_table_at: CLUSTER,
            refcount_table_clusters: 1,
            refcount_order: REFCOUNT_ORDER,
            header_length: HEADER_LENGTH as u32,
            ..Fields::default()
        };
        let mut header = fields.to_bytes().to_vec();
        header.extend(EXTENSION_BACKING_FORMAT.to_be_bytes());
        header.extend(5u32.to_be_bytes());
        header.extend(b"qcow2\0\0\0"); // padded to eight bytes
        header.extend([0; 8]); // end of the extensions
        header.extend(backing_file.as_bytes());
        let refcounts = 1u16.to_be_bytes().repeat(clusters as usize);
        Ok(Self { header, refcounts, clusters })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn qcow2_header_length_matches_its_field() {
        let tables = Tables::new("base.qcow2", 10 << 30).unwrap();
        assert_eq!(tables.header.len(), HEADER_LENGTH + 24 + "base.qcow2".len());
        assert_eq!(tables.header[100..104], 104_u32.to_be_bytes());
    }

    #[test]
    fn overlay_refuses_invalid_sizes_and_names() {
        assert!(matches!(Tables::new("b", 0), Err(HeaderError::Size(0))));
        assert!(matches!(Tables::new("b", 513), Err(HeaderError::Size(513))));
        assert!(matches!(Tables::new("b", MAX_VIRTUAL_SIZE + 512), Err(HeaderError::Size(_))));
        assert!(matches!(Tables::new(&"b".repeat(1024), 512), Err(HeaderError::BackingName(1024))));
        assert!(matches!(Tables::new("", 512), Err(HeaderError::BackingName(0))));
    }

    #[test]
    fn non_qcow2_headers_are_refused() {
        assert!(matches!(Header::parse(b""), Err(HeaderError::Fields(FieldsError::Magic))));
        assert!(matches!(Header::parse(b"ELF-something"), Err(HeaderError::Fields(FieldsError::Magic))));
        assert!(matches!(
            Header::parse(b"QFI\xfb\0\0\0\x09"),
            Err(HeaderError::Fields(FieldsError::Version(9)))
        ));
        assert!(matches!(Header::parse(b"QFI\xfb\0\0\0\x03"), Err(HeaderError::Read(_))));
    }

    proptest! {
        #[test]
        fn qcow2_header_round_trips(sectors in 1u64..(64 << 40) / 512, name in "[a-z/,ä]{1,300}") {
            let tables = Tables::new(&name, sectors * 512).unwrap();
            let header = Header::parse(&tables.header).unwrap();
            prop_assert_eq!(header, Header { virtual_size: sectors * 512, backing_file: Some(name) });
            // One refcount block covers 32768 clusters.
            prop_assert!(tables.refcounts.len() as u64 <= CLUSTER);
        }

        #[test]
        fn random_bytes_never_panic_the_header_parser(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::parse(&bytes);
            bytes.splice(0..0, *b"QFI\xfb\0\0\0\x03");
            let _ = Header::parse(&bytes);
        }
    }
}
