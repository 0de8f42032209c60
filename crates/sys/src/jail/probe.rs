//! Finds the jail that this host supports by running a program in it.

use std::path::Path;
use std::time::Duration;

use agentiso_core::config;
use agentiso_core::ids::WorkspaceId;

use super::cell::Cell;
use super::kind::{Jail, JailError};
use super::uid::{USERS, uid_of};
use crate::fault;
use crate::process::Jailed;

/// Printing a version takes a fraction of a second; a minute means that the host is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

/// The jail for VMs, or the reason why there is none. QEMU itself is run in it, because everything that QEMU needs must
/// be inside.
pub async fn find(qemu: &Path, wanted: config::Jail) -> Result<Jail, JailError> {
    match wanted {
        config::Jail::Off => return Err(JailError::Off),
        config::Jail::Auto | config::Jail::Required => {}
    }
    let jails: &[Jail] = if gives_users() { &[Jail::Users] } else { &[Jail::UserNamespace, Jail::Landlock] };
    let mut reasons = Vec::new();
    for jail in jails.iter().filter(|jail| fault::allows_jail(jail.as_str())) {
        let cell = Cell::new(*jail, uid_of(WorkspaceId::random()), qemu);
        match Jailed::new(qemu, DEADLINE, cell).args(["--version"]).run().await {
            Ok(_version) => return Ok(*jail),
            // A temporary shortage of the host must not lead to a weaker jail or none.
            Err(error) if error.is_transient() => return Err(JailError::Undecided(error.to_string())),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(JailError::Refused(reasons.join("; ")))
}

/// Whether we may start programs as other users. In containers and under service managers, root often may not.
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

/// The namespaces that separate a jail from the host. Its user namespace is compared separately.
const NAMESPACES: [&str; 5] = ["mnt", "pid", "net", "ipc", "uts"];

/// The jail of a running process, according to the kernel. `None` if the process is gone.
pub fn of_process(pid: i32) -> Option<Jail> {
    let namespace = |of: &str, kind: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
    let pid = pid.to_string();
    let apart = |kind: &str| Some(namespace(&pid, kind)? != namespace("self", kind)?);
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let mut all_apart = true;
    for kind in NAMESPACES {
        all_apart &= apart(kind)?;
    }
    Some(judge(all_apart, apart("user")?, &read("status")?, &read("limits")?))
}

/// Decides from the namespaces and the texts of `/proc/PID/status` and `/proc/PID/limits`. A process that lacks any
/// part of its kind of jail counts as having none.
fn judge(all_apart: bool, own_user_namespace: bool, status: &str, limits: &str) -> Jail {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default()
    };
    let is_empty = |set: &str| u64::from_str_radix(value(set), 16) == Ok(0);
    let is_held = (value("NoNewPrivs"), value("Seccomp")) == ("1", "2")
        && ["CapPrm", "CapEff", "CapAmb"].into_iter().all(is_empty);
    let is_vms_user =
        || value("Uid").split_whitespace().all(|uid| uid.parse().is_ok_and(|uid| USERS.contains(&uid)));
    match (all_apart, own_user_namespace) {
        _ if !is_held => Jail::None,
        (true, false) if is_empty("CapBnd") && is_vms_user() => Jail::Users,
        (true, true) if is_empty("CapBnd") => Jail::UserNamespace,
        (false, false) if has_jails_limits(limits) => Jail::Landlock,
        _ => Jail::None,
    }
}

/// The kernel does not report whether Landlock confines a process. But only our jails forbid message queues.
fn has_jails_limits(limits: &str) -> bool {
    let queues = limits.lines().find_map(|line| line.strip_prefix("Max msgqueue size"));
    queues.and_then(|rest| rest.split_whitespace().next()) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_jail_needs_capabilities_and_full_map() {
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
    fn jail_limits_are_recognised() {
        let limits =
            |queues: &str| format!("Max open files 4096 4096 files\nMax msgqueue size    {queues}   bytes\n");
        assert!(has_jails_limits(&limits("0       0")));
        assert!(!has_jails_limits(&limits("819200  819200")));
        assert!(!has_jails_limits(""));
    }

    #[test]
    fn incomplete_jail_counts_as_none() {
        let status = "Uid:\t1879048200\t1879048200\t1879048200\t1879048200\nCapPrm:\t0000000000000000\n\
                      CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n\
                      NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let limits = "Max msgqueue size    0   0   bytes\n";
        assert_eq!(judge(true, false, status, limits), Jail::Users);
        assert_eq!(judge(true, true, status, limits), Jail::UserNamespace);
        assert_eq!(judge(false, false, status, limits), Jail::Landlock);
        assert_eq!(judge(false, true, status, limits), Jail::None, "some namespaces are the host's");
        assert_eq!(judge(false, false, status, ""), Jail::None);
        let less = [
            ("Uid:\t1879048200", "Uid:\t0", [Jail::None, Jail::UserNamespace, Jail::Landlock]),
            ("CapBnd:\t0", "CapBnd:\t1", [Jail::None, Jail::None, Jail::Landlock]),
            ("CapEff:\t0", "CapEff:\t1", [Jail::None; 3]),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", [Jail::None; 3]),
            ("Seccomp:\t2", "Seccomp:\t0", [Jail::None; 3]),
        ];
        for (has, lacks, jails) in less {
            let status = status.replace(has, lacks);
            let judged = [(true, false), (true, true), (false, false)]
                .map(|(all_apart, user)| judge(all_apart, user, &status, limits));
            assert_eq!(judged, jails, "{lacks}");
        }
    }

    #[tokio::test]
    async fn disabled_jail_reports_off() {
        let found = find(Path::new("/bin/true"), config::Jail::Off).await;
        assert!(matches!(found, Err(JailError::Off)));
    }

    #[tokio::test]
    async fn failed_jail_probe_names_the_program() {
        let error = find(Path::new("/no/such/qemu"), config::Jail::Auto).await.unwrap_err();
        assert!(error.to_string().contains("/no/such/qemu"), "{error}");
    }
}
