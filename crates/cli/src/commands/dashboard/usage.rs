//! Reads the processor time and memory of VMs from the host's kernel.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use agentiso_core::ids::WorkspaceId;
use agentiso_daemon::control::wire::Workspace;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    /// Percent of one processor since the previous sample; `None` for the first sample.
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_bytes: u64,
}

/// The processor time of one process at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    pid: i32,
    ticks: u64,
    at: Instant,
}

/// The previous samples, to compare with.
#[derive(Debug, Default)]
pub(super) struct Sampler(BTreeMap<WorkspaceId, Sample>);

impl Sampler {
    /// Samples every workspace that has a process. A process that cannot be read is left out.
    pub(super) fn sample(&mut self, workspaces: &[Workspace]) -> BTreeMap<WorkspaceId, Usage> {
        let before = std::mem::take(&mut self.0);
        let mut usage = BTreeMap::new();
        for workspace in workspaces {
            let Some(pid) = workspace.pid else { continue };
            let Some((ticks, memory_bytes)) = read(pid) else { continue };
            let sample = Sample { pid, ticks, at: Instant::now() };
            let earlier = before.get(&workspace.id).filter(|earlier| earlier.pid == pid);
            let cpu_percent = earlier.map(|earlier| percent(earlier, &sample));
            usage.insert(workspace.id, Usage { cpu_percent, memory_bytes });
            self.0.insert(workspace.id, sample);
        }
        usage
    }
}

fn percent(earlier: &Sample, later: &Sample) -> f64 {
    let seconds = later.at.duration_since(earlier.at).as_secs_f64().max(0.001);
    let ticks = later.ticks.saturating_sub(earlier.ticks) as f64;
    100.0 * ticks / rustix::param::clock_ticks_per_second() as f64 / seconds
}

/// The processor ticks and the resident memory of a process.
fn read(pid: i32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some((ticks(&stat)?, pages * rustix::param::page_size() as u64))
}

/// The sum of fields 14 and 15 of proc_pid_stat(5). Field 2, the name, may hold anything and ends with the last
/// parenthesis.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ticks_are_parsed_after_odd_process_names() {
        let stat = "7 (a) 1 (2) R 1 2 3 4 5 6 7 8 9 10 250 40 0 0 20 0 1 0 100";
        assert_eq!(ticks(stat), Some(290));
        assert_eq!((ticks(""), ticks("7 (a) R 1")), (None, None));
    }

    #[test]
    fn cpu_percent_is_relative_to_one_processor() {
        let at = Instant::now();
        let per_second = rustix::param::clock_ticks_per_second();
        let earlier = Sample { pid: 1, ticks: 100, at };
        let later = Sample { pid: 1, ticks: 100 + per_second, at: at + Duration::from_secs(2) };
        assert!((percent(&earlier, &later) - 50.0).abs() < 1e-6);
    }

    #[test]
    fn usage_is_read_for_existing_processes() {
        let (_, memory) = read(std::process::id() as i32).unwrap();
        assert!(memory > 0);
        assert_eq!(read(-1), None);
    }
}
