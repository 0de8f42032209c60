//! Follows a chunked body and its trailer fields.
//!
//! Chunk extensions are an error: programs do not use them, and servers have disagreed about them.

use super::MAX_BYTES;
use super::requests::Broken;

/// Most hexadecimal digits of a chunk's size: less than half an exbibyte.
const MAX_DIGITS: u8 = 15;

const MALFORMED: Broken = Broken("a malformed chunk");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    Size {
        digits: u8,
        value: u64,
    },
    SizeEnd {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataEnd,
    /// Trailer fields after the last chunk: at the start of a line, within it, and at its end.
    Line {
        total: usize,
    },
    Field {
        total: usize,
    },
    FieldEnd {
        total: usize,
    },
    LastEnd,
    Ended,
}

impl Default for Chunks {
    fn default() -> Self {
        Self::Size { digits: 0, value: 0 }
    }
}

impl Chunks {
    pub(super) fn have_ended(&self) -> bool {
        *self == Self::Ended
    }

    /// The number of these bytes that belong to the body.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut at = 0;
        while at < bytes.len() && !self.have_ended() {
            if let Self::Data { left } = self {
                let taken = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                at += taken;
                if *left == 0 {
                    *self = Self::DataReturn;
                }
            } else {
                *self = self.next(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn next(&self, byte: u8) -> Result<Self, Broken> {
        Ok(match (self, byte) {
            (Self::Size { digits: 1.., value }, b'\r') => Self::SizeEnd { value: *value },
            (Self::Size { digits, value }, _) if *digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).ok_or(MALFORMED)?;
                Self::Size { digits: digits + 1, value: value << 4 | u64::from(digit) }
            }
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Line { total: 0 },
            (Self::SizeEnd { value }, b'\n') => Self::Data { left: *value },
            (Self::DataReturn, b'\r') => Self::DataEnd,
            (Self::DataEnd, b'\n') => Self::default(),
            (Self::Line { .. }, b'\r') => Self::LastEnd,
            (Self::LastEnd, b'\n') => Self::Ended,
            (Self::Field { total }, b'\r') => Self::FieldEnd { total: *total },
            (Self::FieldEnd { total }, b'\n') => Self::Line { total: *total },
            (Self::Line { total } | Self::Field { total }, _) if byte != b'\n' && *total < MAX_BYTES => {
                Self::Field { total: total + 1 }
            }
            _ => return Err(MALFORMED),
        })
    }
}
