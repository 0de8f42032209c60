//! Tests that the configuration follows the tool contract: every default, every key by its name, and the bounds at
//! their edges.

use std::path::PathBuf;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    let root = UserDirs { uid: 0, home: "/root".into(), state_home: None, runtime_dir: None };
    Config::parse(text, &root)
}

#[test]
fn configuration_defaults_match_the_contract() {
    let config = parse("").unwrap();
    assert_eq!(config.paths.state_file, PathBuf::from("/var/lib/agentiso/state.json"));
    assert_eq!(config.paths.transfer, PathBuf::from("/var/lib/agentiso/transfers"));
    assert_eq!(config.server.state_persist_interval_secs, 30);
    assert_eq!(config.server.tools, "full");

    let network = &config.network;
    assert_eq!(
        (network.bridge_name.as_str(), network.gateway_ip.to_string()),
        ("br-agentiso", "10.42.0.1".to_owned())
    );
    assert_eq!(
        (network.subnet_prefix, network.default_allow_internet, network.default_allow_inter_vm),
        (16, false, false)
    );
    assert_eq!(
        network.dns_servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["1.1.1.1", "8.8.8.8"]
    );

    let vm = &config.vm;
    assert_eq!((vm.qemu_binary.as_path(), vm.vsock_cid_start), ("qemu-system-x86_64".as_ref(), 100));
    assert_eq!((vm.guest_agent_port, vm.init_mode), (5000, InitMode::Fast));
    assert_eq!((&vm.kernel_path, &vm.initrd_path, vm.kernel_append.as_str()), (&None, &None, ""));
    assert_eq!((vm.boot_timeout_secs, config.paths.run.as_path()), (110, "/run/agentiso".as_ref()));
    assert_eq!(config.storage.base_image.as_str(), "debian-dev");

    let resources = ResourcesConfig {
        default_vcpus: 2,
        default_memory_mb: 512,
        default_disk_gb: 10,
        max_vcpus: 8,
        max_memory_mb: 8192,
        max_disk_gb: 100,
        max_workspaces: 50,
        max_concurrent_forks: 10,
        max_total_vms: 100,
        max_vms_per_team: 20,
        max_nesting_depth: 3,
        cgroup_required: false,
        max_snapshots_per_workspace: 100,
    };
    assert_eq!(config.resources, resources);
    let pool = PoolConfig { enabled: true, min_size: 2, max_size: 10, target_free: 2, max_memory_mb: 8192 };
    assert_eq!(config.pool, pool);
    let vault = VaultConfig {
        enabled: false,
        path: "/mnt/vault".into(),
        extensions: vec!["md".to_owned()],
        exclude_dirs: [".obsidian", ".trash", ".git"].map(str::to_owned).to_vec(),
    };
    assert_eq!(config.vault, vault);
    let rates = RateLimitConfig {
        enabled: true,
        create_per_minute: 5,
        exec_per_minute: 60,
        default_per_minute: 120,
        team_message_per_minute: 300,
    };
    assert_eq!(config.rate_limit, rates);
    let bridge = &config.mcp_bridge;
    assert_eq!(
        (bridge.enabled, bridge.bind_addr.to_string(), bridge.port),
        (false, "10.42.0.1".to_owned(), 3100)
    );
    assert_eq!(bridge.ollama_port, None);
    let dashboard = &config.dashboard;
    assert_eq!(
        (dashboard.enabled, dashboard.bind_addr.to_string(), dashboard.port),
        (false, "127.0.0.1".to_owned(), 7070)
    );
    assert_eq!((dashboard.admin_token.as_str(), &dashboard.static_dir), ("", &None));
}

/// A file of the predecessor program, with every key that it knew.
const EVERY_KEY: &str = r#"
[server]
state_file = "/srv/a/state.json"
state_persist_interval_secs = 7
transfer_dir = "/srv/t"
[storage]
zfs_pool = "tank"
dataset_prefix = "vms"
base_image = "alpine-dev"
base_snapshot = "latest"
[network]
bridge_name = "br0"
gateway_ip = "10.9.0.1"
subnet_prefix = 24
default_allow_internet = true
default_allow_inter_vm = true
dns_servers = ["9.9.9.9"]
[vm]
kernel_path = "/srv/vmlinuz"
initrd_path = "/srv/initrd.img"
initrd_fast_path = "/srv/fast.img"
qemu_binary = "/opt/qemu"
run_dir = "/run/a"
kernel_append = "console=ttyS0 root=/dev/vda rw quiet"
vsock_cid_start = 3
guest_agent_port = 6000
boot_timeout_secs = 30
init_mode = "openrc"
[resources]
default_vcpus = 1
default_memory_mb = 256
default_disk_gb = 5
max_vcpus = 4
max_memory_mb = 4096
max_disk_gb = 50
max_workspaces = 20
max_concurrent_forks = 5
max_total_vms = 30
max_vms_per_team = 6
max_nesting_depth = 1
cgroup_required = true
max_snapshots_per_workspace = 20
[pool]
enabled = false
min_size = 1
max_size = 4
target_free = 3
max_memory_mb = 1024
[vault]
enabled = true
path = "/srv/notes"
extensions = ["md", "txt"]
exclude_dirs = [".git"]
[rate_limit]
enabled = false
create_per_minute = 1
exec_per_minute = 2
default_per_minute = 3
team_message_per_minute = 4
[mcp_bridge]
enabled = true
bind_addr = "10.9.0.1"
port = 3200
ollama_port = 11434
[dashboard]
enabled = false
bind_addr = "127.0.0.1"
port = 8080
admin_token = "secret"
static_dir = "/srv/www"
"#;

#[test]
fn every_key_of_the_contract_is_read() {
    let config = parse(EVERY_KEY).unwrap();
    assert_eq!(
        (config.paths.state_file.as_path(), config.paths.transfer.as_path()),
        ("/srv/a/state.json".as_ref(), "/srv/t".as_ref())
    );
    assert_eq!(
        (config.storage.base_image.as_str(), config.paths.run.as_path()),
        ("alpine-dev", "/run/a".as_ref())
    );
    assert_eq!(config.server.state_persist_interval_secs, 7);
    let network = &config.network;
    assert_eq!(network.dns_servers, [std::net::Ipv4Addr::new(9, 9, 9, 9)]);
    assert!(network.default_allow_internet && network.default_allow_inter_vm && network.bridge_name == "br0");
    assert_eq!((config.subnet().prefix, config.subnet().gateway.to_string()), (24, "10.9.0.1".to_owned()));
    let vm = &config.vm;
    assert_eq!(vm.kernel_path.as_deref(), Some("/srv/vmlinuz".as_ref()));
    assert_eq!((vm.initrd_path.as_deref(), vm.boot_timeout_secs), (Some("/srv/initrd.img".as_ref()), 30));
    assert_eq!((vm.init_mode, vm.qemu_binary.as_path()), (InitMode::System, "/opt/qemu".as_ref()));
    assert_eq!((vm.vsock_cid_start, vm.guest_agent_port), (3, 6000));
    assert_eq!(vm.kernel_append, "console=ttyS0 root=/dev/vda rw quiet");
    let resources = ResourcesConfig {
        default_vcpus: 1,
        default_memory_mb: 256,
        default_disk_gb: 5,
        max_vcpus: 4,
        max_memory_mb: 4096,
        max_disk_gb: 50,
        max_workspaces: 20,
        max_concurrent_forks: 5,
        max_total_vms: 30,
        max_vms_per_team: 6,
        max_nesting_depth: 1,
        cgroup_required: true,
        max_snapshots_per_workspace: 20,
    };
    assert_eq!(config.resources, resources);
    assert_eq!(config.default_resources(), Resources { vcpus: 1, memory_mb: 256, disk_gb: 5 });
    let pool = PoolConfig { enabled: false, min_size: 1, max_size: 4, target_free: 3, max_memory_mb: 1024 };
    assert_eq!(config.pool, pool);
    let vault = VaultConfig {
        enabled: true,
        path: "/srv/notes".into(),
        extensions: ["md", "txt"].map(str::to_owned).to_vec(),
        exclude_dirs: vec![".git".to_owned()],
    };
    assert_eq!(config.vault, vault);
    let rates = &config.rate_limit;
    assert_eq!((rates.enabled, rates.create_per_minute, rates.exec_per_minute), (false, 1, 2));
    assert_eq!((rates.default_per_minute, rates.team_message_per_minute), (3, 4));
    let bridge = &config.mcp_bridge;
    assert_eq!((bridge.enabled, bridge.bind_addr.to_string()), (true, "10.9.0.1".to_owned()));
    assert_eq!((bridge.port, bridge.ollama_port), (3200, Some(11_434)));
    let dashboard = &config.dashboard;
    assert_eq!((dashboard.enabled, dashboard.bind_addr.to_string()), (false, "127.0.0.1".to_owned()));
    assert_eq!((dashboard.port, dashboard.admin_token.as_str()), (8080, "secret"));
    assert_eq!(dashboard.static_dir.as_deref(), Some("/srv/www".as_ref()));
}

#[test]
fn configuration_bounds_hold_at_their_edges() {
    for (text, good) in [
        ("[network]\nsubnet_prefix=7", false),
        ("[network]\nsubnet_prefix=8", true),
        ("[network]\nsubnet_prefix=30", true),
        ("[network]\nsubnet_prefix=31", false),
        ("[network]\ndns_servers=['::1']", false),
        ("[vm]\nvsock_cid_start=2", false),
        ("[vm]\nvsock_cid_start=3", true),
        ("[resources]\nmax_vcpus=0", false),
        ("[resources]\nmax_vcpus=1\ndefault_vcpus=1", true),
        ("[resources]\nmax_memory_mb=127\ndefault_memory_mb=127", false),
        ("[resources]\nmax_memory_mb=128\ndefault_memory_mb=128", true),
        ("[resources]\nmax_disk_gb=0", false),
        ("[resources]\nmax_disk_gb=1\ndefault_disk_gb=1", true),
        ("[resources]\nmax_workspaces=0", false),
        ("[resources]\nmax_workspaces=1", true),
        ("[resources]\nmax_workspaces=90", true),
        ("[resources]\nmax_workspaces=91", false),
        ("[pool]\nmin_size=10", true),
        ("[pool]\nmin_size=11", false),
        ("[pool]\ntarget_free=10", true),
        ("[pool]\ntarget_free=11", false),
    ] {
        assert_eq!(parse(text).is_ok(), good, "{text}");
    }
}
