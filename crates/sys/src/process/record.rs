//! The identity of a process across restarts of the daemon and reboots of the host.

use std::fs;

use serde::{Deserialize, Serialize};

/// The identity of a process. The start time distinguishes it from a later process with the same pid, the boot id from
/// one of an earlier boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmRecord {
    pub pid: i32,
    /// Clock ticks since the boot, from `/proc/<pid>/stat`.
    pub start_time: u64,
    pub boot_id: String,
}

/// The kernel's id of the host's current boot. Empty if it cannot be read.
pub fn host_boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The start time of a process; `None` if there is none with that pid.
pub fn start_time_of(pid: i32) -> Option<u64> {
    parse_start_time(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The start time is the 22nd field. The second field is the program's name in parentheses, which may contain spaces
/// and parentheses itself, so counting begins after the last parenthesis.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let end_of_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat(name: &str, start: u64) -> String {
        format!("7 ({name}) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {start} 99 100")
    }

    proptest! {
        #[test]
        fn start_time_is_parsed_for_any_name(name in "[ -~]{0,15}", start: u64) {
            prop_assert_eq!(parse_start_time(stat(&name, start).as_bytes()), Some(start));
        }

        #[test]
        fn proc_stat_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_start_time(&bytes);
        }
    }

    #[test]
    fn own_start_time_and_boot_id_are_read() {
        assert!(start_time_of(std::process::id() as i32).is_some_and(|t| t > 0));
        assert_eq!(host_boot_id().len(), 36);
    }
}
