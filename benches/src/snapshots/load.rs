//! Load for memory snapshots: a process in the guest that writes memory and watches the guest's clocks; see `load.c`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentiso_testkit::TestWorkspace;
use anyhow::{Context, Result};

use crate::process_memory::wait;
use crate::program;

const SOURCE: &str = include_str!("load.c");

/// The time limit for compiling a hundred lines of C.
const COMPILE_LIMIT: Duration = Duration::from_secs(120);

/// The time until the whole buffer has been written once, with a margin.
const WARM_UP: Duration = Duration::from_secs(5);

/// The rate at which the process writes, and the share of it that must be reached. Below that, the measurement is not
/// valid.
const BYTES_PER_SECOND: f64 = 20e6;
const ENOUGH: f64 = 0.8;

const TICK: Duration = Duration::from_millis(1);

/// The real-time clock shows only the seconds of a minute, so it wraps after this many.
const MINUTE: u64 = 60;

/// The running load in a VM.
pub(super) struct Load<'a> {
    workspace: &'a TestWorkspace<'a>,
}

/// The load's answer: its observations since the previous question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The largest gap between two ticks, by the guest's own clock.
    pub(super) largest_gap: Duration,
    written: u64,
    asked_us: u64,
    /// A second of the real-time clock, and its start by the guest's own clock.
    second: u64,
    began_us: u64,
}

impl<'a> Load<'a> {
    pub(super) fn start(workspace: &'a TestWorkspace<'a>, dir: &Path) -> Result<Self> {
        // Statically linked, so that it runs on every image. In hexadecimal, because the file tool writes text.
        workspace.write("/root/load.hex", &hex(&compiled(dir)?));
        workspace.sh("basenc --decode --base16 /root/load.hex > /root/load && chmod +x /root/load");
        workspace.sh("/root/load run /run/load");
        wait(WARM_UP);
        Ok(Self { workspace })
    }

    pub(super) fn ask(&self) -> Result<Seen> {
        let answer = self.workspace.exec("/root/load ask /run/load");
        anyhow::ensure!(answer.exit_code == 0, "the load does not answer: {answer:?}");
        Seen::parse(&answer.stdout).with_context(|| format!("not an answer of the load: {answer:?}"))
    }
}

impl Seen {
    fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [gap, written, asked_us, second, began_us] = numbers[..] else { return None };
        Some(Self { largest_gap: Duration::from_micros(gap), written, asked_us, second, began_us })
    }

    /// The pause since `before`, as a ticker on a clock that never stops would see it: the largest gap by the guest's
    /// clock, or, if that is longer, one tick plus the time in which that clock was stopped.
    pub(super) fn pause_since(&self, before: &Self) -> Duration {
        self.largest_gap.max(TICK + self.lost_since(before))
    }

    /// The time by which the guest's clock fell behind the real-time clock.
    pub(super) fn lost_since(&self, before: &Self) -> Duration {
        let own = self.began_us.saturating_sub(before.began_us);
        let mut real = (MINUTE + self.second - before.second) % MINUTE * 1_000_000;
        // The clocks differ by the lost time; whole minutes are not visible.
        while real + 500_000 < own {
            real += MINUTE * 1_000_000;
        }
        Duration::from_micros(real.saturating_sub(own))
    }

    /// Fails if the process could not write at the required rate.
    pub(super) fn ensure_busy_since(&self, before: &Self) -> Result<()> {
        let seconds = self.asked_us.saturating_sub(before.asked_us) as f64 / 1e6;
        let rate = self.written.saturating_sub(before.written) as f64 / seconds.max(1e-6);
        anyhow::ensure!(rate >= ENOUGH * BYTES_PER_SECOND, "only {:.1} MB/s were written", rate / 1e6);
        Ok(())
    }
}

/// Compiles the load with the C compiler that also links Rust programs.
fn compiled(dir: &Path) -> Result<Vec<u8>> {
    let (source, binary) = (dir.join("load.c"), dir.join("load"));
    std::fs::write(&source, SOURCE).context("writing the load's source")?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-s", "-o"]).arg(&binary).arg(&source);
    program::run(&mut command, COMPILE_LIMIT)?;
    std::fs::read(&binary).context("reading the load")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64, began_us: u64) -> Seen {
        Seen { largest_gap: Duration::from_millis(2), written: 0, asked_us: began_us, second, began_us }
    }

    #[test]
    fn stopped_clock_counts_as_lost_time() {
        let lost = at(34, 16_600_379).lost_since(&at(30, 12_613_000));
        assert_eq!(lost, Duration::from_micros(12_621));
    }

    #[test]
    fn pause_is_the_larger_of_both_clocks() {
        let before = at(30, 12_000_000);
        assert_eq!(at(31, 12_990_000).pause_since(&before), Duration::from_millis(11));
        assert_eq!(at(31, 13_000_000).pause_since(&before), Duration::from_millis(2));
    }

    #[test]
    fn minutes_are_crossed_and_small_differences_forgiven() {
        assert_eq!(at(2, 5_990_000).lost_since(&at(56, 0)), Duration::from_millis(10));
        assert_eq!(at(2, 65_990_000).lost_since(&at(56, 0)), Duration::from_millis(10));
        assert_eq!(at(2, 6_000_001).lost_since(&at(56, 0)), Duration::ZERO);
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let seen = Seen::parse("2000 40960 77 34 99\n").unwrap();
        assert_eq!((seen.largest_gap, seen.written, seen.second), (Duration::from_millis(2), 40960, 34));
        assert_eq!(Seen::parse("2000 40960 77 34"), None);
    }

    #[test]
    fn too_little_load_is_an_error() {
        let before = Seen { written: 0, ..at(0, 0) };
        assert!(Seen { written: 20_000_000, ..at(1, 1_000_000) }.ensure_busy_since(&before).is_ok());
        assert!(Seen { written: 10_000_000, ..at(1, 1_000_000) }.ensure_busy_since(&before).is_err());
    }
}
