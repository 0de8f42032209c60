//! `git clone` into a workspace.

use std::time::Duration;

use agentiso_core::paths::GuestPath;

use super::READ_TIMEOUT;
use crate::refs::BranchName;
use crate::script::{Ran, Script};
use crate::url::GitUrl;

/// The timeout from the tool contract.
pub const CLONE_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct CloneRepo {
    pub url: GitUrl,
    /// The target directory. It must be absent or empty.
    pub path: GuestPath,
    pub branch: Option<BranchName>,
    pub depth: Option<u32>,
}

/// The state of the path before the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Absent,
    Empty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloned {
    /// `None`: the repository is empty.
    pub commit: Option<String>,
    /// `None`: no branch is checked out, because a tag was requested.
    pub branch: Option<String>,
}

impl CloneRepo {
    /// Checks whether the path is free; [`CloneRepo::before`] reads the result.
    pub fn look(&self) -> Script {
        Script::new(&[include_str!("../scripts/look.sh")], READ_TIMEOUT).arg(self.path.as_str())
    }

    pub fn before(ran: &Ran) -> Option<Before> {
        match ran.value("before").as_deref() {
            Some("absent") => Some(Before::Absent),
            Some("empty") => Some(Before::Empty),
            Some(_) | None => None,
        }
    }

    pub fn script(&self) -> Script {
        let branch = self.branch.as_ref().map(BranchName::as_str).unwrap_or_default();
        Script::new(&[include_str!("../scripts/clone.sh")], CLONE_TIMEOUT)
            .arg(self.url.as_str())
            .arg(self.path.as_str())
            .arg(branch)
            .arg(self.depth.map(|depth| depth.to_string()).unwrap_or_default())
    }

    pub fn read(ran: &Ran) -> Cloned {
        let value = |key| ran.value(key).filter(|value| !value.is_empty());
        Cloned { commit: value("commit"), branch: value("branch") }
    }

    /// Restores the path to its state before a clone that did not finish.
    pub fn undo(&self, before: Before) -> Script {
        let goes = match before {
            Before::Absent => true,
            Before::Empty => false,
        };
        Script::new(&[include_str!("../scripts/clear.sh")], READ_TIMEOUT).arg(self.path.as_str()).flag(goes)
    }
}
