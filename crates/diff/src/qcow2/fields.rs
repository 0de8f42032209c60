//! The fixed part of a qcow2 header, field by field. What the fields may say is decided by the readers of a file.

use thiserror::Error;

const MAGIC: [u8; 4] = *b"QFI\xfb";

/// The length of the fixed part in version 3, and the part of it that version 2 has too.
pub const HEADER_LENGTH: usize = 104;
const OLD_HEADER_LENGTH: usize = 72;

/// The header extension that names the backing file's format, so that QEMU does not guess it from guest data.
pub const EXTENSION_BACKING_FORMAT: u32 = 0xE279_2ACA;

/// The format's limit.
pub const MAX_BACKING_NAME: usize = 1023;

/// Far above any disk that agentiso makes.
pub const MAX_VIRTUAL_SIZE: u64 = 64 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldsError {
    #[error("it is not in qcow2 format")]
    Magic,
    #[error("it is qcow2 version {0}; versions 2 and 3 are supported")]
    Version(u32),
    #[error("its header is cut off")]
    Short,
}

/// The fields that agentiso reads or sets. Those after `snapshots` are zero in version 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub version: u32,
    pub backing_at: u64,
    pub backing_length: u32,
    pub cluster_bits: u32,
    pub virtual_size: u64,
    pub encryption: u32,
    pub l1_entries: u32,
    pub l1_at: u64,
    pub refcount_table_at: u64,
    pub refcount_table_clusters: u32,
    pub snapshots: u32,
    pub incompatible: u64,
    pub autoclear: u64,
    pub refcount_order: u32,
    pub header_length: u32,
}

impl Fields {
    /// Parses the beginning of a file.
    pub fn parse(start: &[u8]) -> Result<Self, FieldsError> {
        if start.get(..4) != Some(&MAGIC) {
            return Err(FieldsError::Magic);
        }
        let u32_at = |at| u32_at(start, at).ok_or(FieldsError::Short);
        let u64_at = |at| Ok((u64::from(u32_at(at)?) << 32) | u64::from(u32_at(at + 4)?));
        let version = u32_at(4)?;
        let length = match version {
            2 => OLD_HEADER_LENGTH,
            3 => HEADER_LENGTH,
            other => return Err(FieldsError::Version(other)),
        };
        if start.len() < length {
            return Err(FieldsError::Short);
        }
        let old = Self {
            version,
            backing_at: u64_at(8)?,
            backing_length: u32_at(16)?,
            cluster_bits: u32_at(20)?,
            virtual_size: u64_at(24)?,
            encryption: u32_at(32)?,
            l1_entries: u32_at(36)?,
            l1_at: u64_at(40)?,
            refcount_table_at: u64_at(48)?,
            refcount_table_clusters: u32_at(56)?,
            snapshots: u32_at(60)?,
            ..Self::default()
        };
        if length == OLD_HEADER_LENGTH {
            return Ok(old);
        }
        let (incompatible, autoclear) = (u64_at(72)?, u64_at(88)?);
        Ok(Self { incompatible, autoclear, refcount_order: u32_at(96)?, header_length: u32_at(100)?, ..old })
    }

    /// The header of a version 3 file. Everything that has no field here is zero.
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        let mut set = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        set(0, &MAGIC);
        set(4, &self.version.to_be_bytes());
        set(8, &self.backing_at.to_be_bytes());
        set(16, &self.backing_length.to_be_bytes());
        set(20, &self.cluster_bits.to_be_bytes());
        set(24, &self.virtual_size.to_be_bytes());
        set(32, &self.encryption.to_be_bytes());
        set(36, &self.l1_entries.to_be_bytes());
        set(40, &self.l1_at.to_be_bytes());
        set(48, &self.refcount_table_at.to_be_bytes());
        set(56, &self.refcount_table_clusters.to_be_bytes());
        set(60, &self.snapshots.to_be_bytes());
        set(72, &self.incompatible.to_be_bytes());
        set(88, &self.autoclear.to_be_bytes());
        set(96, &self.refcount_order.to_be_bytes());
        set(100, &self.header_length.to_be_bytes());
        bytes
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parsed_fields_are_written_at_their_places(mut bytes in proptest::collection::vec(any::<u8>(), 104)) {
            bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
            // The offset of internal snapshots and the compatible features are not used.
            bytes[64..72].fill(0);
            bytes[80..88].fill(0);
            prop_assert_eq!(&Fields::parse(&bytes).unwrap().to_bytes()[..], &bytes[..]);
        }
    }
}
