//! Sets of bytes as sorted ranges that neither touch nor overlap.

use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    /// The number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether any byte of the range is in the set.
    pub(crate) fn intersects(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|known| known.end <= range.start);
        self.0.get(first).is_some_and(|known| known.start < range.end) && range.start < range.end
    }

    /// Adds a range that does not begin before the last one.
    pub(crate) fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            Some(_) | None => self.0.push(range),
        }
    }

    /// The bytes below `end`.
    pub(crate) fn below(&self, end: u64) -> Self {
        let mut below = Self::default();
        for range in self.0.iter().take_while(|range| range.start < end) {
            below.push(range.start..range.end.min(end));
        }
        below
    }

    /// The union of both sets.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut union = Self::default();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) if l.start <= r.start => left.next(),
                (Some(_), None) => left.next(),
                (_, Some(_)) => right.next(),
                (None, None) => return union,
            };
            union.push(next.cloned().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(mut parts: Vec<(u64, u64)>) -> Ranges {
        parts.sort_unstable();
        let mut ranges = Ranges::default();
        parts.into_iter().for_each(|(start, length)| ranges.push(start..start + length));
        ranges
    }

    fn members(ranges: &Ranges) -> BTreeSet<u64> {
        ranges.as_slice().iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_model(
            left in proptest::collection::vec((0u64..200, 0u64..20), 0..20),
            right in proptest::collection::vec((0u64..200, 0u64..20), 0..20),
            end in 0u64..250,
            probe in 0u64..250,
            length in 0u64..20,
        ) {
            let (left, right) = (set(left), set(right));
            let (a, b) = (members(&left), members(&right));
            let union = left.union(&right);
            prop_assert_eq!(members(&union), a.union(&b).copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(union.bytes(), a.union(&b).count() as u64);
            prop_assert!(union.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(members(&left.below(end)), a.range(..end).copied().collect::<BTreeSet<_>>());
            let probed = probe..probe + length;
            prop_assert_eq!(left.intersects(&probed), a.range(probed.clone()).next().is_some());
        }
    }
}
