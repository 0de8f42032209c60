//! One qcow2 file: the guest clusters that it defines, and their positions.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::{LayerError, Qcow2Error};
use super::header::{HEADER_BYTES, Header};
use crate::ranges::Ranges;
use crate::watch::Watch;

/// The bits of an L1 or L2 entry that contain a file offset.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const L2_COMPRESSED: u64 = 1 << 62;
const L2_ZERO: u64 = 1;

/// The most ranges that `allocated` returns: 64 MiB of memory, more than a disk of 256 GiB can need.
pub(crate) const MAX_RANGES: usize = 1 << 22;

/// The number of entries between two checks of the watch; they take a few milliseconds.
const LOOK_AFTER: u64 = 1 << 16;

/// A file of a chain, opened for reading.
#[derive(Debug)]
pub struct Layer {
    path: PathBuf,
    file: File,
    file_length: u64,
    identity: (u64, u64),
    header: Header,
    /// The offsets of the L2 tables; zero if there is none.
    l1: Box<[u64]>,
}

/// The content of some guest bytes in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Not defined here: the layer below decides.
    Below,
    Zero,
    /// The bytes are in the file at this offset.
    Data(u64),
}

/// The guest bytes that a layer itself defines, by cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The bytes that the layer defines, as data or zeroes.
    pub ranges: Ranges,
    /// The number of bytes that are data.
    pub data_bytes: u64,
}

impl Layer {
    pub fn open(path: &Path) -> Result<Self, Qcow2Error> {
        Self::read(path).map_err(Qcow2Error::layer(path))
    }

    fn read(path: &Path) -> Result<Self, LayerError> {
        // Checked before opening, because opening a pipe would block.
        if !fs::metadata(path)?.is_file() {
            return Err(LayerError::NotAFile);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut start = Vec::new();
        (&file).take(HEADER_BYTES).read_to_end(&mut start)?;
        let header = Header::parse(&start)?;
        let layer = Self {
            path: path.to_owned(),
            file_length: metadata.len(),
            identity: (metadata.dev(), metadata.ino()),
            l1: Box::default(),
            header,
            file,
        };
        let l1 = layer.read_l1()?;
        Ok(Self { l1, ..layer })
    }

    fn read_l1(&self) -> Result<Box<[u64]>, LayerError> {
        let entries = self.entries(self.header.l1_offset, self.header.l1_entries, "L1")?;
        let tables: Box<[u64]> = entries.iter().map(|entry| entry & OFFSET_MASK).collect();
        for &table in tables.iter().filter(|&&table| table != 0) {
            let fits = table.checked_add(self.cluster()).is_some_and(|end| end <= self.file_length);
            if !table.is_multiple_of(self.cluster()) || !fits {
                return Err(LayerError::Entry { table: "L1", value: table });
            }
        }
        // A table used twice would let a small file define an unbounded number of ranges.
        let mut sorted: Vec<u64> = tables.iter().copied().filter(|&table| table != 0).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(LayerError::SharedTable(pair[0])),
            None => Ok(tables),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the disk as its guest sees it.
    pub fn virtual_size(&self) -> u64 {
        self.header.virtual_size
    }

    /// The backing file's name from the header.
    pub fn backing_file(&self) -> Option<&Path> {
        self.header.backing_file.as_deref()
    }

    /// Device and inode, which identify the file under any name.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(super) fn table_bytes(&self) -> u64 {
        self.l1.len() as u64 * 8
    }

    /// The guest bytes that this file defines, without those of the files below.
    pub fn allocated(&self, watch: Watch<'_>) -> Result<Allocated, Qcow2Error> {
        let (mut ranges, mut data_bytes, mut visited) = (Ranges::default(), 0, 0_u64);
        let walked = self.contents(0..self.virtual_size(), &mut |range, content| {
            if visited.is_multiple_of(LOOK_AFTER) {
                watch.check()?;
            }
            visited += 1;
            match content {
                Content::Below => return Ok(()),
                Content::Zero => {}
                Content::Data(_) => data_bytes += range.end - range.start,
            }
            ranges.push(range);
            match ranges.as_slice().len() {
                ..MAX_RANGES => Ok(()),
                MAX_RANGES.. => Err(LayerError::Scattered(MAX_RANGES)),
            }
        });
        walked.map_err(Qcow2Error::layer(&self.path))?;
        Ok(Allocated { ranges, data_bytes })
    }

    /// Reports the content of every byte of a range of the disk, in order.
    pub(super) fn contents(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Content) -> Result<(), LayerError>,
    ) -> Result<(), LayerError> {
        let cluster = self.cluster();
        let per_table = cluster / 8;
        let mut at = range.start;
        while at < range.end {
            let index = at / (cluster * per_table);
            let end = range.end.min((index + 1) * cluster * per_table);
            let table = usize::try_from(index).ok().and_then(|index| self.l1.get(index));
            let table = *table.ok_or(LayerError::Entry { table: "L1", value: index })?;
            if table == 0 {
                visit(at..end, Content::Below)?;
                at = end;
                continue;
            }
            let first = at / cluster % per_table;
            let count = end.div_ceil(cluster) - at / cluster;
            for entry in self.entries(table + first * 8, count as usize, "L2")? {
                let next = end.min((at / cluster + 1) * cluster);
                let content = match self.content(entry)? {
                    Content::Data(start) => Content::Data(start + at % cluster),
                    other @ (Content::Below | Content::Zero) => other,
                };
                visit(at..next, content)?;
                at = next;
            }
        }
        Ok(())
    }

    fn content(&self, entry: u64) -> Result<Content, LayerError> {
        if entry & L2_COMPRESSED != 0 {
            return Err(LayerError::Unsupported("compression"));
        }
        let place = entry & OFFSET_MASK;
        // A file may end within its last cluster, but not before it.
        if !place.is_multiple_of(self.cluster()) || place >= self.file_length {
            return Err(LayerError::Entry { table: "L2", value: entry });
        }
        match (entry & L2_ZERO, place) {
            (0, 0) => Ok(Content::Below),
            (0, place) => Ok(Content::Data(place)),
            (_, _) => Ok(Content::Zero),
        }
    }

    /// Reads data clusters. Bytes beyond the end of the file are zero, as in QEMU.
    pub(super) fn read_data(&self, place: u64, buf: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(self.file_length.saturating_sub(place)).unwrap_or(usize::MAX);
        let (there, behind) = buf.split_at_mut(there.min(buf.len()));
        self.file.read_exact_at(there, place)?;
        behind.fill(0);
        Ok(())
    }

    fn entries(&self, place: u64, count: usize, table: &'static str) -> Result<Vec<u64>, LayerError> {
        let length = count * 8;
        if place.checked_add(length as u64).is_none_or(|end| end > self.file_length) {
            return Err(LayerError::Entry { table, value: place });
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, place)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_be_bytes(*entry)).collect())
    }

    fn cluster(&self) -> u64 {
        1 << self.header.cluster_bits
    }
}
