//! Runs git scripts in a guest.

use agentiso_git::calls::{CloneRepo, Cloned};
use agentiso_git::{Ran, Script, Trouble};
use tokio_util::sync::CancellationToken;

use super::Guest;
use crate::error::{GitError, OpError};
use crate::vms::{Captured, ExecSpec};

/// Bytes kept of the end of a stream in addition to its beginning: an error message is usually last.
const TAIL_BYTES: u64 = 16 * 1024;

/// Bytes of git's output that an error repeats.
const MAX_WORDS: usize = 4000;

impl Guest {
    /// Runs a script to its end. Dropping the future kills it.
    pub(crate) async fn run_script(&self, script: &Script) -> Result<Ran, OpError> {
        let spec = ExecSpec {
            timeout: Some(script.timeout),
            head_bytes: script.max_output,
            tail_bytes: TAIL_BYTES,
            ..ExecSpec::shell(script.line())
        };
        let outcome = self.exec(spec).await?;
        let whole = |captured: &Captured| [&captured.head[..], &captured.tail[..]].concat();
        Ok(Ran {
            code: outcome.exit_code,
            timed_out: outcome.timed_out,
            stdout: outcome.stdout.head.to_vec(),
            stdout_total: outcome.stdout.total_bytes,
            stderr: whole(&outcome.stderr),
        })
    }

    /// Runs a script that must succeed. `what` names it in error messages.
    pub async fn git(&self, what: &'static str, script: &Script) -> Result<Ran, OpError> {
        let begun = jiff::Timestamp::now();
        let ran = self.run_script(script).await?;
        if ran.succeeded() {
            return Ok(ran);
        }
        let name = self.name().clone();
        if ran.timed_out {
            return Err(GitError::TimedOut { name, what, seconds: script.timeout.as_secs() }.into());
        }
        let trouble = Trouble::of(&ran);
        let refused = (trouble == Trouble::Unreachable).then(|| self.refused_since(begun)).flatten();
        Err(GitError::Failed { name, what, trouble, words: ran.words(MAX_WORDS), refused }.into())
    }

    /// Clones a repository. If it fails or is stopped, the path is restored to what it was before.
    pub(crate) async fn clone_repository(
        &self,
        wanted: &CloneRepo,
        stop: &CancellationToken,
    ) -> Result<Cloned, OpError> {
        const WHAT: &str = "git clone";
        let looked = self.git(WHAT, &wanted.look()).await?;
        let before = CloneRepo::before(&looked).ok_or_else(|| {
            let words = looked.words(MAX_WORDS);
            OpError::from(GitError::Answer { name: self.name().clone(), what: WHAT, words })
        })?;
        let script = wanted.script();
        let failure = match stop.run_until_cancelled(self.git(WHAT, &script)).await {
            Some(Ok(ran)) => return Ok(CloneRepo::read(&ran)),
            Some(Err(error)) => error,
            None => OpError::Cancelled,
        };
        // If something was put there after we looked, git did not begin, and the files are not ours to remove.
        let is_filled = matches!(failure, OpError::Git(GitError::Failed { trouble: Trouble::NotEmpty, .. }));
        if !is_filled && let Err(error) = self.run_script(&wanted.undo(before)).await {
            tracing::debug!(workspace = %self.name(), %error, "cannot remove the files of a failed clone");
        }
        Err(failure)
    }
}
