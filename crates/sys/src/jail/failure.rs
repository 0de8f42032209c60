//! The message of a child that could not start its program: the failed step and the error.

use std::fmt;
use std::io;

/// The steps of a child between `clone` and `exec`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Step {
    Detach = 1,
    Group,
    Maps,
    Private,
    Source,
    Root,
    Place,
    Pivot,
    Limits,
    User,
    Privileges,
    Rules,
    Filter,
    Exec,
}

const ALL: [Step; 14] = [
    Step::Detach,
    Step::Group,
    Step::Maps,
    Step::Private,
    Step::Source,
    Step::Root,
    Step::Place,
    Step::Pivot,
    Step::Limits,
    Step::User,
    Step::Privileges,
    Step::Rules,
    Step::Filter,
    Step::Exec,
];

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detach => "leaving its session",
            Self::Group => "entering its cgroup",
            Self::Maps => "mapping its user",
            Self::Private => "making its mounts private",
            Self::Source => "opening the files it may see",
            Self::Root => "creating its root directory",
            Self::Place => "mounting the files it may see",
            Self::Pivot => "changing its root directory",
            Self::Limits => "setting its limits",
            Self::User => "switching to its user",
            Self::Privileges => "dropping its privileges",
            Self::Rules => "applying its Landlock rules",
            Self::Filter => "filtering its system calls",
            Self::Exec => "starting its program",
        })
    }
}

/// A failed step with the kernel's error number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(pub(crate) Step, pub(crate) i32);

pub(crate) const MESSAGE: usize = 8;

impl Failed {
    pub(crate) fn to_bytes(self) -> [u8; MESSAGE] {
        let mut bytes = [0; MESSAGE];
        bytes[..4].copy_from_slice(&(self.0 as u32).to_ne_bytes());
        bytes[4..].copy_from_slice(&self.1.to_ne_bytes());
        bytes
    }

    /// `None` for bytes that no child of ours writes.
    pub(crate) fn from_bytes(bytes: [u8; MESSAGE]) -> Option<(Step, io::Error)> {
        let (step, errno) = bytes.split_at(4);
        let step = u32::from_ne_bytes(step.try_into().ok()?);
        let errno = i32::from_ne_bytes(errno.try_into().ok()?);
        let step = ALL.into_iter().find(|known| *known as u32 == step)?;
        Some((step, io::Error::from_raw_os_error(errno)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jail_failure_steps_round_trip() {
        for step in ALL {
            let (read, error) = Failed::from_bytes(Failed(step, libc::EPERM).to_bytes()).unwrap();
            assert_eq!((read, error.raw_os_error()), (step, Some(libc::EPERM)));
        }
        assert!(Failed::from_bytes([0xff; MESSAGE]).is_none());
    }
}
