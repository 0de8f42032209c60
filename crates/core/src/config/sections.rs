//! The sections of the configuration file, with the defaults of the tool contract.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::Deserialize;

use crate::names::ImageName;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) server: ServerConfig,
    pub(super) storage: StorageConfig,
    pub(super) image: ImageConfig,
    pub(super) network: NetworkConfig,
    pub(super) vm: VmConfig,
    pub(super) resources: ResourcesConfig,
    pub(super) pool: PoolConfig,
    pub(super) vault: VaultConfig,
    pub(super) rate_limit: RateLimitConfig,
    pub(super) mcp_bridge: McpBridgeConfig,
    pub(super) dashboard: DashboardConfig,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    /// `None`: a path that depends on the user, see [`super::Paths`].
    pub state_file: Option<PathBuf>,
    pub state_persist_interval_secs: u64,
    pub transfer_dir: Option<PathBuf>,
    /// The tools that are listed: `full`, `core`, or a list of names.
    pub tools: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            state_file: None,
            state_persist_interval_secs: 30,
            transfer_dir: None,
            tools: "full".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct StorageConfig {
    pub base_image: ImageName,
    /// The directory of images, kernels and templates. It may be apart from the state, so that several daemons share
    /// it.
    pub cache_dir: Option<PathBuf>,
}

impl Default for StorageConfig {
    fn default() -> Self {
        let base_image = ImageName::parse("debian-dev").expect("a literal that is a valid name");
        Self { base_image, cache_dir: None }
    }
}

/// Settings for building images.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// A Debian mirror to build from instead of the host's own apt sources.
    pub mirror: Option<String>,
    pub suite: Option<String>,
}

/// The network backend as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkBackend {
    /// The gateway, for root too: a host gets a bridge and packet rules only on request.
    Auto,
    Gateway,
    Bridge,
}

/// The network backend in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In user space, without privileges.
    Gateway,
    /// A bridge of the host's kernel with packet rules. It needs root.
    Bridge,
}

impl NetworkBackend {
    pub fn chosen(self) -> Backend {
        match self {
            Self::Auto | Self::Gateway => Backend::Gateway,
            Self::Bridge => Backend::Bridge,
        }
    }
}

impl Backend {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Bridge => "bridge",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct NetworkConfig {
    pub backend: NetworkBackend,
    pub bridge_name: String,
    pub gateway_ip: Ipv4Addr,
    pub subnet_prefix: u8,
    pub default_allow_internet: bool,
    pub default_allow_inter_vm: bool,
    pub dns_servers: Vec<Ipv4Addr>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            backend: NetworkBackend::Auto,
            bridge_name: "br-agentiso".to_owned(),
            gateway_ip: Ipv4Addr::new(10, 42, 0, 1),
            subnet_prefix: 16,
            default_allow_internet: false,
            default_allow_inter_vm: false,
            dns_servers: vec![Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(8, 8, 8, 8)],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// KVM if a probe boot with it succeeds, else software emulation.
    Auto,
    Kvm,
    Tcg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InitMode {
    /// The guest agent is init.
    Fast,
    /// The image's own init runs, with the agent beside it.
    #[serde(alias = "openrc")]
    System,
}

/// Whether each QEMU process runs in a jail, which confines it if its guest takes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jail {
    /// The jail that the host supports, which may be none.
    Auto,
    /// No VM is started without a jail.
    Required,
    Off,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct VmConfig {
    /// `None`: the kernel that `agentiso image build` took from Debian's packages.
    pub kernel_path: Option<PathBuf>,
    /// `None`: the initramfs that agentiso writes.
    pub initrd_path: Option<PathBuf>,
    pub qemu_binary: PathBuf,
    pub accelerator: Accelerator,
    pub run_dir: Option<PathBuf>,
    /// Added to the kernel command line that agentiso makes.
    pub kernel_append: String,
    pub vsock_cid_start: u32,
    pub guest_agent_port: u32,
    pub boot_timeout_secs: u64,
    pub init_mode: InitMode,
    /// Off: every VM boots cold. For measurements, and for hosts on which restores misbehave.
    pub templates: bool,
    pub jail: Jail,
    /// Whether guests under KVM may use the host processor's virtualization and its performance counters.
    pub nested: bool,
}

impl Default for VmConfig {
    fn default() -> Self {
        Self {
            kernel_path: None,
            initrd_path: None,
            qemu_binary: PathBuf::from("qemu-system-x86_64"),
            accelerator: Accelerator::Auto,
            run_dir: None,
            kernel_append: String::new(),
            vsock_cid_start: 100,
            guest_agent_port: 5000,
            // A boot that takes a second with KVM takes tens of seconds under software emulation on a busy host.
            boot_timeout_secs: 110,
            init_mode: InitMode::Fast,
            templates: true,
            jail: Jail::Auto,
            nested: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourcesConfig {
    pub default_vcpus: u32,
    pub default_memory_mb: u32,
    pub default_disk_gb: u32,
    pub max_vcpus: u32,
    pub max_memory_mb: u32,
    pub max_disk_gb: u32,
    pub max_workspaces: u32,
    pub max_concurrent_forks: u32,
    pub max_total_vms: u32,
    pub max_vms_per_team: u32,
    pub max_nesting_depth: u32,
    pub cgroup_required: bool,
    pub max_snapshots_per_workspace: u32,
}

impl Default for ResourcesConfig {
    fn default() -> Self {
        Self {
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
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct PoolConfig {
    pub enabled: bool,
    pub min_size: u32,
    pub max_size: u32,
    pub target_free: u32,
    pub max_memory_mb: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { enabled: true, min_size: 2, max_size: 10, target_free: 2, max_memory_mb: 8192 }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct VaultConfig {
    pub enabled: bool,
    pub path: PathBuf,
    pub extensions: Vec<String>,
    pub exclude_dirs: Vec<String>,
}

impl Default for VaultConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            path: PathBuf::from("/mnt/vault"),
            extensions: vec!["md".to_owned()],
            exclude_dirs: [".obsidian", ".trash", ".git"].map(str::to_owned).to_vec(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RateLimitConfig {
    pub enabled: bool,
    pub create_per_minute: u32,
    pub exec_per_minute: u32,
    pub default_per_minute: u32,
    pub team_message_per_minute: u32,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            create_per_minute: 5,
            exec_per_minute: 60,
            default_per_minute: 120,
            team_message_per_minute: 300,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct McpBridgeConfig {
    pub enabled: bool,
    pub bind_addr: Ipv4Addr,
    pub port: u16,
    /// The port of a model server on the host's loopback, for workspaces that have a token.
    pub ollama_port: Option<u16>,
    /// The model for OpenCode if the image does not name one.
    pub model: Option<String>,
}

impl Default for McpBridgeConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            bind_addr: Ipv4Addr::new(10, 42, 0, 1),
            port: 3100,
            ollama_port: None,
            model: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct DashboardConfig {
    pub enabled: bool,
    pub bind_addr: Ipv4Addr,
    pub port: u16,
    pub admin_token: String,
    pub static_dir: Option<PathBuf>,
}

impl Default for DashboardConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            bind_addr: Ipv4Addr::LOCALHOST,
            port: 7070,
            admin_token: String::new(),
            static_dir: None,
        }
    }
}
