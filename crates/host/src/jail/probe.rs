//! Which jail this host gives, found by putting a program into it.

use std::path::Path;
use std::time::Duration;

use agentiso_core::config;
use agentiso_core::ids::WorkspaceId;

use super::cell::Cell;
use super::kind::{Jail, JailError};
use super::uid::{USERS, uid_of};
use crate::process::Jailed;

/// Printing a version takes a fraction of a second; a minute means that the host is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// The jail that machines get, or the reason why there is none. QEMU itself is tried out: what it needs must be in there.
pub async fn find(qemu: &Path, wanted: config::Jail) -> Result<Jail, JailError> {
    match wanted {
        config::Jail::Off => return Err(JailError::Off),
        config::Jail::Auto | config::Jail::Required => {}
    }
    let jails: &[Jail] = if gives_users() { &[Jail::Users] } else { &[Jail::UserNamespace, Jail::Landlock] };
    let mut reasons = Vec::new();
    for jail in jails {
        let cell = Cell::new(*jail, uid_of(WorkspaceId::random()), qemu);
        match Jailed::new(qemu, DEADLINE, cell).args(["--version"]).run().await {
            Ok(_version) => return Ok(*jail),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(JailError::Refused(reasons.join("; ")))
}

/// Whether we may start programs as other users: not every root may, in containers and under service managers.
pub fn gives_users() -> bool {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    may_give_users(&read("/proc/self/status"), &read("/proc/self/uid_map"))
}

fn may_give_users(status: &str, uid_map: &str) -> bool {
    /// CAP_CHOWN, CAP_SETGID, CAP_SETUID and CAP_SYS_ADMIN.
    const NEEDED: u64 = 1 | 1 << 6 | 1 << 7 | 1 << 21;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let all_exist = uid_map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let [inside, _, count] = numbers[..] else { return false };
        inside <= u64::from(USERS.start) && u64::from(USERS.end) <= inside + count
    });
    effective & NEEDED == NEEDED && all_exist
}

/// The jail that a process of ours is in, by what the kernel says of it. `None` if it is gone.
pub fn of_process(pid: i32) -> Option<Jail> {
    let namespace = |of: &str, kind: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    let pid = pid.to_string();
    let shared = |kind: &str| Some(namespace(&pid, kind)? == namespace("self", kind)?);
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    Some(match (shared("mnt")?, shared("user")?) {
        (true, _) if has_jails_limits(&limits) => Jail::Landlock,
        (true, _) => Jail::None,
        (false, true) => Jail::Users,
        (false, false) => Jail::UserNamespace,
    })
}

/// The kernel does not tell whether Landlock holds a process. But only what we put into a jail may have no message queues.
fn has_jails_limits(limits: &str) -> bool {
    let queues = limits.lines().find_map(|line| line.strip_prefix("Max msgqueue size"));
    queues.and_then(|rest| rest.split_whitespace().next()) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_need_capabilities_and_a_whole_map() {
        let status = |capabilities: &str| format!("Name:\tx\nCapEff:\t{capabilities}\n");
        let (all, none) = (status("000001ffffffffff"), status("0000000000000000"));
        let (host, container) = ("         0          0 4294967295\n", "0 100000 65536\n");
        assert!(may_give_users(&all, host));
        assert!(!may_give_users(&none, host));
        assert!(!may_give_users(&status("0000000080000000"), host), "setfcap alone");
        assert!(!may_give_users(&all, container));
        assert!(!may_give_users("", "") && !may_give_users(&all, "nonsense"));
    }

    #[test]
    fn limits_of_the_jail_are_recognised() {
        let limits =
            |queues: &str| format!("Max open files 4096 4096 files\nMax msgqueue size    {queues}   bytes\n");
        assert!(has_jails_limits(&limits("0       0")));
        assert!(!has_jails_limits(&limits("819200  819200")));
        assert!(!has_jails_limits(""));
    }

    #[tokio::test]
    async fn a_jail_that_is_switched_off_says_so() {
        let found = find(Path::new("/bin/true"), config::Jail::Off).await;
        assert!(matches!(found, Err(JailError::Off)));
    }

    #[tokio::test]
    async fn a_program_that_cannot_run_inside_is_named() {
        let error = find(Path::new("/no/such/qemu"), config::Jail::Auto).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/qemu"), "{error}");
    }
}
