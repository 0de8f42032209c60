//! The example configuration that `init` writes beside the state file, with the usual settings commented out.

use crate::context::Context;
use crate::failure::Failure;

const NAME: &str = "config.example.toml";

/// Writes the example. It is replaced each time, because it is an example of this version and not a place for settings.
pub(crate) fn write(context: &Context) -> Result<(), Failure> {
    let path = context.config.paths.data.join(NAME);
    std::fs::write(&path, TEXT)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

const TEXT: &str = r##"# Example configuration. Copy it, uncomment what you change, and use it with --config FILE or AGENTISO_CONFIG.
# docs/configuration.md lists every key.

[server]
# state_file = "/srv/agentiso/state.json"   # all other files are kept next to it
# tools = "full"                            # full, core, or a comma-separated list

[storage]
# base_image = "debian-dev"                 # the default image
# cache_dir = "/srv/agentiso/cache"         # images, kernels and templates

[image]
# suite = "bookworm"                        # Debian release to build images from

[vm]
# accelerator = "auto"                      # auto, kvm or tcg
# jail = "required"                         # never start a VM without a jail
# boot_timeout_secs = 110
# init_mode = "fast"                        # fast: the agent is init; system: the image's own init runs

[resources]
# default_vcpus = 2
# default_memory_mb = 512
# default_disk_gb = 10
# max_workspaces = 50

[vault]
# enabled = true                            # shared notes for AI agents
# path = "/srv/agentiso/notes"              # must exist
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::config::{Config, UserDirs};

    /// Every setting is uncommented.
    #[test]
    fn example_configuration_is_valid() {
        let text: String = TEXT
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(setting) if setting.contains(" = ") => format!("{setting}\n"),
                Some(_) | None => format!("{line}\n"),
            })
            .collect();
        let dirs = UserDirs { uid: 1000, home: "/home/u".into(), state_home: None, runtime_dir: None };
        let config = Config::parse(&text, &dirs).unwrap();
        assert_eq!(config.paths.state_file.to_str(), Some("/srv/agentiso/state.json"));
        assert_eq!(config.resources, Config::parse("", &dirs).unwrap().resources);
    }
}
