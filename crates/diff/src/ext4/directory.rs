//! Directories: lists of names, block by block.
//!
//! Indexed directories need no special care: their index hides in entries that are not in use.

use super::error::Ext4Error;
use super::le::{u16_at, u32_at};

const HEADER: usize = 8;

/// The names of a directory, sorted.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    /// All names, one after the other: millions of them must not be millions of allocations.
    names: Vec<u8>,
    places: Vec<Place>,
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
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
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.places.iter().map(|place| Entry { name: name(&self.names, place), inode: place.inode })
    }

    /// How many blocks were read for them.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds what a block of a directory lists, without the directory itself and its parent.
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
                // Blocks of 64 KiB: their length does not fit the field.
                0 | 0xFFFF if block.len() == 1 << 16 => block.len(),
                length => length,
            };
            let (inode, entry) = (u32_at(rest, 0), rest.get(HEADER..length));
            let Some(entry) = entry.filter(|_| length.is_multiple_of(4)) else {
                return Err(wrong("an entry does not fit"));
            };
            // The byte behind it is the type, or nothing in file systems without types.
            let name_length = rest[6];
            let name = entry.get(..name_length.into()).ok_or_else(|| wrong("a name does not fit"))?;
            rest = &rest[length..];
            if inode == 0 || name == b"." || name == b".." {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                return Err(wrong("a name is none"));
            }
            self.places.push(Place { inode, start: self.names.len() as u32, length: name_length });
            self.names.extend_from_slice(name);
        }
        Ok(())
    }

    pub(super) fn sort(&mut self) {
        let names = &self.names;
        self.places.sort_unstable_by(|a, b| name(names, a).cmp(name(names, b)));
    }
}

fn name<'a>(names: &'a [u8], place: &Place) -> &'a [u8] {
    &names[place.start as usize..][..place.length.into()]
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
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(0u8..20, 0..200)) {
            let mut entries = Entries::default();
            let _ = entries.add_block(&bytes, |what| Ext4Error::Journal { what });
            entries.sort();
            prop_assert!(entries.iter().all(|entry| !entry.name.is_empty()));
        }
    }
}
