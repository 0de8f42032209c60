//! Memory of the host that a process uses.

use std::time::Duration;

use anyhow::{Context, Result};

/// The time for guests to become idle after their last command; memory still grows meanwhile.
const SETTLE: Duration = Duration::from_secs(20);

/// Waits until guests are idle.
pub(crate) fn settle() {
    wait(SETTLE);
}

#[expect(
    clippy::disallowed_methods,
    reason = "becoming idle gives no event; the time is part of the measurement"
)]
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// The PSS of several processes, in bytes.
pub(crate) fn pss(pids: &[i32]) -> Result<u64> {
    pids.iter().map(|pid| bytes(*pid, "Pss")).sum()
}

/// A field of a process's memory summary, in bytes.
pub(crate) fn bytes(pid: i32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse(&text, field).with_context(|| format!("no {field} in {path}"))
}

fn parse(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_matched_by_whole_name() {
        let text = "00-ff ---p 00000000 00:00 0 [rollup]\nRss:  100 kB\nPss:   50 kB\nPss_Dirty:  7 kB\n";
        assert_eq!(parse(text, "Pss"), Some(50 * 1024));
        assert_eq!(parse(text, "Pss_Dirty"), Some(7 * 1024));
        assert_eq!(parse(text, "Swap"), None);
    }

    #[test]
    fn our_own_memory_can_be_read() {
        let pid = std::process::id() as i32;
        assert!(bytes(pid, "Rss").unwrap() >= pss(&[pid]).unwrap());
    }
}
