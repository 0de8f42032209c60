//! Prepares a golden workspace, which is set up once and forked often: it clones a repository, runs the setup commands
//! and takes a snapshot of the result.

use std::time::Duration;

use agentiso_core::lifecycle::PublicState;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::network::PolicyChange;
use agentiso_core::paths::GuestPath;
use agentiso_git::calls::{Before, CloneRepo};
use agentiso_git::{GitUrl, Trouble};
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::{GitError, OpError, PrepareError};
use crate::info::{CreateRequest, SnapshotInfo, WorkspaceInfo};
use crate::registry::Lifetime;
use crate::session::Guest;
use crate::vms::{ExecOutcome, ExecSpec, Progress};

/// Name of the snapshot, from the tool contract.
const GOLDEN: &str = "golden";

/// Directory of the repository.
const WORKSPACE: &str = "/workspace";

/// `NAME`, `NAME-2` … `NAME-6`, from the tool contract.
const MAX_NAMES: u32 = 6;

/// Bytes of a failed command's output that the error repeats.
const TAIL_BYTES: u64 = 4096;

#[derive(Clone, Debug)]
pub struct PrepareRequest {
    pub name: WorkspaceName,
    pub base_image: Option<ImageName>,
    pub git_url: Option<GitUrl>,
    /// Run by `/bin/sh -c`, one after the other.
    pub setup_commands: Vec<String>,
    /// Timeout of each command.
    pub timeout: Duration,
    /// Policy change while the workspace is prepared.
    pub network: PolicyChange,
    /// Whether the policy change stays afterwards. Otherwise the policy is as before.
    pub keep_network: bool,
}

impl PrepareRequest {
    /// The policy change if the client does not give one, from the tool contract.
    pub fn internet() -> PolicyChange {
        PolicyChange { allow_internet: Some(true), ..PolicyChange::default() }
    }
}

#[derive(Clone, Debug)]
pub enum Prepared {
    /// The workspace had the snapshot already; at most its policy was changed.
    Existing {
        workspace: WorkspaceInfo,
    },
    Made {
        workspace: WorkspaceInfo,
        snapshot: SnapshotInfo,
    },
}

/// The workspace that is prepared.
struct PrepareTarget {
    workspace: WorkspaceInfo,
    /// Created by this call, and destroyed if the call fails.
    is_new: bool,
}

impl Session {
    /// Prepares a workspace and takes the snapshot `golden` of it, or finds that this was done before. A workspace that
    /// this call created is destroyed if the call fails or its future is dropped.
    pub async fn prepare(&self, request: PrepareRequest, progress: &Progress) -> Result<Prepared, OpError> {
        self.refuse_when_closing()?;
        if let Some(image) = &request.base_image {
            self.image(image)?;
        }
        let progress = progress.clone();
        self.guarded(move |session, stop| async move {
            let _call = session.begin_call();
            let claim = session.shared().preparing.claim(request.name.clone());
            let _claim = claim.ok_or_else(|| PrepareError::UnderWay { name: request.name.clone() })?;
            let finding = stop.run_until_cancelled(session.find_or_create(&request, &progress));
            let found = finding.await.unwrap_or(Err(OpError::Cancelled))?;
            if is_golden(&found.workspace) {
                let workspace = match request.keep_network {
                    true => {
                        let wanted = WorkspaceRef::Id(found.workspace.id);
                        session.change_policy(&wanted, &request.network).await?
                    }
                    false => found.workspace,
                };
                return Ok(Prepared::Existing { workspace });
            }
            let made = session.make_ready(&request, &found, &progress, &stop).await;
            if !found.is_new {
                return made;
            }
            let kept = match made {
                // Even after the snapshot the client may have given up.
                Ok(made) => session.keep(&[found.workspace.id], &stop).await.map(|()| made),
                Err(error) => Err(error),
            };
            if kept.is_err() {
                session.destroy_unkept(&found.workspace).await;
            }
            kept
        })
        .await
    }

    /// Finds a workspace of that name that this session may adopt, or creates one under the first free name.
    async fn find_or_create(
        &self,
        request: &PrepareRequest,
        progress: &Progress,
    ) -> Result<PrepareTarget, OpError> {
        let mut refusal = OpError::NameTaken { name: request.name.clone() };
        for number in 1..=MAX_NAMES {
            let name = match number {
                1 => request.name.clone(),
                number => match WorkspaceName::parse(&format!("{}-{number}", request.name)) {
                    Ok(name) => name,
                    // Too long: there is no further name.
                    Err(_) => break,
                },
            };
            let wanted = WorkspaceRef::Name(name.to_string());
            if self.shared().state().registry.find(&wanted).is_err() {
                let base_image = request.base_image.clone();
                let create = CreateRequest { name: Some(name), base_image, ..CreateRequest::default() };
                let workspace = self.create_for(Lifetime::OneCall, create, progress).await?.info;
                return Ok(PrepareTarget { workspace, is_new: true });
            }
            // This call has no right to take a workspace from a connected session; try another name instead.
            match self.adopt(&wanted, false).await {
                Ok(adopted) => return Ok(PrepareTarget { workspace: adopted.info, is_new: false }),
                Err(error @ (OpError::OwnerActive { .. } | OpError::OwnerConnected { .. })) => {
                    refusal = error
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    async fn make_ready(
        &self,
        request: &PrepareRequest,
        found: &PrepareTarget,
        progress: &Progress,
        stop: &CancellationToken,
    ) -> Result<Prepared, OpError> {
        let wanted = WorkspaceRef::Id(found.workspace.id);
        if found.workspace.state == PublicState::Stopped {
            self.start(&wanted, progress).await?;
        }
        let guest = self.guest(&wanted).await?;
        let opening = self.shared().network.open_for_call(&found.workspace.id, &request.network)?;
        if let Some(url) = &request.git_url {
            progress.report("cloning the repository", None);
            clone_into_workspace(&guest, url, found.is_new, stop).await?;
        }
        let total = request.setup_commands.len();
        for (at, command) in request.setup_commands.iter().enumerate() {
            progress.report(&format!("setup command {} of {total}", at + 1), Some(at as f32 / total as f32));
            let spec = ExecSpec {
                timeout: Some(request.timeout),
                head_bytes: 0,
                tail_bytes: TAIL_BYTES,
                ..ExecSpec::shell(command)
            };
            let outcome =
                stop.run_until_cancelled(guest.exec(spec)).await.unwrap_or(Err(OpError::Cancelled))?;
            if let Some(ended) = failure(&outcome, request.timeout) {
                let name = found.workspace.name.clone();
                let (number, output) = (at + 1, output_tail(&outcome));
                return Err(PrepareError::Setup {
                    name,
                    number,
                    total,
                    command: command.clone(),
                    ended,
                    output,
                }
                .into());
            }
        }
        if stop.is_cancelled() {
            return Err(OpError::Cancelled);
        }
        drop(opening);
        let Ok(golden) = SnapshotName::parse(GOLDEN) else { unreachable!("{GOLDEN} is a name") };
        let made = self.snapshot(&wanted, golden, false, progress).await?;
        let workspace = match request.keep_network {
            true => self.change_policy(&wanted, &request.network).await?,
            false => made.workspace,
        };
        Ok(Prepared::Made { workspace, snapshot: made.snapshot })
    }
}

fn is_golden(workspace: &WorkspaceInfo) -> bool {
    workspace.snapshots.iter().any(|snapshot| snapshot.name.as_str() == GOLDEN)
}

/// A workspace that existed before may hold an earlier attempt: its directory is emptied, once.
async fn clone_into_workspace(
    guest: &Guest,
    url: &GitUrl,
    is_new: bool,
    stop: &CancellationToken,
) -> Result<(), OpError> {
    let Ok(path) = GuestPath::parse(WORKSPACE) else { unreachable!("{WORKSPACE} is a path") };
    let clone = CloneRepo { url: url.clone(), path, branch: None, depth: None };
    match guest.clone_repository(&clone, stop).await {
        Err(OpError::Git(GitError::Failed { trouble: Trouble::NotEmpty, .. })) if !is_new => {
            guest.git("emptying the working tree", &clone.undo(Before::Empty)).await?;
            guest.clone_repository(&clone, stop).await.map(drop)
        }
        cloned => cloned.map(drop),
    }
}

/// Describes how the command failed, or `None` if it succeeded.
fn failure(outcome: &ExecOutcome, timeout: Duration) -> Option<String> {
    if outcome.timed_out {
        return Some(format!("timed out after {} s", timeout.as_secs()));
    }
    match (outcome.exit_code, outcome.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("was killed by signal {signal}")),
        (None, None) => Some("ended in an unknown way".to_owned()),
    }
}

/// The end of both streams. Both are shown because either may explain the failure.
fn output_tail(outcome: &ExecOutcome) -> String {
    let said = |head: &[u8], tail: &[u8]| String::from_utf8_lossy(&[head, tail].concat()).trim().to_owned();
    let (out, err) = (&outcome.stdout, &outcome.stderr);
    [said(&out.head, &out.tail), said(&err.head, &err.tail)].join("\n").trim().to_owned()
}
