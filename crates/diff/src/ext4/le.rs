//! Little-endian numbers of the file system.
//!
//! Reads beyond the bytes give zero: fields that an older, shorter structure lacks are zero by definition, and fields
//! that every structure has are within its checked length.

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A number whose halves are stored separately.
pub(super) fn joined(high: impl Into<u64>, low: u32) -> u64 {
    high.into() << 32 | u64::from(low)
}
