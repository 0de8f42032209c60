//! A disk as its guest sees it: a chain of qcow2 files, each with its backing file.

use std::io;
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{LayerError, Qcow2Error};
use super::layer::{Content, Layer};
use crate::cache::Cache;
use crate::read_at::ReadAt;

/// The longest chain. Every file needs a descriptor.
pub const MAX_DEPTH: usize = 1024;

/// The most memory for the L1 tables of a chain: those of 512 disks of 8 TiB each.
const MAX_L1_BYTES: u64 = 64 << 20;

/// The number of guest bytes that are looked up in the tables at a time, and cached.
const SPAN: u64 = 4 << 20;

/// The number of cached segments: 40 MiB, which map 64 GiB in the worst case of one per cluster of 64 KiB.
const CACHED_SEGMENTS: usize = 1 << 20;

#[derive(Debug)]
pub struct Chain {
    /// The layers from the top down; never empty.
    layers: Vec<Layer>,
    virtual_size: u64,
    segments: Mutex<Cache<u64, Arc<[Segment]>>>,
}

/// Consecutive guest bytes that come from one place.
#[derive(Clone, Debug)]
struct Segment {
    guest: Range<u64>,
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Zero,
    File { layer: usize, place: u64 },
}

/// Whether a name is a bare file name without directories.
fn is_bare(name: &Path) -> bool {
    let mut components = name.components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

impl Chain {
    /// Opens a disk and its backing files, which must be in the same directory. A name that leads elsewhere is refused,
    /// because a program that can write the disk can put any name into it.
    pub fn open(top: &Path) -> Result<Self, Qcow2Error> {
        let mut layers: Vec<Layer> = Vec::new();
        let mut next = Some(top.to_owned());
        let mut table_bytes = 0;
        while let Some(path) = next {
            if layers.len() == MAX_DEPTH {
                return Err(Qcow2Error::Depth { path });
            }
            let layer = Layer::open(&path)?;
            if layers.iter().any(|above| above.identity() == layer.identity()) {
                return Err(Qcow2Error::Cycle { path });
            }
            table_bytes += layer.table_bytes();
            if table_bytes > MAX_L1_BYTES {
                return Err(Qcow2Error::Tables { path, limit: MAX_L1_BYTES });
            }
            let beside = path.parent().unwrap_or(Path::new(""));
            next = match layer.backing_file() {
                None => None,
                Some(name) if is_bare(name) => Some(beside.join(name)),
                Some(_) => return Err(Qcow2Error::layer(&path)(LayerError::BackingName)),
            };
            layers.push(layer);
        }
        let virtual_size = layers.first().map_or(0, Layer::virtual_size);
        Ok(Self { layers, virtual_size, segments: Mutex::new(Cache::new(CACHED_SEGMENTS)) })
    }

    /// The files, from the top down.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// The size of the disk as its guest sees it.
    pub fn virtual_size(&self) -> u64 {
        self.virtual_size
    }

    /// Fills the buffer with the bytes that the guest would read there.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Qcow2Error> {
        let (size, length) = (self.virtual_size, buf.len() as u64);
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(Qcow2Error::Beyond { offset, length, size });
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let segments = self.segments(at / SPAN)?;
            let first = segments.partition_point(|segment| segment.guest.end <= at);
            for segment in &segments[first..] {
                let inside = at - segment.guest.start;
                let count = rest.len().min((segment.guest.end - at) as usize);
                let part = rest.split_off_mut(..count).unwrap_or_default();
                match segment.source {
                    Source::Zero => part.fill(0),
                    Source::File { layer, place } => self.read_layer(layer, place + inside, part)?,
                }
                at += count as u64;
                if rest.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn read_layer(&self, layer: usize, place: u64, buf: &mut [u8]) -> Result<(), Qcow2Error> {
        let layer = &self.layers[layer];
        layer.read_data(place, buf).map_err(|error| Qcow2Error::layer(layer.path())(LayerError::Read(error)))
    }

    /// The sources of the bytes of a span: segments in order, without gaps.
    fn segments(&self, span: u64) -> Result<Arc<[Segment]>, Qcow2Error> {
        let lock = || self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(span, |segments| segments.len()) {
            return Ok(known);
        }
        let segments: Arc<[Segment]> = self.resolve(span)?.into();
        lock().insert(span, segments.clone(), segments.len());
        Ok(segments)
    }

    fn resolve(&self, span: u64) -> Result<Vec<Segment>, Qcow2Error> {
        let mut found: Vec<Segment> = Vec::new();
        let start = span * SPAN;
        let mut open = Vec::new();
        push_open(&mut open, start..(start + SPAN).min(self.virtual_size));
        for (index, layer) in self.layers.iter().enumerate() {
            let mut below = Vec::new();
            for range in open {
                // Beyond the end of its backing file a disk reads as zeroes, whatever deeper layers contain.
                let end = range.end.min(layer.virtual_size()).max(range.start);
                push(&mut found, end..range.end, Source::Zero);
                let walked = layer.contents(range.start..end, &mut |guest, content| {
                    match content {
                        Content::Below => push_open(&mut below, guest),
                        Content::Zero => push(&mut found, guest, Source::Zero),
                        Content::Data(place) => push(&mut found, guest, Source::File { layer: index, place }),
                    }
                    Ok(())
                });
                walked.map_err(Qcow2Error::layer(layer.path()))?;
            }
            open = below;
            if open.is_empty() {
                break;
            }
        }
        open.into_iter().for_each(|range| push(&mut found, range, Source::Zero));
        found.sort_unstable_by_key(|segment| segment.guest.start);
        Ok(found)
    }
}

impl ReadAt for Chain {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Chain::read_at(self, offset, buf).map_err(io::Error::other)
    }
}

fn push_open(open: &mut Vec<Range<u64>>, range: Range<u64>) {
    match open.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        Some(_) | None => open.push(range),
    }
}

/// Adds a segment, or extends the one before it.
fn push(segments: &mut Vec<Segment>, guest: Range<u64>, source: Source) {
    if guest.is_empty() {
        return;
    }
    if let Some(last) = segments.last_mut()
        && last.guest.end == guest.start
    {
        let length = last.guest.end - last.guest.start;
        let follows = match (last.source, source) {
            (Source::Zero, Source::Zero) => true,
            (Source::File { layer: above, place: from }, Source::File { layer, place }) => {
                above == layer && from + length == place
            }
            (Source::Zero, Source::File { .. }) | (Source::File { .. }, Source::Zero) => false,
        };
        if follows {
            last.guest.end = guest.end;
            return;
        }
    }
    segments.push(Segment { guest, source });
}
