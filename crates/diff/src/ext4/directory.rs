//! Directories: lists of names, block by block.
//!
//! Indexed directories need no special treatment: their index is hidden in unused entries.

use super::error::Ext4Error;
use super::le::{u16_at, u32_at};

const HEADER: usize = 8;

/// The names of a directory, sorted.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// All names in one buffer, to avoid millions of allocations.
    names: Vec<u8>,
    spans: Vec<NameSpan>,
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct NameSpan {
    inode: u32,
    start: u32,
    length: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub name: &'a [u8],
    pub inode: u32,
}

impl Entries {
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.spans.iter().map(|span| Entry { name: name(&self.names, span), inode: span.inode })
    }

    /// The number of blocks that were read.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds the entries of one block of a directory, except `.` and `..`.
    ///
    /// The caller bounds a directory's size, and with it the length of all names, well below 4 GiB.
    pub(super) fn add_block(
        &mut self,
        block: &[u8],
        wrong: impl Fn(&'static str) -> Ext4Error,
    ) -> Result<(), Ext4Error> {
        self.blocks += 1;
        let mut rest = block;
        while !rest.is_empty() {
            let length = match usize::from(u16_at(rest, 4)) {
                // In blocks of 64 KiB the length does not fit the field.
                0 | 0xFFFF if block.len() == 1 << 16 => block.len(),
                length => length,
            };
            let (inode, entry) = (u32_at(rest, 0), rest.get(HEADER..length));
            let Some(entry) = entry.filter(|_| length.is_multiple_of(4)) else {
                return Err(wrong("an entry does not fit"));
            };
            // The next byte is the type, or unused in file systems without types.
            let name_length = rest[6];
            let name = entry.get(..name_length.into()).ok_or_else(|| wrong("a name does not fit"))?;
            rest = &rest[length..];
            if inode == 0 || name == b"." || name == b".." {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                return Err(wrong("a name is none"));
            }
            self.spans.push(NameSpan { inode, start: self.names.len() as u32, length: name_length });
            self.names.extend_from_slice(name);
        }
        Ok(())
    }

    pub(super) fn sort(&mut self) {
        let names = &self.names;
        self.spans.sort_unstable_by(|a, b| name(names, a).cmp(name(names, b)));
    }
}

fn name<'a>(names: &'a [u8], span: &NameSpan) -> &'a [u8] {
    &names[span.start as usize..][..span.length.into()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(inode: u32, length: u16, name: &str) -> Vec<u8> {
        let mut bytes = inode.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend([name.len() as u8, 1]);
        bytes.extend(name.as_bytes());
        bytes.resize(length.into(), 0);
        bytes
    }

    fn read(block: &[u8]) -> Result<Entries, Ext4Error> {
        let mut entries = Entries::default();
        entries.add_block(block, |what| Ext4Error::Directory { number: 2, block: 0, what })?;
        entries.sort();
        Ok(entries)
    }

    #[test]
    fn entries_in_use_are_listed_by_name() {
        let block = [
            entry(2, 12, "."),
            entry(2, 12, ".."),
            entry(13, 16, "b"),
            entry(0, 12, "gone"),
            entry(12, 972, "a"),
        ]
        .concat();
        let entries = read(&block).unwrap();
        let all: Vec<_> = entries.iter().map(|entry| (entry.name, entry.inode)).collect();
        assert_eq!(all, [(b"a".as_slice(), 12), (b"b", 13)]);
    }

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["a/b", "", "a\0"] {
            assert!(read(&entry(12, 24, name)).is_err(), "{name:?}");
        }
        assert!(read(&entry(12, 13, "a")).is_err());
        assert!(read(&entry(12, 12, "too long")).is_err());
    }

    proptest! {
        #[test]
        fn directory_reader_never_panics(bytes in proptest::collection::vec(0u8..20, 0..200)) {
            let mut entries = Entries::default();
            let _ = entries.add_block(&bytes, |what| Ext4Error::Journal { what });
            entries.sort();
            prop_assert!(entries.iter().all(|entry| !entry.name.is_empty()));
        }
    }
}
