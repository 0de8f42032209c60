//! Checks a VM's process without the daemon.

use agentiso_daemon::vms::VmRecord;

/// Whether the recorded process is alive: same pid, same start time, same boot of the host.
pub(crate) fn is_alive(record: &VmRecord) -> bool {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    record.boot_id == boot_id.trim()
        && std::fs::read(format!("/proc/{}/stat", record.pid))
            .is_ok_and(|stat| start_of_living(&stat) == Some(record.start_time))
}

/// The start time in a line of /proc/PID/stat; `None` if the process is a zombie.
fn start_of_living(stat: &[u8]) -> Option<u64> {
    // The name is in parentheses and may itself hold spaces and parentheses.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_record() -> VmRecord {
        let stat = std::fs::read("/proc/self/stat").unwrap();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
        VmRecord { pid: std::process::id() as i32, start_time: start_of_living(&stat).unwrap(), boot_id }
    }

    #[test]
    fn reused_pid_is_not_alive() {
        assert!(is_alive(&own_record()));
        assert!(!is_alive(&VmRecord { start_time: 1, ..own_record() }));
        assert!(!is_alive(&VmRecord { boot_id: "another boot".to_owned(), ..own_record() }));
    }
}
