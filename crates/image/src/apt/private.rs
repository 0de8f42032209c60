//! A private apt: it uses the host's archives, keys and proxies, but keeps package lists, cache and status in a working
//! directory. So any user can resolve and download packages without affecting the host's apt.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::command::{CommandError, Output, Tool};
use agentiso_sys::files::{FileContext, FileError};
use thiserror::Error;

use super::sources::{Archive, Key, parse_deb822, parse_list};
use crate::source::PackageSource;

/// Indexes have some 15 MiB and packages some 40 MiB; a slower line is not usable for a build.
const NETWORK_LIMIT: Duration = Duration::from_secs(900);
const LOCAL_LIMIT: Duration = Duration::from_secs(120);
const ETC_APT: &str = "/etc/apt";
const OS_RELEASE: &str = "/etc/os-release";

#[derive(Debug, Error)]
pub enum AptError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("this host is not a Debian release ({found}); set `mirror` and `suite` in the [image] section")]
    NotDebian { found: String },
    #[error(
        "the host's apt configuration has no archive of Debian {suite} with `main`; add one, or set `mirror` in the [image] section"
    )]
    NoArchive { suite: String },
    #[error("no package archive of Debian {suite} could be read; does the network work?\n{tail}")]
    Unreachable { suite: String, tail: String },
    #[error("`{word}` in the [image] section cannot be used as a package source")]
    BadSource { word: String },
}

/// Whether packages newer than the release may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backports {
    /// For kernels: newer is better.
    Use,
    /// For root filesystems: nothing is taken from backports unless requested, so their lists need not be fetched.
    Ignore,
}

/// A prepared working directory with fresh package lists.
#[derive(Debug)]
pub(crate) struct PrivateApt {
    config: PathBuf,
    dir: PathBuf,
    pub(crate) suite: String,
    pub(crate) archives: Vec<Archive>,
    /// The sources.list with the archives, credentials included; never leaves the working directory.
    pub(crate) sources_list: PathBuf,
    /// Proxy settings of the host's apt, in apt's syntax; empty if there are none.
    pub(crate) proxy_lines: String,
}

impl PrivateApt {
    /// Sets up `dir` (which exists and is private) and fetches the package lists.
    pub(crate) async fn prepare(
        dir: &Path,
        source: &PackageSource,
        backports: Backports,
    ) -> Result<Self, AptError> {
        let suite = match &source.suite {
            Some(suite) => checked(suite)?,
            None => host_suite()?,
        };
        let archives = match &source.mirror {
            Some(mirror) => vec![Archive {
                uri: checked(mirror)?,
                suite: suite.clone(),
                components: vec!["main".to_owned()],
                key: match &source.keyring {
                    Some(path) => Key::File(PathBuf::from(checked(&path.to_string_lossy())?)),
                    None => Key::HostDefault,
                },
                trusted: false,
            }],
            None => host_archives(&suite, backports)?,
        };
        if !archives.iter().any(|archive| archive.suite == suite) {
            return Err(AptError::NoArchive { suite });
        }
        let dump = Tool::new("apt-config", "apt", LOCAL_LIMIT).args(["dump", "Acquire"]).run().await?.stdout;
        let acquire = network_settings(&dump);
        let mut apt = Self {
            config: dir.join("apt.conf"),
            dir: dir.to_owned(),
            sources_list: dir.join("sources.list"),
            suite,
            archives,
            proxy_lines: acquire
                .lines()
                .filter(|line| line.contains("Proxy"))
                .fold(String::new(), |all, line| all + line + "\n"),
        };
        apt.write_config(&acquire)?;
        apt.write_sources()?;
        apt.update(source.mirror.is_some()).await?;
        Ok(apt)
    }

    /// The names of all packages that match a regular expression.
    pub(crate) async fn names(&self, pattern: &str) -> Result<Vec<String>, AptError> {
        let output =
            self.tool("apt-cache", LOCAL_LIMIT).args(["search", "--names-only", pattern]).run().await?;
        Ok(output.stdout.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }

    /// Downloads a package, verified by apt against the signed lists, and returns the file.
    pub(crate) async fn download(
        &self,
        package: &str,
        on_line: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PathBuf, AptError> {
        let target = self.dir.join("download");
        fs::create_dir_all(&target).at("create", &target)?;
        self.tool("apt-get", NETWORK_LIMIT)
            .args(["download", package])
            .current_dir(&target)
            .run_with_lines(on_line)
            .await?;
        let prefix = format!("{package}_");
        let missing =
            || FileError::new("find the downloaded package in", &target, std::io::ErrorKind::NotFound);
        for entry in fs::read_dir(&target).at("list", &target)? {
            let path = entry.at("list", &target)?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)) {
                return Ok(path);
            }
        }
        Err(missing().into())
    }

    /// The archives in a form that may be recorded: without credentials.
    pub(crate) fn public_sources(&self) -> Vec<String> {
        self.archives.iter().map(Archive::public_line).collect()
    }

    fn tool(&self, program: &'static str, limit: Duration) -> Tool {
        Tool::new(program, "apt", limit).env("APT_CONFIG", &self.config)
    }

    fn write_config(&self, acquire: &str) -> Result<(), AptError> {
        for part in ["state/lists/partial", "cache/archives/partial"] {
            let path = self.dir.join(part);
            fs::create_dir_all(&path).at("create", &path)?;
        }
        let dir = self.dir.display();
        // The host's configuration files are not read, because their hooks expect root. Only the network settings are
        // copied. The status file is empty, so that the packages installed on the host have no influence.
        let text = format!(
            "{acquire}\
             Dir::Etc::main \"/dev/null\";\n\
             Dir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::State \"{dir}/state\";\n\
             Dir::State::status \"/dev/null\";\n\
             Dir::Cache \"{dir}/cache\";\n\
             APT::Architecture \"amd64\";\n\
             APT::Architectures {{ \"amd64\"; }};\n\
             APT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             Acquire::Retries \"3\";\n"
        );
        write_private(&self.config, &text)?;
        Ok(())
    }

    fn write_sources(&self) -> Result<(), AptError> {
        let mut text = String::new();
        for (index, archive) in self.archives.iter().enumerate() {
            let key_file = match &archive.key {
                Key::Inline(key) => {
                    let path = self.dir.join(format!("key-{index}.asc"));
                    write_private(&path, key)?;
                    Some(path.display().to_string())
                }
                Key::HostDefault | Key::File(_) => None,
            };
            text.push_str(&archive.line(key_file.as_deref()));
            text.push('\n');
        }
        write_private(&self.sources_list, &text)?;
        Ok(())
    }

    /// Fetches the lists and drops archives that turn out not to be Debian's: another vendor may use the same suite and
    /// component names, and its packages must not get into the image. So a foreign archive that cannot be read does not
    /// fail the build.
    async fn update(&mut self, configured: bool) -> Result<(), AptError> {
        let updated = self.tool("apt-get", NETWORK_LIMIT).args(["update"]).run().await;
        let tail = match updated {
            Ok(Output { stderr, .. }) => stderr,
            Err(CommandError::Failed { tail, .. }) => tail,
            Err(other) => return Err(other.into()),
        };
        let listing = self
            .tool("apt-get", LOCAL_LIMIT)
            .args(["indextargets", "--format", "$(SITE) $(RELEASE) $(ORIGIN)", "Created-By: Packages"])
            .run()
            .await?
            .stdout;
        let before = self.archives.len();
        self.archives.retain(|archive| {
            let uri = super::redact(archive.uri.trim_end_matches('/'));
            listing.lines().any(|line| {
                let mut words = line.splitn(3, ' ');
                let site = words.next().unwrap_or_default();
                let release = words.next().unwrap_or_default();
                let origin = words.next().unwrap_or_default();
                super::redact(site.trim_end_matches('/')) == uri
                    && release == archive.suite
                    && (configured || matches!(origin, "Debian" | "Debian Backports"))
            })
        });
        if !self.archives.iter().any(|archive| archive.suite == self.suite) {
            return Err(AptError::Unreachable { suite: self.suite.clone(), tail: scrub(&tail) });
        }
        if self.archives.len() != before {
            self.write_sources()?;
        }
        Ok(())
    }
}

/// The network settings of the host's apt: proxies, certificates, protocol versions.
fn network_settings(dump: &str) -> String {
    let wanted = ["Acquire::http::", "Acquire::https::", "Acquire::socks::", "Acquire::ForceIPv"];
    let kept = dump.lines().filter(|line| wanted.iter().any(|prefix| line.starts_with(prefix)));
    kept.fold(String::new(), |all, line| all + line + "\n")
}

/// Removes credentials from error messages of apt, which repeat the URI they failed on.
fn scrub(text: &str) -> String {
    text.split(' ').map(super::redact).collect::<Vec<_>>().join(" ")
}

fn checked(word: &str) -> Result<String, AptError> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '[' | ']' | '"' | ';' | '#');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        Ok(word.to_owned())
    } else {
        Err(AptError::BadSource { word: super::redact(word) })
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), FileError> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .at("write", path)
}

/// The release of the host, which is the release whose archives it knows.
fn host_suite() -> Result<String, AptError> {
    let path = Path::new(OS_RELEASE);
    let text = fs::read_to_string(path).at("read", path)?;
    let value = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_matches('"').to_owned())
    };
    match (value("ID").as_deref(), value("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => checked(&codename),
        (id, _) => Err(AptError::NotDebian { found: id.unwrap_or("no ID in os-release").to_owned() }),
    }
}

fn host_archives(suite: &str, backports: Backports) -> Result<Vec<Archive>, AptError> {
    let base = Path::new(ETC_APT);
    let mut archives = Vec::new();
    let mut files = vec![base.join("sources.list")];
    let parts = base.join("sources.list.d");
    if let Ok(entries) = fs::read_dir(&parts) {
        let mut found: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        found.sort();
        files.extend(found);
    }
    for file in files {
        let parse = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => parse_list,
            Some("sources") => parse_deb822,
            Some(_) | None => continue,
        };
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            // Private mirrors often keep their credentials in a file that only root can read.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                tracing::warn!(file = %file.display(), "skipping an apt source that this user may not read");
                continue;
            }
            Err(error) => return Err(FileError::new("read", &file, error).into()),
        };
        for archive in parse(&text, suite) {
            let wanted = backports == Backports::Use || !archive.suite.ends_with("-backports");
            if wanted && !archives.contains(&archive) {
                archives.push(archive);
            }
        }
    }
    Ok(archives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_source_line_words_are_refused() {
        for bad in ["", "a b", "x\ny", "sid]", "-o", "a;b", "quo\"te"] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
        assert!(checked("https://mirror.example/debian").is_ok());
    }

    #[test]
    fn credentials_are_scrubbed_from_apt_errors() {
        assert_eq!(scrub("E: http://u:p@m.example/x failed"), "E: http://m.example/x failed");
    }
}
