//! The example configuration that `init` puts beside the state: every setting that people change, commented out.

use crate::context::Context;
use crate::failure::Failure;

const NAME: &str = "config.example.toml";

/// Written anew each time: it is an example of this version, not a place for settings.
pub(crate) fn write(context: &Context) -> Result<(), Failure> {
    let path = context.config.paths.data.join(NAME);
    std::fs::write(&path, TEXT)
        .map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))
}

const TEXT: &str = r##"# An example for agentiso. Copy it, uncomment what you change, and use it with --config FILE or AGENTISO_CONFIG.
# docs/configuration.md lists every key.

[server]
# state_file = "/srv/agentiso/state.json"   # everything else is kept beside it
# tools = "full"                            # full, core, or names separated by commas

[storage]
# base_image = "debian-dev"                 # the image of workspaces that ask for none
# cache_dir = "/srv/agentiso/cache"         # images, kernels and templates, apart from the state

[image]
# suite = "bookworm"                        # the Debian release to build images from

[vm]
# accelerator = "auto"                      # auto, kvm or tcg
# jail = "required"                         # start no machine that has no jail
# boot_timeout_secs = 110
# init_mode = "fast"                        # fast: the agent is init; system: the image's own init runs

[resources]
# default_vcpus = 2
# default_memory_mb = 512
# default_disk_gb = 10
# max_workspaces = 50

[vault]
# enabled = true                            # notes on this host for agents
# path = "/srv/agentiso/notes"              # a directory that exists
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::config::{Config, UserDirs};

    /// With every setting uncommented.
    #[test]
    fn the_example_is_a_valid_configuration() {
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
