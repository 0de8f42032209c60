//! Finds the parts of two disks that cannot differ, without reading their data.
//!
//! ```text
//! old:  a ─┐
//!          ├─▶ layer1 ─▶ base      bytes that neither a nor b defines come from the same place in the same file
//! new:  b ─┘
//! ```

use std::ops::Range;

use crate::qcow2::{Chain, Layer, LayerError, MAX_RANGES, Qcow2Error};
use crate::ranges::Ranges;
use crate::watch::Watch;

/// The number of bytes compared at a time: a cluster of the disks that agentiso makes.
const STEP: u64 = 64 << 10;

/// The bytes of two disks that come from files which only one of them has.
///
/// This is an upper bound by cluster: a cluster counts as a whole if one byte of it was written, even with its old
/// value.
#[derive(Clone, Debug)]
pub struct Difference {
    changed: Ranges,
    new_size: u64,
}

impl Difference {
    /// Compares the tables of two chains; no guest data is read.
    ///
    /// Chains share the layers that are the same files, by device and inode, counted from the bottom. A copy of a
    /// file is another file.
    pub fn between(old: &Chain, new: &Chain, watch: Watch<'_>) -> Result<Self, Qcow2Error> {
        let pairs = old.layers().iter().rev().zip(new.layers().iter().rev());
        let shared = pairs.take_while(|(old, new)| old.identity() == new.identity()).count();
        let (old_changed, old_sees) = own(old, shared, watch)?;
        let (new_changed, new_sees) = own(new, shared, watch)?;
        let mut resized = Ranges::default();
        // The bytes of the shared layers that only one of the disks sees, because a disk in between is smaller.
        resized.push(old_sees.min(new_sees)..old_sees.max(new_sees));
        let changed = old_changed.union(&new_changed).union(&resized);
        Ok(Self { changed, new_size: new.virtual_size() })
    }

    /// Reads the bytes that may differ, and removes equal ones from the difference. It stops after `max_bytes` of both
    /// disks together, or when `watch` says so.
    ///
    /// This is useful if the same content is in different files, as after a chain was shortened by copying.
    pub fn narrowed(
        self,
        old: &Chain,
        new: &Chain,
        max_bytes: u64,
        watch: Watch<'_>,
    ) -> Result<Self, Qcow2Error> {
        let (mut changed, mut left) = (Ranges::default(), max_bytes);
        let (mut old_bytes, mut new_bytes) = ([0; STEP as usize], [0; STEP as usize]);
        let both = old.virtual_size().min(new.virtual_size());
        for range in self.changed.as_slice() {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min((at / STEP + 1) * STEP);
                let length = (end - at) as usize;
                left = match left.checked_sub(2 * length as u64) {
                    Some(rest) if end <= both && watch.over().is_none() => rest,
                    // The rest is taken at once: a table of a few bytes can stand for any number of steps.
                    Some(_) | None => {
                        left = 0;
                        changed.push(at..range.end);
                        break;
                    }
                };
                old.read_at(at, &mut old_bytes[..length])?;
                new.read_at(at, &mut new_bytes[..length])?;
                if old_bytes[..length] != new_bytes[..length] {
                    changed.push(at..end);
                }
                at = end;
            }
        }
        Ok(Self { changed, ..self })
    }

    /// The bytes that may differ.
    pub fn ranges(&self) -> &Ranges {
        &self.changed
    }

    /// The number of bytes of the new disk that may differ from the old one.
    pub fn bytes(&self) -> u64 {
        self.changed.below(self.new_size).bytes()
    }

    /// Whether the bytes are the same on both disks, because both take them from the same file.
    pub fn is_shared(&self, range: Range<u64>) -> bool {
        !self.changed.intersects(&range)
    }
}

/// The number of guest bytes that may differ between two disks: those whose cluster is defined by a file that only one
/// disk has. This is an upper bound by cluster.
pub fn changed_bytes(old: &Chain, new: &Chain) -> Result<u64, Qcow2Error> {
    Ok(Difference::between(old, new, Watch::default())?.bytes())
}

/// The bytes that the layers above the shared ones define, and the size up to which the shared ones are visible.
fn own(chain: &Chain, shared: usize, watch: Watch<'_>) -> Result<(Ranges, u64), Qcow2Error> {
    let (own, shared) = chain.layers().split_at(chain.layers().len() - shared);
    let mut defined = Ranges::default();
    let mut sees = u64::MAX;
    for layer in own {
        sees = sees.min(layer.virtual_size());
        defined = defined.union(&layer.allocated(watch)?.ranges.below(sees));
        // The limit for one layer also applies to all layers together.
        if defined.as_slice().len() > MAX_RANGES {
            return Err(Qcow2Error::layer(layer.path())(LayerError::Scattered(MAX_RANGES)));
        }
    }
    Ok((defined, sees.min(shared.first().map_or(0, Layer::virtual_size))))
}
