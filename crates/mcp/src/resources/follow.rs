//! Subscriptions: notifies clients when a workspace changes and when a job ends.
//!
//! Changes come as events from the daemon and the guest; nothing is polled. Files and notes send no events, so they
//! cannot be subscribed to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentiso_core::names::WorkspaceRef;
use agentiso_daemon::{JobQuery, Session, Watch};
use rmcp::model::ErrorData;
use tokio_util::task::AbortOnDropHandle;

use super::offer::{self, Kind};
use super::uri::Uri;
use crate::profile::Profile;

/// Each subscription is a task, and for a job also a call that waits in a guest. No client follows this many resources.
pub(crate) const MAX: usize = 64;

/// The subscriptions of one client, with the tasks that notify it. They end with the session.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<String, AbortOnDropHandle<()>>>);

impl Subscriptions {
    /// Starts the task for an address, unless the address has one already.
    pub(crate) fn add(
        &self,
        address: &str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ErrorData> {
        let mut tasks = self.tasks();
        if tasks.contains_key(address) {
            return Ok(());
        }
        if tasks.len() >= MAX {
            let message =
                format!("this session is already subscribed to {MAX} resources; unsubscribe from one");
            return Err(ErrorData::invalid_request(message, None));
        }
        tasks.insert(address.to_owned(), AbortOnDropHandle::new(tokio::spawn(task)));
        Ok(())
    }

    pub(crate) fn remove(&self, address: &str) {
        self.tasks().remove(address);
    }

    /// Recovers the lock after a panic: every change is one insert or remove, so the map is consistent.
    fn tasks(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses an address that can be subscribed to.
pub(crate) fn parse(profile: &Profile, address: &str) -> Result<Uri, ErrorData> {
    let uri = offer::parse(profile, address)?;
    if !Kind::of(&uri).resource_type.can_be_followed() {
        let message = "files and notes cannot be subscribed to; workspaces and jobs can";
        return Err(ErrorData::invalid_params(message, None));
    }
    Ok(uri)
}

/// A followed resource.
#[derive(Debug)]
pub(crate) enum Followed {
    Workspace(Watch),
    Job(FollowedJob),
}

/// A job ends with its command or its VM. A restore may bring it back, so it is checked again whenever the workspace
/// changes.
#[derive(Debug)]
pub(crate) struct FollowedJob {
    session: Session,
    workspace: WorkspaceRef,
    id: u64,
    watch: Watch,
    runs: bool,
}

impl Followed {
    /// Follows a resource from now on; `None` if it sends no events.
    pub(crate) async fn begin(session: &Session, uri: Uri) -> Option<Self> {
        match uri {
            Uri::Workspace(workspace) => Some(Self::Workspace(session.watch(&workspace))),
            Uri::Job(workspace, id) => {
                let watch = session.watch(&workspace);
                let mut job = FollowedJob { session: session.clone(), workspace, id, watch, runs: false };
                job.runs = job.is_running().await;
                Some(Self::Job(job))
            }
            Uri::File(..) | Uri::Note(_) => None,
        }
    }

    /// Returns after the next change.
    pub(crate) async fn changed(&mut self) {
        match self {
            Self::Workspace(watch) => watch.changed().await,
            Self::Job(job) => job.changed().await,
        }
    }
}

impl FollowedJob {
    async fn changed(&mut self) {
        if self.runs {
            self.end().await;
            self.runs = false;
            return;
        }
        while !self.runs {
            self.watch.changed().await;
            self.runs = self.is_running().await;
        }
    }

    /// Returns when the job has ended, or can no longer be queried.
    async fn end(&self) {
        let ended = match self.session.guest(&self.workspace).await {
            Ok(guest) => guest.job_end(self.id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, workspace = %self.workspace, id = self.id, "a job ended with its VM");
        }
    }

    async fn is_running(&self) -> bool {
        let query = JobQuery { id: self.id, ..JobQuery::default() };
        match self.session.guest(&self.workspace).await {
            Ok(guest) => guest.poll_job(query).await.is_ok_and(|job| job.running),
            Err(_) => false,
        }
    }
}
