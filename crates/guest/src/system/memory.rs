//! Reads the memory figures of the guest's kernel.

use std::fs;

use agentiso_protocol::schema::v1;

use super::error::{Step as _, SystemError};

/// The memory of the guest and of the agent, from the kernel.
pub fn memory_info() -> Result<v1::MemoryInfoResponse, SystemError> {
    let memory = fs::read_to_string("/proc/meminfo").step("reading the memory statistics")?;
    let pages = fs::read_to_string("/proc/self/statm").step("reading the agent's memory statistics")?;
    let resident: u64 = pages.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(v1::MemoryInfoResponse {
        total_bytes: kib_of(&memory, "MemTotal:") * 1024,
        available_bytes: kib_of(&memory, "MemAvailable:") * 1024,
        agent_rss_bytes: resident * rustix::param::page_size() as u64,
    })
}

fn kib_of(table: &str, name: &str) -> u64 {
    let line = table.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::kib_of;

    #[test]
    fn memory_figures_are_found_by_name() {
        let table = "MemTotal:         248052 kB\nMemFree:   1 kB\n";
        assert_eq!((kib_of(table, "MemTotal:"), kib_of(table, "None:")), (248_052, 0));
    }
}
