//! Telling clients that a resource changed: a workspace whenever it is another than before, a job when it ends.
//!
//! The daemon and the guest tell; nothing is asked again and again. Files and notes tell nobody, so they cannot be
//! subscribed to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentiso_core::names::WorkspaceRef;
use agentiso_daemon::{JobQuery, Session, Watch};
use rmcp::model::ErrorData;
use tokio_util::task::AbortOnDropHandle;

use super::offer::{self, Kind};
use super::uri::Uri;
use crate::profile::Profile;

/// Each subscription is a task, and each of a job a call that waits in a guest. No client looks at so many.
pub(crate) const MAX: usize = 64;

/// What one client subscribed to, with the tasks that tell it. They end with the session.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<String, AbortOnDropHandle<()>>>);

impl Subscriptions {
    /// Keeps the task that tells about an address. One address is told about once.
    pub(crate) fn add(
        &self,
        address: &str,
        telling: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ErrorData> {
        let mut tasks = self.tasks();
        if tasks.contains_key(address) {
            return Ok(());
        }
        if tasks.len() >= MAX {
            let message = format!("{MAX} resources are subscribed to already; unsubscribe from one");
            return Err(ErrorData::invalid_request(message, None));
        }
        tasks.insert(address.to_owned(), AbortOnDropHandle::new(tokio::spawn(telling)));
        Ok(())
    }

    pub(crate) fn remove(&self, address: &str) {
        self.tasks().remove(address);
    }

    /// A panic elsewhere cannot have left it torn: every change is one insert or remove.
    fn tasks(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads an address that can be subscribed to.
pub(crate) fn parse(profile: &Profile, address: &str) -> Result<Uri, ErrorData> {
    let uri = offer::parse(profile, address)?;
    if !Kind::of(&uri).what.tells() {
        let message =
            "files and notes tell nobody when they change; workspaces and jobs can be subscribed to";
        return Err(ErrorData::invalid_params(message, None));
    }
    Ok(uri)
}

/// Something that can be subscribed to, over time.
#[derive(Debug)]
pub(crate) enum Followed {
    Workspace(Watch),
    Job(FollowedJob),
}

/// A job ends with its command or its machine. A restore may bring it back, so it is looked at again whenever the
/// workspace changes.
#[derive(Debug)]
pub(crate) struct FollowedJob {
    session: Session,
    workspace: WorkspaceRef,
    id: u64,
    watch: Watch,
    runs: bool,
}

impl Followed {
    /// Follows it from now on; `None` if its changes are told to nobody.
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

    /// Returns when it has ended, or cannot be asked about any more.
    async fn end(&self) {
        let ended = match self.session.guest(&self.workspace).await {
            Ok(guest) => guest.job_end(self.id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, workspace = %self.workspace, id = self.id, "a job ended with its machine");
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
