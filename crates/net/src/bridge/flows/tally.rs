//! One direction of a flow: the kernel's counts of each of its keys.

use super::flow::read;
use crate::bridge::nft::{Count, KEY};

/// A short list: a connection has a beginning, an end, and two or three header sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Vec<Count>);

/// The sums over all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) packets: u64,
    /// Bytes without headers.
    pub(super) bytes: u64,
    /// Packets that open, end and reset the connection.
    pub(super) opening: u64,
    pub(super) ending: u64,
    pub(super) resetting: u64,
}

impl Tally {
    /// Takes the kernel's current count; returns whether it has changed. A key that the kernel leaves out keeps its
    /// count, because lists of a set that grows meanwhile have gaps.
    pub(super) fn see(&mut self, count: Count) -> bool {
        match self.0.iter_mut().find(|known| known.key == count.key) {
            Some(known) if *known == count => false,
            Some(known) => {
                *known = count;
                true
            }
            None => {
                self.0.push(count);
                true
            }
        }
    }

    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for count in &self.0 {
            let Some((_, info)) = read(&count.key) else { continue };
            let if_so = |sign: bool| if sign { count.packets } else { 0 };
            sums.packets += count.packets;
            sums.bytes += count.bytes.saturating_sub(count.packets.saturating_mul(info.heads));
            sums.opening += if_so(info.opens);
            sums.ending += if_so(info.ends);
            sums.resetting += if_so(info.resets);
        }
        sums
    }

    pub(super) fn keys(self) -> impl Iterator<Item = [u8; KEY]> {
        self.0.into_iter().map(|count| count.key)
    }
}

impl Sums {
    /// The difference to an earlier sum.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            opening: self.opening.saturating_sub(before.opening),
            ending: self.ending.saturating_sub(before.ending),
            resetting: self.resetting.saturating_sub(before.resetting),
        }
    }
}
