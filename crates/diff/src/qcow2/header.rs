//! Parser for the header of a qcow2 file. Every number is checked before it is used.

use std::path::PathBuf;

use super::error::LayerError;
use super::fields::{
    EXTENSION_BACKING_FORMAT, Fields, FieldsError, HEADER_LENGTH, MAX_BACKING_NAME, MAX_VIRTUAL_SIZE, u32_at,
};

/// The bytes that are read for the header: the extensions and the backing file's name follow the fixed part within the
/// first cluster, which is 64 KiB in every disk that agentiso makes.
pub(super) const HEADER_BYTES: u64 = 64 << 10;

const INCOMPATIBLE_DIRTY: u64 = 1;
const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_END: u32 = 0;

/// QEMU refuses longer L1 tables too.
const MAX_L1_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster_bits: u32,
    pub(super) virtual_size: u64,
    pub(super) l1_offset: u64,
    /// The number of L1 entries that the disk needs; the table may have more.
    pub(super) l1_entries: usize,
    pub(super) backing_file: Option<PathBuf>,
}

impl Header {
    /// Parses the first [`HEADER_BYTES`] of a file, or all of a shorter one.
    pub(super) fn parse(start: &[u8]) -> Result<Self, LayerError> {
        let fields = Fields::parse(start).map_err(|error| match error {
            FieldsError::Magic => LayerError::Magic,
            FieldsError::Version(version) => LayerError::Version(version),
            FieldsError::Short => cut_off(start),
        })?;
        let Fields { cluster_bits, virtual_size, l1_at: l1_offset, .. } = fields;
        if fields.version != 3 {
            return Err(LayerError::Version(fields.version));
        }
        refuse_features(fields.incompatible)?;
        if fields.encryption != 0 {
            return Err(LayerError::Unsupported("encryption"));
        }
        if !(9..=21).contains(&cluster_bits) {
            return Err(LayerError::Header { what: "cluster size", value: cluster_bits.into() });
        }
        if virtual_size > MAX_VIRTUAL_SIZE {
            return Err(LayerError::Header { what: "disk size", value: virtual_size });
        }
        // One L1 entry covers a cluster full of 8-byte entries, each for one cluster.
        let l1_entries = virtual_size.div_ceil(1 << (2 * cluster_bits - 3));
        let l1_size = u64::from(fields.l1_entries);
        if l1_size < l1_entries || l1_entries * 8 > MAX_L1_BYTES {
            return Err(LayerError::Header { what: "length of the L1 table", value: l1_size });
        }
        if !l1_offset.is_multiple_of(1 << cluster_bits) {
            return Err(LayerError::Header { what: "place of the L1 table", value: l1_offset });
        }
        let backing_file = backing_file(start, &fields)?;
        if backing_file.is_some() && backing_format(start, &fields)?.is_some_and(|format| format != b"qcow2")
        {
            return Err(LayerError::Unsupported("a backing file that is not qcow2"));
        }
        Ok(Self { cluster_bits, virtual_size, l1_offset, l1_entries: l1_entries as usize, backing_file })
    }
}

fn refuse_features(incompatible: u64) -> Result<(), LayerError> {
    if incompatible & INCOMPATIBLE_CORRUPT != 0 {
        return Err(LayerError::Damaged);
    }
    let named = [
        (INCOMPATIBLE_DATA_FILE, "an external data file"),
        (INCOMPATIBLE_COMPRESSION, "compression"),
        (INCOMPATIBLE_EXTENDED_L2, "subclusters"),
    ];
    if let Some((_, name)) = named.iter().find(|(bit, _)| incompatible & bit != 0) {
        return Err(LayerError::Unsupported(name));
    }
    // Dirty means that reference counts may be wrong; a reader does not need them.
    match incompatible & !INCOMPATIBLE_DIRTY {
        0 => Ok(()),
        unknown => Err(LayerError::Features(unknown)),
    }
}

fn backing_file(start: &[u8], fields: &Fields) -> Result<Option<PathBuf>, LayerError> {
    let (offset, length) = (fields.backing_at, fields.backing_length as usize);
    if offset == 0 {
        return Ok(None);
    }
    if length == 0 || length > MAX_BACKING_NAME {
        return Err(LayerError::Header { what: "length of the backing file's name", value: length as u64 });
    }
    let name = usize::try_from(offset)
        .ok()
        .and_then(|from| start.get(from..from.checked_add(length)?))
        .ok_or(LayerError::Header { what: "place of the backing file's name", value: offset })?;
    let name = std::str::from_utf8(name).map_err(|_| LayerError::BackingName)?;
    // For QEMU, a colon before any slash ends the name of a protocol ("nbd:", "json:").
    let protocol = name.find(':').is_some_and(|colon| !name[..colon].contains('/'));
    if protocol || name.contains('\0') {
        return Err(LayerError::BackingName);
    }
    Ok(Some(name.into()))
}

/// The backing file's format, if the header names it.
fn backing_format<'a>(start: &'a [u8], fields: &Fields) -> Result<Option<&'a [u8]>, LayerError> {
    let length = fields.header_length as usize;
    let mut rest = match length {
        HEADER_LENGTH.. => start.get(length..),
        _ => None,
    }
    .ok_or(LayerError::Header { what: "header length", value: length as u64 })?;
    // The loop ends because every iteration consumes at least eight bytes.
    loop {
        let (Some(kind), Some(length)) = (u32_at(rest, 0), u32_at(rest, 4)) else {
            return Err(cut_off(rest));
        };
        let length = length as usize;
        if kind == EXTENSION_END {
            return Ok(None);
        }
        let cut = LayerError::Header { what: "length of an extension", value: length as u64 };
        let Some(content) = rest[8..].get(..length) else { return Err(cut) };
        if kind == EXTENSION_BACKING_FORMAT {
            return Ok(Some(content));
        }
        rest = rest.get(8 + length.next_multiple_of(8)..).ok_or(cut)?;
    }
}

fn cut_off(bytes: &[u8]) -> LayerError {
    LayerError::Header { what: "end", value: bytes.len() as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header as `qemu-img create -b base.qcow2 -F qcow2` makes it, of a disk of 1 GiB.
    fn header() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        put(&mut bytes, 12, 136);
        put(&mut bytes, 16, 10);
        put(&mut bytes, 20, 16);
        put(&mut bytes, 28, 1 << 30);
        put(&mut bytes, 36, 2);
        put(&mut bytes, 44, 3 << 16);
        put(&mut bytes, 100, 104);
        put(&mut bytes, 104, EXTENSION_BACKING_FORMAT);
        put(&mut bytes, 108, 5);
        bytes[112..117].copy_from_slice(b"qcow2");
        bytes[136..146].copy_from_slice(b"base.qcow2");
        bytes
    }

    fn put(bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    fn with(at: usize, value: u32) -> Result<Header, LayerError> {
        let mut bytes = header();
        put(&mut bytes, at, value);
        Header::parse(&bytes)
    }

    #[test]
    fn qemu_header_is_parsed() {
        let header = Header::parse(&header()).unwrap();
        assert_eq!(header.virtual_size, 1 << 30);
        assert_eq!(header.l1_entries, 2);
        assert_eq!(header.backing_file, Some("base.qcow2".into()));
    }

    #[test]
    fn unsupported_features_are_refused_by_name() {
        assert!(matches!(with(4, 2), Err(LayerError::Version(2))));
        assert!(matches!(with(32, 2), Err(LayerError::Unsupported("encryption"))));
        assert!(matches!(with(76, 2), Err(LayerError::Damaged)));
        assert!(matches!(with(76, 4), Err(LayerError::Unsupported("an external data file"))));
        assert!(matches!(with(76, 8), Err(LayerError::Unsupported("compression"))));
        assert!(matches!(with(76, 16), Err(LayerError::Unsupported("subclusters"))));
        assert!(matches!(with(76, 1 << 10), Err(LayerError::Features(0x400))));
        assert!(with(76, 1).is_ok(), "a dirty disk can be read");
        let raw = with(112, u32::from_be_bytes(*b"raw\0"));
        assert!(matches!(raw, Err(LayerError::Unsupported("a backing file that is not qcow2"))));
        assert!(matches!(Header::parse(b"ELF"), Err(LayerError::Magic)));
    }

    #[test]
    fn impossible_numbers_are_refused_before_they_are_used() {
        for (at, value, field) in [
            (20, 40, "cluster size"),
            (24, 1 << 20, "disk size"),
            (36, 1, "length of the L1 table"),
            (44, 1, "place of the L1 table"),
            (16, 5000, "length of the backing file's name"),
            (12, 5000, "place of the backing file's name"),
            (100, 20, "header length"),
            (108, 4000, "length of an extension"),
        ] {
            let parsed = with(at, value);
            assert!(
                matches!(parsed, Err(LayerError::Header { what, .. }) if what == field),
                "{field}: {parsed:?}"
            );
        }
    }

    #[test]
    fn backing_names_that_are_not_files_are_refused() {
        for name in [b"json:{}abc", b"nbd://host", b"with\0zero\0", b"not\xffutf-8."] {
            let mut bytes = header();
            bytes[136..146].copy_from_slice(name);
            assert!(matches!(Header::parse(&bytes), Err(LayerError::BackingName)), "{name:?}");
        }
        let mut bytes = header();
        bytes[136..146].copy_from_slice(b"./a:b.qcow");
        assert!(Header::parse(&bytes).is_ok());
    }

    proptest! {
        #[test]
        fn header_parser_never_panics(
            flips in proptest::collection::vec((0usize..160, any::<u8>()), 0..8),
            length in 0usize..512,
        ) {
            let mut bytes = header();
            flips.into_iter().for_each(|(at, value)| bytes[at] = value);
            let _ = Header::parse(&bytes);
            let _ = Header::parse(&bytes[..length]);
        }
    }
}
