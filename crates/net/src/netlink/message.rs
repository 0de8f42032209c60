//! Writes netlink messages: a header, a header for the kind of message, and attributes, which may be nested.

/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;

/// Marks an attribute that holds others.
const NESTED: u16 = 1 << 15;

/// Size of the message header: length, kind, flags, sequence and port.
pub(super) const HEADER: usize = 16;

/// Size of an attribute's header: length and kind.
pub(super) const ATTRIBUTE: usize = 4;

/// Lengths are rounded up to a multiple of this.
pub(super) const ALIGNMENT: usize = 4;

/// A request to the kernel that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// `head` is the header for this kind of message.
    pub(crate) fn new(kind: u16, flags: u16, head: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | REQUEST).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(head);
        let mut message = Self(bytes);
        message.pad();
        message
    }

    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        // Values are names, addresses and structures of the kernel; callers split long lists.
        let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.pad();
        self
    }

    /// Text with a trailing zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// A number in the host's byte order, as links expect it.
    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(crate) fn byte(&mut self, kind: u16, value: u8) -> &mut Self {
        self.bytes(kind, &[value])
    }

    /// A number in network byte order, as packet rules expect it.
    pub(crate) fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let begin = self.0.len();
        self.bytes(kind | NESTED, &[]);
        inside(self);
        let length = u16::try_from(self.0.len() - begin).unwrap_or(u16::MAX);
        self.0[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// The bytes to send.
    pub(crate) fn finish(mut self, sequence: u32, flags: u16) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let flags = flags | u16::from_ne_bytes([self.0[6], self.0[7]]);
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Attributes;
    use super::*;

    #[test]
    fn netlink_attributes_are_read_back_as_written() {
        let mut message = Message::new(7, 0, &[1, 2]);
        message.text(1, "ab").nest(2, |inner| {
            inner.be32(3, 5).byte(4, 9);
        });
        let bytes = message.finish(11, 4);
        assert_eq!(bytes.len(), u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize);
        assert_eq!(bytes[6..8], 5_u16.to_ne_bytes());
        let attributes = Attributes::new(&bytes[HEADER + 4..]);
        assert_eq!(attributes.get(1), Some(&b"ab\0"[..]));
        let inner = Attributes::new(attributes.get(2).unwrap());
        assert_eq!(
            (inner.get(3), inner.get(4), inner.get(5)),
            (Some(&[0, 0, 0, 5][..]), Some(&[9][..]), None)
        );
    }
}
