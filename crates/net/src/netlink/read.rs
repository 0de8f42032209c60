//! Reads netlink messages. They come from the kernel, and are checked against their bounds all the same.

use super::message::{ALIGNMENT, ATTRIBUTE, HEADER};

/// The bits of an attribute's kind that are not flags.
const KIND: u16 = 0x3fff;

/// A message of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) kind: u16,
    pub(super) sequence: u32,
    /// Everything behind the header.
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The messages in one datagram. A truncated message is left out.
    pub(crate) fn all(mut bytes: &[u8]) -> Vec<Self> {
        let mut messages = Vec::new();
        while let Some(head) = bytes.get(..HEADER) {
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let Some(body) = bytes.get(HEADER..length) else { break };
            messages.push(Self {
                kind: u16::from_ne_bytes([head[4], head[5]]),
                sequence: u32::from_ne_bytes([head[8], head[9], head[10], head[11]]),
                body: body.to_owned(),
            });
            bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        messages
    }

    /// The attributes behind a head of this length.
    pub(crate) fn attributes(&self, head: usize) -> Attributes<'_> {
        Attributes::new(self.body.get(head.next_multiple_of(ALIGNMENT)..).unwrap_or_default())
    }
}

/// A list of attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The value of the first attribute of this kind.
    pub(crate) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.all().find_map(|(other, value)| (other == kind).then_some(value))
    }

    /// Kinds and values in order. A truncated attribute is left out.
    pub(crate) fn all(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let head = rest.get(..ATTRIBUTE)?;
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let value = rest.get(ATTRIBUTE..length)?;
            let kind = u16::from_ne_bytes([head[2], head[3]]) & KIND;
            rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    /// The attributes inside the first one of this kind.
    pub(crate) fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self::new)
    }

    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        let value = self.get(kind)?;
        std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn netlink_reader_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), kind: u16) {
            for message in Received::all(&bytes) {
                let _ = message.attributes(4).get(kind & KIND);
            }
            let _ = Attributes::new(&bytes).get(kind & KIND);
            prop_assert!(Attributes::new(&bytes).all().count() <= bytes.len() / ATTRIBUTE);
        }
    }
}
