//! Which jail a host can give, in words for people.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// What holds a program that was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jail {
    /// The daemon is root: namespaces, and a user of its own for every machine.
    Users,
    /// The daemon is an ordinary user: the same namespaces, made in a user namespace.
    UserNamespace,
    /// An ordinary user's host without user namespaces: the kernel refuses files, sockets and signals.
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

    /// What it is, in a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Users => {
                "every QEMU has a user, a root directory and namespaces of its own, and no capabilities"
            }
            Self::UserNamespace => {
                "every QEMU has a root directory and namespaces of its own inside a user namespace, and no capabilities"
            }
            Self::Landlock => {
                "every QEMU opens only its own files, and no sockets; this host gives no user namespaces, so it shares the \
                 daemon's, and a workspace's network ends with the daemon"
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

/// Why there is no jail on this host.
#[derive(Debug, Error)]
pub enum JailError {
    #[error("vm.jail is set to off")]
    Off,
    #[error("cannot start a program in a jail: {0}")]
    Refused(String),
    /// The host had no room for the attempt; another one may have another end.
    #[error("whether a program can be put into one was not found out: {0}")]
    Undecided(String),
}

impl JailError {
    /// What a person can do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Off => "set vm.jail to auto or required",
            Self::Undecided(_) => "try again when the host has processes, memory and files to spare",
            Self::Refused(_) => {
                "use Linux 6.7 or newer, or Linux 5.12 or newer with user namespaces allowed (sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), or run the daemon as root"
            }
        }
    }
}
