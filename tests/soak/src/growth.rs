//! The daemon's memory over time: a check that it does not grow without bound.

use std::collections::BTreeMap;

/// The smallest memory of one daemon may grow by this much between the first and the last third of its life. Caches and
/// the allocator's slack are well below it. A daemon lives for some seconds, and for two minutes where it is spared, so
/// only a leak of some 36 MiB a minute is found. Slower leaks need a daemon that is left alone for hours.
const MOST_GROWTH_KB: u64 = 48 << 10;

/// The most memory that a daemon may ever take.
const MOST_KB: u64 = 512 << 10;

/// A daemon with fewer samples is not judged.
const FEWEST_SAMPLES: usize = 60;

#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    lives: BTreeMap<i32, Vec<u64>>,
}

impl Growth {
    /// Samples the daemon's resident memory.
    pub(crate) fn sample(&mut self, daemon: Option<i32>) {
        if let Some(pid) = daemon
            && let Some(kb) = resident_kb(pid)
        {
            self.lives.entry(pid).or_default().push(kb);
        }
    }

    pub(crate) fn highest_kb(&self) -> u64 {
        self.lives.values().flatten().copied().max().unwrap_or(0)
    }

    /// A description of every daemon that grew beyond its bound.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.lives.iter().filter_map(|(pid, samples)| problem(*pid, samples)).collect()
    }
}

fn problem(pid: i32, samples: &[u64]) -> Option<String> {
    let highest = samples.iter().max()?;
    if *highest > MOST_KB {
        return Some(format!("daemon {pid} took {highest} KiB, more than {MOST_KB}"));
    }
    if samples.len() < FEWEST_SAMPLES {
        return None;
    }
    let third = samples.len() / 3;
    let first = samples[..third].iter().min()?;
    let last = samples[samples.len() - third..].iter().min()?;
    let grown = last.saturating_sub(*first);
    (grown > MOST_GROWTH_KB).then(|| {
        format!("daemon {pid} grew from {first} to {last} KiB while it was looked at {} times", samples.len())
    })
}

fn resident_kb(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_growth_is_noticed() {
        let leak: Vec<u64> = (0..100).map(|at| 50_000 + at * 1000).collect();
        assert!(problem(1, &leak).is_some());
        let swing: Vec<u64> = (0..100).map(|at| if at % 2 == 0 { 50_000 } else { 120_000 }).collect();
        assert_eq!(problem(1, &swing), None, "what is given back is no growth");
    }

    #[test]
    fn sudden_growth_is_noticed() {
        assert!(problem(1, &[50_000, MOST_KB + 1]).is_some());
        assert_eq!(problem(1, &[50_000, 60_000]), None);
    }

    #[test]
    fn own_memory_is_read() {
        assert!(resident_kb(std::process::id().cast_signed()).is_some_and(|kb| kb > 100));
    }
}
