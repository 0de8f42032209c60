//! Runs mmdebstrap: Debian packages into a tar of a root filesystem, with or without root.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::command::{self, CommandError, Tool};
use agentiso_sys::files::{FileContext, FileError};
use thiserror::Error;

use crate::apt::PrivateApt;
use crate::assemble::EPOCH;
use crate::hash;
use crate::progress::{Phase, Progress, Reporter};
use crate::publish::{PublishError, remove_tree, require_space};
use crate::recipe::Recipe;

/// For the development image over a slow line, unpacked on a busy host.
const LIMIT: Duration = Duration::from_secs(3600);
const CLEAN_LIMIT: Duration = Duration::from_secs(300);
/// The first chroot user that mmdebstrap maps is not the user who runs it, so its directory must be open to others.
const OTHERS_MAY_PASS: u32 = 0o001;

#[derive(Debug, Error)]
pub enum BootstrapError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(
        "building an image without root needs `newuidmap`; install it with `apt-get install uidmap`, or run this once as root"
    )]
    NoUidMap,
    #[error(
        "building an image without root needs subordinate ids for {user}; as root run \
         `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}`, or run this once as root"
    )]
    NoSubIds { user: String },
    #[error(
        "this host does not let unprivileged users create user namespaces ({setting}); as root run `sysctl -w {remedy}`, or build the image once as root"
    )]
    NoUserNamespaces { setting: &'static str, remedy: &'static str },
}

/// The way in which mmdebstrap becomes root in its chroot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Root,
    Unshare,
}

/// Installs the recipe's packages and leaves the result in the tar `output`.
pub(crate) async fn run(
    recipe: Recipe,
    apt: &PrivateApt,
    work: &Path,
    output: &Path,
    report: Reporter<'_>,
) -> Result<(), BootstrapError> {
    let mode = pick_mode()?;
    let scratch = Scratch::prepare(mode, work).await?;
    require_space(&scratch.path, recipe.needed_bytes() / 2)?;
    let proxy = work.join("image-apt.conf");
    fs::write(&proxy, &apt.proxy_lines).at("write", &proxy)?;
    let proxy = (!apt.proxy_lines.is_empty()).then_some(proxy.as_path());
    let on_line = |line: &str| {
        let percent = percent_at(line);
        let detail = line.strip_prefix("I: ").unwrap_or(line);
        report(Progress { phase: Phase::Bootstrap, percent, detail: Some(detail.to_owned()) });
    };
    let tool = match mode {
        Mode::Root => Tool::with_own_mounts,
        // It has its own namespaces for everything.
        Mode::Unshare => Tool::new,
    };
    let result = tool("mmdebstrap", "mmdebstrap", LIMIT)
        .args(arguments(mode, recipe, &apt.suite, &apt.sources_list, proxy, output))
        .env("TMPDIR", &scratch.path)
        .env("SOURCE_DATE_EPOCH", EPOCH.to_string())
        .run_with_lines(&on_line)
        .await;
    scratch.remove().await?;
    result?;
    Ok(())
}

/// The command line of mmdebstrap.
fn arguments(
    mode: Mode,
    recipe: Recipe,
    suite: &str,
    sources: &Path,
    proxy: Option<&Path>,
    output: &Path,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec![
        match mode {
            Mode::Root => "--mode=root".into(),
            Mode::Unshare => "--mode=unshare".into(),
        },
        "--variant=minbase".into(),
        "--format=tar".into(),
        "--architectures=amd64".into(),
        format!("--include={}", recipe.packages().join(",")).into(),
        "--aptopt=Acquire::Languages \"none\"".into(),
        "--aptopt=APT::Install-Recommends \"false\"".into(),
    ];
    // These stay in the image, so that packages installed later bring no manuals either. Licences are kept.
    for option in [
        "path-exclude=/usr/share/man/*",
        "path-exclude=/usr/share/info/*",
        "path-exclude=/usr/share/locale/*",
        "path-include=/usr/share/locale/locale.alias",
        "path-exclude=/usr/share/doc/*",
        "path-include=/usr/share/doc/*/copyright",
        "path-exclude=/usr/share/lintian/*",
    ] {
        args.push(format!("--dpkgopt={option}").into());
    }
    if let Some(proxy) = proxy {
        let mut arg = OsString::from("--aptopt=");
        arg.push(proxy);
        args.push(arg);
    }
    args.push(suite.into());
    args.push(output.into());
    args.push(sources.into());
    args
}

/// The progress of mmdebstrap when it prints one of its headings; the shares were measured on a full build.
fn percent_at(line: &str) -> Option<u8> {
    [
        ("I: running apt-get update", 2),
        ("I: downloading packages with apt", 8),
        ("I: extracting archives", 15),
        ("I: installing essential packages", 25),
        ("I: downloading", 35),
        ("I: installing remaining packages", 45),
        ("I: cleaning package lists", 90),
        ("I: creating tarball", 93),
        ("I: success", 100),
    ]
    .into_iter()
    .find_map(|(start, percent)| line.starts_with(start).then_some(percent))
}

fn pick_mode() -> Result<Mode, BootstrapError> {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Ok(Mode::Root);
    }
    for (setting, bad, remedy) in [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ] {
        if fs::read_to_string(setting).is_ok_and(|value| value.trim() == bad) {
            return Err(BootstrapError::NoUserNamespaces { setting, remedy });
        }
    }
    if command::find("newuidmap").is_none() {
        return Err(BootstrapError::NoUidMap);
    }
    let raw = uid.as_raw();
    let user = user_name(&fs::read_to_string("/etc/passwd").unwrap_or_default(), raw);
    for file in ["/etc/subuid", "/etc/subgid"] {
        if !has_sub_ids(&fs::read_to_string(file).unwrap_or_default(), user.as_deref(), raw) {
            return Err(BootstrapError::NoSubIds { user: user.unwrap_or_else(|| raw.to_string()) });
        }
    }
    Ok(Mode::Unshare)
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

fn has_sub_ids(table: &str, user: Option<&str>, uid: u32) -> bool {
    table
        .lines()
        .filter_map(|line| line.split(':').next())
        .any(|owner| Some(owner) == user || owner.parse() == Ok(uid))
}

/// The directory in which mmdebstrap builds its chroot.
struct Scratch {
    path: PathBuf,
    mode: Mode,
}

impl Scratch {
    async fn prepare(mode: Mode, work: &Path) -> Result<Self, BootstrapError> {
        let path = match mode {
            Mode::Root => work.join("chroot"),
            // The user that the chroot's root is mapped to must be able to reach it, and working directories are
            // private. The name is derived from the working directory, so that the next run finds leftovers; the
            // working directory's lock protects it.
            Mode::Unshare => {
                let uid = rustix::process::geteuid().as_raw();
                let tag = hash::bytes(work.as_os_str().as_encoded_bytes());
                open_temp_dir().join(format!("agentiso-{uid}-{}", &tag[..16]))
            }
        };
        let scratch = Self { path, mode };
        scratch.clear().await?;
        let mode = match mode {
            Mode::Root => 0o700,
            Mode::Unshare => 0o711,
        };
        fs::DirBuilder::new().mode(mode).create(&scratch.path).at("create", &scratch.path)?;
        Ok(scratch)
    }

    async fn remove(self) -> Result<(), BootstrapError> {
        self.clear().await
    }

    async fn clear(&self) -> Result<(), BootstrapError> {
        let Ok(metadata) = self.path.symlink_metadata() else { return Ok(()) };
        let ours = metadata.uid() == rustix::process::geteuid().as_raw();
        match (self.mode, remove_tree(&self.path)) {
            (_, Ok(())) => Ok(()),
            // Files of a chroot that was not cleaned up belong to mapped ids, which only a namespace can remove.
            (Mode::Unshare, Err(PublishError::Fs(_))) if ours && metadata.is_dir() => {
                Tool::new("unshare", "util-linux", CLEAN_LIMIT)
                    .args(["--map-root-user", "--map-auto", "rm", "-rf", "--one-file-system", "--"])
                    .args([&self.path])
                    .run()
                    .await?;
                Ok(())
            }
            (Mode::Root | Mode::Unshare, Err(error)) => Err(error.into()),
        }
    }
}

/// The user's temporary directory if others can pass through it, else the one on disk that every system has.
fn open_temp_dir() -> PathBuf {
    let is_open = |path: &Path| {
        path.is_absolute()
            && path
                .ancestors()
                .all(|part| fs::metadata(part).is_ok_and(|metadata| metadata.mode() & OTHERS_MAY_PASS != 0))
    };
    let chosen = env::var_os("TMPDIR").map(PathBuf::from).filter(|path| is_open(path));
    chosen.unwrap_or_else(|| PathBuf::from("/var/tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mmdebstrap_arguments_are_as_agreed() {
        let args = arguments(
            Mode::Unshare,
            Recipe::DebianMinimal,
            "trixie",
            Path::new("/w/sources.list"),
            Some(Path::new("/w/proxy")),
            Path::new("/w/out.tar"),
        );
        let text: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(
            text,
            [
                "--mode=unshare",
                "--variant=minbase",
                "--format=tar",
                "--architectures=amd64",
                "--include=git,python3",
                "--aptopt=Acquire::Languages \"none\"",
                "--aptopt=APT::Install-Recommends \"false\"",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/info/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                "--dpkgopt=path-include=/usr/share/locale/locale.alias",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-include=/usr/share/doc/*/copyright",
                "--dpkgopt=path-exclude=/usr/share/lintian/*",
                "--aptopt=/w/proxy",
                "trixie",
                "/w/out.tar",
                "/w/sources.list",
            ]
        );
    }

    #[test]
    fn mmdebstrap_headings_give_the_percentage() {
        assert_eq!(percent_at("I: extracting archives..."), Some(15));
        assert_eq!(percent_at("Setting up git"), None);
    }

    #[test]
    fn subordinate_ids_are_found_by_name_or_number() {
        assert_eq!(
            user_name("root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/:/bin/sh\n", 1000).as_deref(),
            Some("me")
        );
        assert!(has_sub_ids("you:1:1\nme:100000:65536\n", Some("me"), 1000));
        assert!(has_sub_ids("1000:100000:65536\n", None, 1000));
        assert!(!has_sub_ids("you:1:1\n", Some("me"), 1000));
    }
}
