//! Clones, commits and pushes in workspaces, and merges between them.

use std::time::Instant;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::{WorkspaceName, WorkspaceRef};
use agentiso_core::paths::GuestPath;
use agentiso_git::calls::{CloneRepo, Cloned, Commit, Committed, Push, Pushed};
use agentiso_git::merge::{self, Merge, Outcome, Source, Strategy};
use agentiso_git::{Ran, Script};
use tokio_util::sync::CancellationToken;

use super::guest::MergeGuest;
use super::{Guest, Session};
use crate::error::{GitError, OpError};
use crate::metrics::MergeResult;

#[derive(Clone, Debug)]
pub struct MergeRequest {
    pub sources: Vec<WorkspaceRef>,
    pub target: WorkspaceRef,
    /// Path of the working tree in all of them.
    pub path: GuestPath,
    pub strategy: Strategy,
    /// The message of merge commits.
    pub message: Option<String>,
}

/// The outcome of each source.
#[derive(Clone, Debug)]
pub struct Merged {
    pub strategy: Strategy,
    pub sources: Vec<MergedSource>,
}

#[derive(Clone, Debug)]
pub struct MergedSource {
    pub id: WorkspaceId,
    pub name: WorkspaceName,
    pub outcome: Outcome,
}

impl Session {
    /// Clones a repository into a workspace. Dropping the future removes what was cloned.
    pub async fn clone_repository(&self, wanted: &WorkspaceRef, clone: CloneRepo) -> Result<Cloned, OpError> {
        let guest = self.guest(wanted).await?;
        self.guarded(|_, stop| async move { guest.clone_repository(&clone, &stop).await }).await
    }

    /// Commits in a workspace. Dropping the future kills git; no lock file is left.
    pub async fn commit(&self, wanted: &WorkspaceRef, commit: Commit) -> Result<Committed, OpError> {
        let ran = self.git_with_locks(wanted, "git commit", commit.script(), commit.unlock()).await?;
        Ok(Commit::read(&ran))
    }

    /// Pushes from a workspace. Dropping the future kills git; no lock file is left.
    pub async fn push(&self, wanted: &WorkspaceRef, push: &Push) -> Result<Pushed, OpError> {
        let ran = self.git_with_locks(wanted, "git push", push.script(), push.unlock()).await?;
        Ok(Push::read(&ran))
    }

    /// Runs a script, and removes the lock files of its git if that was killed.
    async fn git_with_locks(
        &self,
        wanted: &WorkspaceRef,
        what: &'static str,
        script: Script,
        unlock: Script,
    ) -> Result<Ran, OpError> {
        let guest = self.guest(wanted).await?;
        self.guarded(|_, stop| async move {
            let failure = match stop.run_until_cancelled(guest.git(what, &script)).await {
                Some(Ok(ran)) => return Ok(ran),
                Some(Err(error)) => error,
                None => OpError::Cancelled,
            };
            if matches!(failure, OpError::Cancelled | OpError::Git(GitError::TimedOut { .. }))
                && let Err(error) = guest.run_script(&unlock).await
            {
                tracing::debug!(workspace = %guest.name(), %error, "cannot remove the lock files of a killed git");
            }
            Err(failure)
        })
        .await
    }

    /// Merges the commits of running workspaces into another. A source that cannot be merged leaves the target
    /// unchanged. Dropping the future stops it between sources.
    pub async fn merge(&self, request: MergeRequest) -> Result<Merged, OpError> {
        let target = self.guest(&request.target).await?;
        let mut sources = Vec::with_capacity(request.sources.len());
        for source in &request.sources {
            sources.push(self.guest(source).await?);
        }
        self.guarded(
            |session, stop| async move { session.merge_guests(&request, target, sources, &stop).await },
        )
        .await
    }

    /// Must be awaited to its end.
    pub(super) async fn merge_guests(
        &self,
        request: &MergeRequest,
        target: Guest,
        sources: Vec<Guest>,
        stop: &CancellationToken,
    ) -> Result<Merged, OpError> {
        let begun = Instant::now();
        let merged = self.merge_uncounted(request, target, sources, stop).await;
        self.shared().metrics.merged(request.strategy, begun.elapsed(), counted_as(&merged));
        merged
    }

    async fn merge_uncounted(
        &self,
        request: &MergeRequest,
        target: Guest,
        sources: Vec<Guest>,
        stop: &CancellationToken,
    ) -> Result<Merged, OpError> {
        let mut seen = vec![target.id()];
        for source in &sources {
            if seen.contains(&source.id()) {
                return Err(GitError::NamedTwice { name: source.name().clone() }.into());
            }
            seen.push(source.id());
        }
        let name = target.name().clone();
        let claim = self.shared().merging.claim(target.id());
        let _claim = claim.ok_or_else(|| GitError::MergeUnderWay { name: name.clone() })?;
        let named: Vec<_> = sources.iter().map(|guest| (guest.id(), guest.name().clone())).collect();
        let merge_guest = |guest: Guest| {
            let name = guest.name().clone();
            let answer = |error| GitError::Answer { name, what: "git", words: format!("{error}") };
            MergeGuest::new(guest).map_err(answer)
        };
        let target = merge_guest(target)?;
        let sources = sources.into_iter().map(|guest| {
            let name = guest.name().to_string();
            Ok(Source { guest: merge_guest(guest)?, name })
        });
        let sources = sources.collect::<Result<Vec<_>, GitError>>()?;
        let MergeRequest { path, strategy, message, .. } = request.clone();
        let wanted = Merge { path, strategy, message };
        let outcomes = merge::merge(&wanted, &target, &sources, stop).await;
        let outcomes = outcomes.map_err(|error| GitError::of_target(&name, error))?;
        let sources = named.into_iter().zip(outcomes);
        let sources = sources.map(|((id, name), outcome)| MergedSource { id, name, outcome }).collect();
        Ok(Merged { strategy, sources })
    }

    /// The last flow that the workspace's network policy refused after `begun`.
    pub(crate) fn refused_since(&self, id: &WorkspaceId, begun: jiff::Timestamp) -> Option<String> {
        use agentiso_net::flow::log::FlowEvent;
        let records = self.shared().network.log(id)?.tail(RECENT);
        let refused = records.into_iter().rev().find(|record| record.event == FlowEvent::Refused)?;
        let message = refused.message.unwrap_or_else(|| refused.address.to_string());
        (refused.at >= begun).then_some(message)
    }
}

/// Number of records that a failed connection may have made.
const RECENT: usize = 20;

fn counted_as(result: &Result<Merged, OpError>) -> MergeResult {
    let is_whole = |merged: &Merged| {
        merged.sources.iter().all(|source| matches!(source.outcome, Outcome::Merged { .. }))
    };
    match result {
        Ok(merged) if is_whole(merged) => MergeResult::Whole,
        Ok(_) => MergeResult::Partial,
        Err(_) => MergeResult::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_succeeds_only_with_every_source() {
        let source = |outcome| MergedSource {
            id: WorkspaceId::random(),
            name: WorkspaceName::parse("a").unwrap(),
            outcome,
        };
        let merged = || source(Outcome::Merged { commits: 1, note: None });
        let failed = source(Outcome::Failed { error: "does not fit".to_owned() });
        let of = |sources| counted_as(&Ok(Merged { strategy: Strategy::CherryPick, sources }));
        assert_eq!(of(vec![merged(), merged()]), MergeResult::Whole);
        assert_eq!(of(vec![merged(), failed]), MergeResult::Partial);
        assert_eq!(counted_as(&Err(OpError::Cancelled)), MergeResult::Failed);
    }
}
