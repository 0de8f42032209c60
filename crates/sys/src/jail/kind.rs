//! The kinds of jails that a host can offer, with descriptions for people.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// The isolation of a program that was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jail {
    /// The daemon is root: namespaces, and a user of its own for every VM.
    Users,
    /// The daemon is an ordinary user: the same namespaces, created in a user namespace.
    UserNamespace,
    /// The daemon is an ordinary user without user namespaces: the kernel refuses files, sockets and signals.
    Landlock,
    /// The program runs as the daemon does.
    None,
}

impl Jail {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::UserNamespace => "user-namespace",
            Self::Landlock => "landlock",
            Self::None => "none",
        }
    }

    /// A description in one sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Users => {
                "every QEMU has a user, a root directory and namespaces of its own, and no capabilities"
            }
            Self::UserNamespace => {
                "every QEMU has a root directory and namespaces of its own inside a user namespace, and no capabilities"
            }
            Self::Landlock => {
                "every QEMU can open only its own files, and no sockets; this host does not allow user namespaces, so QEMU shares \
                 the daemon's namespaces, and a workspace's network ends with the daemon"
            }
            Self::None => "QEMU runs with all rights of the daemon's user",
        }
    }

    pub fn holds(self) -> bool {
        match self {
            Self::Users | Self::UserNamespace | Self::Landlock => true,
            Self::None => false,
        }
    }
}

impl fmt::Display for Jail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why this host has no jail.
#[derive(Debug, Error)]
pub enum JailError {
    #[error("vm.jail is set to off")]
    Off,
    #[error("this host cannot run a program in a jail: {0}")]
    Refused(String),
    /// The host lacked resources for the attempt; another attempt may succeed.
    #[error("could not test whether this host can run a program in a jail: {0}")]
    Undecided(String),
}

impl JailError {
    /// Advice for the person who runs the host.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Off => "set vm.jail to auto or required",
            Self::Undecided(_) => {
                "try again when the host has enough free processes, memory and file descriptors"
            }
            Self::Refused(_) => {
                "use Linux 6.7 or newer, or Linux 5.12 or newer with user namespaces allowed (sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or run the daemon as root"
            }
        }
    }
}
