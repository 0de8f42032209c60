//! The configuration: a TOML file in which every key is optional and unknown keys are tolerated.
//!
//! [`Config::parse`] turns the text into validated values, with every path resolved. It does not read the file; the
//! program does.

#[cfg(test)]
mod contract;
mod ledger_size;
mod paths;
mod sections;
mod validate;

pub use ledger_size::{MAX_LEDGER_BYTES, MEMBER_BYTES, SNAPSHOT_BYTES, WORKSPACE_BYTES, largest_ledger};
pub use paths::{Paths, UserDirs};
pub use sections::{
    Accelerator, Backend, DashboardConfig, ImageConfig, InitMode, Jail, McpBridgeConfig, NetworkBackend,
    NetworkConfig, PoolConfig, RateLimitConfig, ResourcesConfig, ServerConfig, StorageConfig, VaultConfig,
    VmConfig,
};
pub use validate::ConfigError;

use crate::address::Subnet;
use crate::resources::{ResourceLimits, Resources};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub server: ServerConfig,
    pub storage: StorageConfig,
    pub image: ImageConfig,
    pub network: NetworkConfig,
    pub vm: VmConfig,
    pub resources: ResourcesConfig,
    pub pool: PoolConfig,
    pub vault: VaultConfig,
    pub rate_limit: RateLimitConfig,
    pub mcp_bridge: McpBridgeConfig,
    pub dashboard: DashboardConfig,
    /// The directories and files in use; derived from the sections above.
    pub paths: Paths,
}

impl Config {
    /// Parses and validates a configuration file's text. The empty text gives the defaults.
    pub fn parse(text: &str, dirs: &UserDirs) -> Result<Self, ConfigError> {
        let file: sections::File =
            toml::from_str(text).map_err(|error| ConfigError::Syntax { message: error.to_string() })?;
        validate::check(&file)?;
        let paths = Paths::resolve(&file, dirs);
        Ok(Self {
            server: file.server,
            storage: file.storage,
            image: file.image,
            network: file.network,
            vm: file.vm,
            resources: file.resources,
            pool: file.pool,
            vault: file.vault,
            rate_limit: file.rate_limit,
            mcp_bridge: file.mcp_bridge,
            dashboard: file.dashboard,
            paths,
        })
    }

    pub fn resource_limits(&self) -> ResourceLimits {
        ResourceLimits {
            max_vcpus: self.resources.max_vcpus,
            max_memory_mb: self.resources.max_memory_mb,
            max_disk_gb: self.resources.max_disk_gb,
        }
    }

    pub fn default_resources(&self) -> Resources {
        Resources {
            vcpus: self.resources.default_vcpus,
            memory_mb: self.resources.default_memory_mb,
            disk_gb: self.resources.default_disk_gb,
        }
    }

    pub fn subnet(&self) -> Subnet {
        Subnet { gateway: self.network.gateway_ip, prefix: self.network.subnet_prefix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn dirs() -> UserDirs {
        UserDirs {
            uid: 1000,
            home: "/home/u".into(),
            state_home: None,
            runtime_dir: Some("/run/user/1000".into()),
        }
    }

    #[test]
    fn empty_configuration_gives_the_defaults() {
        let config = Config::parse("", &dirs()).unwrap();
        assert_eq!(config.default_resources(), Resources { vcpus: 2, memory_mb: 512, disk_gb: 10 });
        assert_eq!(config.storage.base_image.as_str(), "debian-dev");
        assert!(!config.network.default_allow_internet);
        assert_eq!(config.paths.data, Path::new("/home/u/.local/state/agentiso"));
        assert_eq!(config.paths.run, Path::new("/run/user/1000/agentiso"));
    }

    #[test]
    fn root_uses_system_directories() {
        let root = UserDirs { uid: 0, home: "/root".into(), state_home: None, runtime_dir: None };
        let config = Config::parse("", &root).unwrap();
        assert_eq!(config.paths.data, Path::new("/var/lib/agentiso"));
        assert_eq!(config.paths.run, Path::new("/run/agentiso"));
    }

    #[test]
    fn bridge_is_used_only_on_request() {
        let chosen = |text: &str| Config::parse(text, &dirs()).unwrap().network.backend.chosen();
        assert_eq!(chosen(""), Backend::Gateway);
        assert_eq!(chosen("[network]\nbackend='auto'"), Backend::Gateway);
        assert_eq!(chosen("[network]\nbackend='bridge'"), Backend::Bridge);
    }

    #[test]
    fn paths_follow_a_configured_state_file() {
        let config = Config::parse("[server]\nstate_file = \"/tmp/x/state.json\"", &dirs()).unwrap();
        assert_eq!(config.paths.images, Path::new("/tmp/x/images"));
        assert_eq!(config.paths.run, Path::new("/tmp/x/run"));
    }

    #[test]
    fn unknown_and_retired_keys_are_tolerated() {
        let text = "[storage]\nzfs_pool='tank'\ndataset_prefix='a'\nbase_snapshot='latest'\n[server]\nnew_key=1\n[other]\nx=1";
        assert!(Config::parse(text, &dirs()).is_ok());
    }

    #[test]
    fn invalid_value_names_its_key() {
        let cases = [
            ("[resources]\nmax_vcpus=0", "max_vcpus"),
            ("[resources]\nmax_memory_mb=8", "max_memory_mb"),
            ("[resources]\ndefault_vcpus=9", "default_vcpus"),
            ("[network]\nsubnet_prefix=31", "subnet_prefix"),
            ("[network]\ndns_servers=[]", "dns_servers"),
            ("[network]\ngateway_ip='x'", "gateway_ip"),
            ("[network]\nbackend='slirp'", "backend"),
            ("[network]\nbridge_name=''", "bridge_name"),
            ("[network]\nbridge_name='../all'", "bridge_name"),
            ("[network]\nbridge_name='all'", "bridge_name"),
            ("[network]\nbridge_name='sixteen-letters-'", "bridge_name"),
            ("[vm]\nvsock_cid_start=2", "vsock_cid_start"),
            ("[vm]\ninit_mode='runit'", "init_mode"),
            ("[vm]\nboot_timeout_secs=0", "boot_timeout_secs"),
            ("[pool]\nmin_size=11", "pool.min_size"),
            ("[pool]\nmax_size=90", "max_total_vms"),
            ("[server]\nstate_file='relative.json'", "state_file"),
            ("[storage]\nbase_image='../x'", "base_image"),
            ("[resources]\nmax_vcpus='many'", "max_vcpus"),
            ("[vault]\nenabled=true\npath='notes'", "vault.path"),
            ("[vault]\nenabled=true\nextensions=[]", "vault.extensions"),
            ("[mcp_bridge]\nenabled=true\nbind_addr='127.0.0.1'", "mcp_bridge.bind_addr"),
            ("[mcp_bridge]\nenabled=true\nport=53", "mcp_bridge.port"),
            ("[mcp_bridge]\nenabled=true\nollama_port=3100", "mcp_bridge.ollama_port"),
            ("[mcp_bridge]\nenabled=true\nollama_port=53", "mcp_bridge.ollama_port"),
            ("[vault]\nenabled=true\nexclude_dirs=['a/b']", "vault.exclude_dirs"),
        ];
        for (text, key) in cases {
            let error = Config::parse(text, &dirs()).expect_err(text).to_string();
            assert!(error.contains(key), "{text:?} gave {error:?}");
        }
    }

    #[test]
    fn init_mode_openrc_means_system() {
        let config = Config::parse("[vm]\ninit_mode='openrc'", &dirs()).unwrap();
        assert_eq!(config.vm.init_mode, InitMode::System);
    }
}
