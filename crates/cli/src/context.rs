//! The context of every command: the configuration, and the command that starts a daemon with the same configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agentiso_core::config::{Config, UserDirs};
use agentiso_daemon::control::DaemonCommand;
use agentiso_image::{Dirs, KernelSource, PackageSource};
use clap::Args;

use crate::failure::{Failure, USAGE};

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigArgument {
    /// Configuration file [default: built-in values]
    #[arg(long, short, global = true, value_name = "FILE", env = "AGENTISO_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Absolute, because the daemon that gets it has another working directory.
    config_path: Option<PathBuf>,
}

impl Context {
    pub(crate) fn load(argument: &ConfigArgument) -> Result<Self, Failure> {
        let given = argument.config.as_deref().filter(|path| !path.as_os_str().is_empty());
        let (text, config_path) = match given {
            Some(path) => (read(path)?, Some(absolute(path)?)),
            None => (String::new(), None),
        };
        let config = Config::parse(&text, &user_dirs()?).map_err(|error| {
            let place = given.map(|path| format!("{}: ", path.display())).unwrap_or_default();
            Failure::new(format!("{place}{error}"))
                .hint("docs/configuration.md lists every key with its default")
                .code(USAGE)
        })?;
        Ok(Self { config, config_path })
    }

    pub(crate) fn image_dirs(&self) -> Dirs {
        let paths = &self.config.paths;
        Dirs {
            images: paths.images.clone(),
            kernels: paths.kernels.clone(),
            initramfs: paths.initramfs.clone(),
        }
    }

    pub(crate) fn package_source(&self) -> PackageSource {
        let image = &self.config.image;
        PackageSource { mirror: image.mirror.clone(), suite: image.suite.clone(), keyring: None }
    }

    /// The configured kernel with the modules beside it, or the kernel of the Debian packages.
    pub(crate) fn kernel_source(&self) -> KernelSource {
        match &self.config.vm.kernel_path {
            None => KernelSource::Packages(self.package_source()),
            Some(vmlinuz) => {
                let modules = vmlinuz.with_file_name("modules");
                KernelSource::Files { vmlinuz: vmlinuz.clone(), modules: modules.is_dir().then_some(modules) }
            }
        }
    }

    /// The command that runs a daemon with this configuration.
    pub(crate) fn daemon_command(&self) -> Result<DaemonCommand, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find the path of this program: {error}")))?;
        let mut args = vec![OsString::from("daemon")];
        if let Some(path) = &self.config_path {
            args.push("--config".into());
            args.push(path.clone().into_os_string());
        }
        Ok(DaemonCommand { program, args })
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("cannot read the configuration {}: {error}", path.display())).code(USAGE)
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// The user's directories. Empty variables count as unset, as the XDG base directory specification says.
fn user_dirs() -> Result<UserDirs, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let uid = rustix::process::getuid().as_raw();
    let home = match variable("HOME") {
        Some(home) => home,
        None if uid == 0 => PathBuf::from("/root"),
        None => {
            return Err(Failure::new("HOME is not set").hint("set HOME to your home directory").code(USAGE));
        }
    };
    Ok(UserDirs {
        uid,
        home,
        state_home: variable("XDG_STATE_HOME").filter(|path| path.is_absolute()),
        runtime_dir: variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(path: &Path) -> Result<Context, Failure> {
        Context::load(&ConfigArgument { config: Some(path.to_owned()) })
    }

    #[test]
    fn configuration_error_names_file_and_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.toml");
        std::fs::write(&path, "[resources]\nmax_vcpus = 0\n").unwrap();
        let sentence = load(&path).unwrap_err().to_string();
        assert!(sentence.contains("agentiso.toml") && sentence.contains("resources.max_vcpus"), "{sentence}");
    }

    #[test]
    fn missing_configuration_file_is_named() {
        let sentence = load(Path::new("/nonexistent/agentiso.toml")).unwrap_err().to_string();
        assert!(sentence.contains("/nonexistent/agentiso.toml"), "{sentence}");
    }

    #[test]
    fn daemon_command_gets_absolute_configuration_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, "").unwrap();
        let command = load(&path).unwrap().daemon_command().unwrap();
        assert_eq!(command.args, [OsString::from("daemon"), "--config".into(), path.into_os_string()]);
    }
}
