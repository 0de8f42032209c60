//! Validates a configuration beyond its types. Every refusal names the key.

use thiserror::Error;

use super::ledger_size::{MAX_LEDGER_BYTES, largest_ledger};
use super::sections::{File, VaultConfig};
use crate::resources::MIN_MEMORY_MB;

/// The port of the gateway's resolver.
const DNS_PORT: u16 = 53;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("invalid configuration: {message}")]
    Syntax { message: String },
    #[error("configuration key {key}: {problem}")]
    Value { key: &'static str, problem: String },
}

pub(super) fn check(file: &File) -> Result<(), ConfigError> {
    let r = &file.resources;
    let pool = &file.pool;
    in_range("resources.max_vcpus", r.max_vcpus, 1, 255)?;
    in_range("resources.max_memory_mb", r.max_memory_mb, MIN_MEMORY_MB, 1 << 20)?;
    in_range("resources.max_disk_gb", r.max_disk_gb, 1, 1 << 14)?;
    in_range("resources.max_workspaces", r.max_workspaces, 1, 10_000)?;
    in_range("resources.max_concurrent_forks", r.max_concurrent_forks, 1, 1000)?;
    in_range("resources.max_snapshots_per_workspace", r.max_snapshots_per_workspace, 1, 10_000)?;
    let ledger = largest_ledger(r.max_workspaces, r.max_snapshots_per_workspace);
    if ledger > MAX_LEDGER_BYTES {
        return Err(ConfigError::Value {
            key: "resources.max_snapshots_per_workspace",
            problem: format!(
                "{} snapshots for each of resources.max_workspaces = {} do not fit into the state file, which is limited to {} GiB",
                r.max_snapshots_per_workspace,
                r.max_workspaces,
                MAX_LEDGER_BYTES >> 30
            ),
        });
    }
    in_range("resources.max_vms_per_team", r.max_vms_per_team, 1, 1000)?;
    in_range("resources.default_vcpus", r.default_vcpus, 1, r.max_vcpus)?;
    in_range("resources.default_memory_mb", r.default_memory_mb, MIN_MEMORY_MB, r.max_memory_mb)?;
    in_range("resources.default_disk_gb", r.default_disk_gb, 1, r.max_disk_gb)?;
    in_range("network.subnet_prefix", u32::from(file.network.subnet_prefix), 8, 30)?;
    if !is_interface_name(&file.network.bridge_name) {
        return Err(value(
            "network.bridge_name",
            "must be an interface name: 1 to 15 letters, digits, '-' or '_', and not all, default or lo",
        ));
    }
    if file.network.dns_servers.is_empty() {
        return Err(value("network.dns_servers", "must have at least one IPv4 address"));
    }
    in_range("vm.vsock_cid_start", file.vm.vsock_cid_start, 3, u32::MAX - 1)?;
    if !(1..=3600).contains(&file.vm.boot_timeout_secs) {
        return Err(value("vm.boot_timeout_secs", "must be between 1 and 3600"));
    }
    if file.vm.kernel_append.contains(['\0', '\n']) {
        return Err(value("vm.kernel_append", "must be one line"));
    }
    let bridge = &file.mcp_bridge;
    if bridge.enabled && bridge.bind_addr != file.network.gateway_ip {
        return Err(value(
            "mcp_bridge.bind_addr",
            "must be the same as network.gateway_ip, the only address of the host that workspaces can reach",
        ));
    }
    if bridge.enabled && matches!(bridge.port, 0 | DNS_PORT) {
        return Err(value("mcp_bridge.port", "must not be 0 or 53 (the port of the DNS resolver)"));
    }
    let taken = |port: u16| matches!(port, 0 | DNS_PORT) || port == bridge.port;
    if bridge.enabled && bridge.ollama_port.is_some_and(taken) {
        return Err(value(
            "mcp_bridge.ollama_port",
            "must not be 0, 53 (the port of the DNS resolver) or mcp_bridge.port",
        ));
    }
    let rates = &file.rate_limit;
    for (key, per_minute) in [
        ("rate_limit.create_per_minute", rates.create_per_minute),
        ("rate_limit.exec_per_minute", rates.exec_per_minute),
    ] {
        if per_minute == 0 {
            return Err(value(
                key,
                "must be at least 1; to disable rate limits, set rate_limit.enabled = false",
            ));
        }
    }
    if pool.enabled {
        in_range("pool.min_size", pool.min_size, 0, pool.max_size)?;
        in_range("pool.target_free", pool.target_free, 0, pool.max_size)?;
        if pool.max_size.saturating_add(r.max_workspaces) > r.max_total_vms {
            return Err(value(
                "resources.max_total_vms",
                "must be at least pool.max_size + resources.max_workspaces",
            ));
        }
    }
    let paths = [
        ("server.state_file", &file.server.state_file),
        ("server.transfer_dir", &file.server.transfer_dir),
        ("storage.cache_dir", &file.storage.cache_dir),
        ("vm.run_dir", &file.vm.run_dir),
        ("vm.kernel_path", &file.vm.kernel_path),
        ("vm.initrd_path", &file.vm.initrd_path),
    ];
    if file.vault.enabled {
        check_vault(&file.vault)?;
    }
    for (key, path) in paths {
        if path.as_ref().is_some_and(|p| !p.is_absolute()) {
            return Err(value(key, "must be an absolute path"));
        }
    }
    Ok(())
}

fn check_vault(vault: &VaultConfig) -> Result<(), ConfigError> {
    if !vault.path.is_absolute() {
        return Err(value("vault.path", "must be an absolute path"));
    }
    let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '\0']);
    if vault.extensions.is_empty() || !vault.extensions.iter().all(is_name) {
        return Err(value(
            "vault.extensions",
            "must have at least one file extension such as \"md\", and no paths",
        ));
    }
    if !vault.exclude_dirs.iter().all(is_name) {
        return Err(value("vault.exclude_dirs", "must be names of directories, not paths"));
    }
    Ok(())
}

/// Whether our bridge may have this name. It becomes a part of paths below /proc/sys, where `all` and `default` stand
/// for all interfaces and for new ones.
fn is_interface_name(name: &str) -> bool {
    let fits = (1..=15).contains(&name.len());
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    fits && plain && !matches!(name, "all" | "default" | "lo")
}

fn in_range(key: &'static str, given: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    if (min..=max).contains(&given) {
        return Ok(());
    }
    Err(ConfigError::Value { key, problem: format!("must be between {min} and {max}, not {given}") })
}

fn value(key: &'static str, problem: &str) -> ConfigError {
    ConfigError::Value { key, problem: problem.to_owned() }
}
