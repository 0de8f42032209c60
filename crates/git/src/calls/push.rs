//! `git push` of a branch to a remote.

use std::time::Duration;

use agentiso_core::paths::GuestPath;

use super::unlock;
use crate::redact::redact;
use crate::refs::{BranchName, Remote};
use crate::script::{Ran, Script};

#[derive(Clone, Debug)]
pub struct Push {
    pub path: GuestPath,
    pub remote: Remote,
    /// `None`: the branch that is checked out.
    pub branch: Option<BranchName>,
    pub force: bool,
    pub set_upstream: bool,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub branch: String,
    pub output: String,
}

impl Push {
    pub fn script(&self) -> Script {
        Script::new(&[include_str!("../scripts/push.sh")], self.timeout)
            .arg(self.path.as_str())
            .arg(self.remote.as_str())
            .arg(self.branch.as_ref().map(BranchName::as_str).unwrap_or_default())
            .flag(self.force)
            .flag(self.set_upstream)
    }

    /// Removes the locks of a push that was killed.
    pub fn unlock(&self) -> Script {
        unlock(&self.path)
    }

    pub fn read(ran: &Ran) -> Pushed {
        let text = String::from_utf8_lossy(&ran.stdout);
        let output = text.split_once('\n').map(|(_, output)| output).unwrap_or_default();
        Pushed { branch: ran.value("branch").unwrap_or_default(), output: redact(output.trim()) }
    }
}
