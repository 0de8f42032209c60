//! A small seeded random number generator (SplitMix64). The plan of a soak follows from one seed, so the numbers must
//! not change with the version of a library. Therefore it is written here.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A separate stream for each part of a soak, so that one part's draws do not shift another's.
    pub(crate) fn stream(seed: u64, part: &str) -> Self {
        // FNV-1a gives very different states for short names.
        let hash = part.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed ^ hash)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// One of several choices with equal probability. There must be at least one.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }

    /// One of several choices, with probability by weight.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, choice) in choices {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up to the total")
    }
}

/// Selects an element of a list by a number that was drawn earlier.
pub(crate) fn pick<T>(list: &[T], choice: u64) -> Option<&T> {
    let length = u64::try_from(list.len()).ok().filter(|length| *length > 0)?;
    list.get(usize::try_from(choice % length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let draw = |seed, part| {
            let mut rng = Rng::stream(seed, part);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draw(7, "storm"), draw(7, "storm"));
        assert_ne!(draw(7, "storm"), draw(8, "storm"));
        assert_ne!(draw(7, "storm"), draw(7, "client 0"));
    }

    #[test]
    fn weights_decide_frequency() {
        let mut rng = Rng::stream(1, "weights");
        let often = (0..1000).filter(|_| rng.weighted(&[(9, true), (1, false)])).count();
        assert!((850..950).contains(&often), "{often}");
    }

    #[test]
    fn picking_from_nothing_gives_nothing() {
        assert_eq!(pick::<u8>(&[], 3), None);
        assert_eq!(pick(&[1, 2, 3], 4), Some(&2));
    }
}
