//! Content of the files under `/etc` with the guest's names and name servers.

use std::net::Ipv4Addr;

/// The address that Debian gives to a system's own name.
const OWN_ADDRESS: &str = "127.0.1.1";

const DEFAULT_HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/// `/etc/hosts` with the guest's own name. Lines that users added stay.
pub(super) fn hosts(current: Option<&str>, hostname: &str) -> String {
    let mut text: String = current
        .unwrap_or(DEFAULT_HOSTS)
        .lines()
        .filter(|line| line.split_whitespace().next() != Some(OWN_ADDRESS))
        .flat_map(|line| [line, "\n"])
        .collect();
    text.push_str(&format!("{OWN_ADDRESS}\t{hostname}\n"));
    text
}

/// `/etc/resolv.conf` for these name servers.
pub(super) fn resolv_conf(servers: &[Ipv4Addr]) -> String {
    servers.iter().map(|server| format!("nameserver {server}\n")).collect()
}

/// Whether the kernel and the resolver accept this host name.
pub(super) fn is_hostname(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= agentiso_protocol::limits::MAX_HOSTNAME_BYTES && name.split('.').all(label)
}

/// Whether this is a machine id: 32 lower-case hexadecimal digits, not all zero.
pub(super) fn is_machine_id(id: &str) -> bool {
    id.len() == 32
        && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && id.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::{hosts, is_hostname, is_machine_id};

    #[test]
    fn hosts_file_keeps_user_lines() {
        let first = hosts(None, "one");
        assert!(first.starts_with("127.0.0.1\tlocalhost\n") && first.ends_with("127.0.1.1\tone\n"));
        let edited = format!("{first}10.0.0.9 db\n");
        let second = hosts(Some(&edited), "two");
        assert!(second.contains("10.0.0.9 db\n") && second.ends_with("127.0.1.1\ttwo\n"));
        assert!(!second.contains("one"));
        assert_eq!(hosts(Some(&second), "two"), second);
    }

    #[test]
    fn hostnames_and_vm_ids_are_validated() {
        for bad in ["", "-a", "a-", "a b", "a\n127.0.0.1", "a..b", "ä", &"a".repeat(64)] {
            assert!(!is_hostname(bad), "{bad}");
        }
        assert!(is_hostname("ws-1.local") && is_machine_id(&"0a".repeat(16)));
        assert!(!is_machine_id(&"0".repeat(32)) && !is_machine_id(&"A".repeat(32)) && !is_machine_id("a\n"));
    }
}
