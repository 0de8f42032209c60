//! Decides the hint for each error of the engine.

use agentiso_core::lifecycle::Refusal;
use agentiso_core::team::{MailError, TeamRefusal};
use agentiso_daemon::mail::MailStoreError;
use agentiso_daemon::vms::{AgentFailure, BootFailure, CarryFailure, SnapshotFailure};
use agentiso_daemon::{
    ForwardError, GitError, McpBridgeError, OpError, PrepareError, SwarmError, TAKEOVER_AFTER, TeamError,
    TransferError,
};
use agentiso_git::Trouble;
use agentiso_vault::VaultError;
use agentiso_vault::board::BoardError;

use super::Hint;

pub(crate) fn of(error: &OpError) -> Option<Hint> {
    let hint: Hint = match error {
        OpError::NotFound { known, .. } if known.is_empty() => {
            "there are no workspaces; create one with `workspace_create`".into()
        }
        OpError::NotFound { known, .. } => {
            Hint::new(format!("`workspace_list` shows all workspaces; there are: {}", known.join(", ")))
        }
        OpError::NotOwned { idle_secs: None, .. } => {
            "take it over with `workspace_adopt`, then repeat the call".into()
        }
        OpError::NotOwned { idle_secs: Some(idle_secs), .. } => match takeover_in(*idle_secs) {
            0 => Hint::new(
                "use a workspace of your own, or take it over with `workspace_adopt` and force: true, then repeat \
                 the call",
            )
            .or("use a workspace of your own"),
            left => Hint::new(format!(
                "use a workspace of your own; if that session makes no call for {left} s more, `workspace_adopt` \
                 with force: true takes it over"
            )),
        },
        OpError::OwnerActive { idle_secs, .. } => {
            let left = takeover_in(*idle_secs);
            Hint::new(format!(
                "use a workspace of your own; if that session makes no call for {left} s more, force: true takes it \
                 over"
            ))
        }
        OpError::OwnerConnected { .. } => {
            "use a workspace of your own; if that session does not need it any more, repeat the call with force: true"
                .into()
        }
        OpError::TooManyForwards { .. } => "remove one with `port_forward` (action remove)".into(),
        OpError::WrongState { refusal, .. } => of_refusal(*refusal),
        OpError::NameTaken { .. } => {
            Hint::new("choose another name, or look at that workspace with `workspace_info`").or("choose another name")
        }
        OpError::TooManyWorkspaces { .. } | OpError::TooManyVms { .. } | OpError::Quota(_) => {
            "destroy workspaces that are no longer needed with `workspace_destroy`".into()
        }
        OpError::RateLimited(_) => {
            "wait for that time; to make fewer calls, use one workspace for many commands".into()
        }
        OpError::HostMemory(_) => "ask for less memory_mb, or stop or destroy another workspace".into(),
        OpError::NoAddress(_) => "destroy workspaces that are no longer needed".into(),
        OpError::Policy(_) => "correct the fields named above; the others keep their values".into(),
        OpError::Forward { source: ForwardError::Exists { .. }, .. } => {
            Hint::new("use it as it is, or remove it first with `port_forward` (action remove)")
                .or("use it as it is")
        }
        OpError::Forward { .. } | OpError::OwnPort { .. } => {
            "omit host_port to get a free port, or give another one from 1024 on".into()
        }
        OpError::NoForward { .. } => "`workspace_info` shows the ports that are forwarded".into(),
        OpError::NoSpace { .. }
        | OpError::HostSpace(_)
        | OpError::Ledger(_)
        | OpError::Snapshot { source: SnapshotFailure::NoSpace { .. }, .. } => {
            "free space on the host's disk, or delete snapshots or workspaces that are no longer needed".into()
        }
        OpError::DiskQuota { .. } | OpError::TooManySnapshots { .. } => {
            Hint::new("delete snapshots that are no longer needed with `snapshot` (action delete)")
                .or("delete snapshots that are no longer needed with `snapshot_delete`")
        }
        OpError::SnapshotNotFound { known, .. } if known.is_empty() => {
            Hint::new("the workspace has no snapshots; take one with `snapshot` (action create)")
                .or("the workspace has no snapshots; take one with `snapshot_create`")
        }
        OpError::SnapshotNotFound { known, .. } => {
            Hint::new(format!("`snapshot` (action list) shows all; there are: {}", known.join(", ")))
        }
        OpError::SnapshotNameTaken { .. } => "choose another name, or delete that snapshot first".into(),
        OpError::SnapshotInUse { .. } => "destroy the forks first with `workspace_destroy`".into(),
        OpError::Snapshot { source: SnapshotFailure::Failed { .. }, .. } => {
            "try again; `workspace_logs` shows the VM's messages".into()
        }
        OpError::SetupFailed { .. } => {
            Hint::new("correct the command, or fork without it and run it with `exec` to see its output")
                .or("correct the command, or fork without it")
        }
        OpError::RelativePath { .. } => "give a path that begins with /".into(),
        OpError::Export { source, .. } | OpError::Import { source, .. } => match source {
            CarryFailure::NoSpace { .. } => "free space on the host's disk".into(),
            CarryFailure::Exists { .. } => "choose another name, or allow replacing it".into(),
            CarryFailure::Unusable { .. } => "export the snapshot again, then copy the new file".into(),
            CarryFailure::Failed { .. } => return None,
        },
        OpError::NoImage { known, .. } if known.is_empty() => "run `agentiso init` on the host".into(),
        OpError::NoImage { name, .. } => {
            Hint::new(format!("use one of these, or run `agentiso image build {name}` on the host"))
        }
        OpError::BrokenImage { name, .. } => {
            Hint::new(format!("run `agentiso image build {name} --force` on the host"))
        }
        OpError::Boot { source: BootFailure::Lasting { .. }, .. } => {
            "remove the cause that the message names before you try again".into()
        }
        OpError::Boot { .. } => "try again; if the workspace exists, `workspace_logs` shows its console".into(),
        OpError::HostUnfit { .. } => "run `agentiso check` on the host; it names what is missing".into(),
        OpError::VmDied { .. } => {
            "`workspace_logs` shows its last output; `workspace_start` starts it again".into()
        }
        OpError::Erase { .. } => "remove the cause, then try again".into(),
        OpError::Busy { .. } | OpError::StillAttaching { .. } => "try again in a moment".into(),
        OpError::OutOfReach { .. } => {
            "the daemon keeps trying; stopping the workspace kills its VM without asking the guest".into()
        }
        OpError::VaultDisabled => "set vault.enabled and vault.path in the configuration on the host".into(),
        OpError::Guest { source: AgentFailure::Silent { .. } | AgentFailure::Broken { .. }, .. } => {
            "look at `workspace_logs`; `workspace_stop` and `workspace_start` restart the VM".into()
        }
        OpError::Guest { source: AgentFailure::Unsupported { .. }, .. } => {
            "restart the VM with `workspace_stop` and `workspace_start`, which brings the current agent but ends all \
             running processes"
                .into()
        }
        OpError::Git(error) => return of_git(error),
        OpError::Prepare(error) => of_prepare(error),
        OpError::Swarm(error) => of_swarm(error),
        OpError::McpBridge(error) => of_bridge(error),
        OpError::Team(error) => return of_team(error),
        OpError::Vault(error) => return of_vault(error),
        OpError::Board(error) => return of_board(error),
        OpError::Transfer { source, .. } => return of_transfer(source),
        // No tool reaches the quarantine.
        OpError::Quarantine(_)
        | OpError::OutOfRange(_)
        | OpError::Guest { source: AgentFailure::Refused { .. }, .. }
        | OpError::Logs { .. }
        | OpError::Cancelled
        | OpError::ShuttingDown => return None,
    };
    Some(hint)
}

/// The seconds that an owner must stay silent before force helps.
fn takeover_in(idle_secs: u64) -> u64 {
    TAKEOVER_AFTER.as_secs().saturating_sub(idle_secs)
}

fn of_refusal(refusal: Refusal) -> Hint {
    match refusal {
        Refusal::NotRunning => "start it with `workspace_start`".into(),
        Refusal::AlreadyRunning => {
            Hint::new("use it as it is, or stop it first with `workspace_stop`").or("use it as it is")
        }
        Refusal::BeingCreated | Refusal::BeingStarted | Refusal::BeingStopped | Refusal::BeingRestored => {
            "try again in a moment; `workspace_info` shows its state".into()
        }
        Refusal::Suspended => {
            "free space on the host's disk or delete snapshots; the workspace then resumes by itself".into()
        }
        Refusal::BeingDestroyed => "create another with `workspace_create`".into(),
    }
}

fn of_git(error: &GitError) -> Option<Hint> {
    Some(match error {
        GitError::Failed { refused: Some(_), .. } => {
            "use `network_policy` with allow_domains to allow that host, or with allow_internet:true to allow everything"
                .into()
        }
        GitError::Failed { trouble, .. } => return of_trouble(*trouble),
        GitError::TimedOut { .. } => return of_trouble(Trouble::TimedOut),
        GitError::Answer { .. } => return None,
        GitError::Target { code, .. } => match code.as_str() {
            "no_commit" => "make a first commit there with `git_commit`".into(),
            "no_branch" => Hint::new("check out a branch there with `exec`, or use another strategy")
                .or("use another strategy"),
            "uncommitted" => Hint::new("commit them with `git_commit`, or stash them with `exec`: git stash")
                .or("commit them with `git_commit`"),
            _ => "`git_status` shows the details".into(),
        },
        GitError::MergeUnderWay { .. } => "try again when it is done".into(),
        GitError::NamedTwice { .. } => "name every workspace once".into(),
    })
}

fn of_trouble(trouble: Trouble) -> Option<Hint> {
    Some(match trouble {
        Trouble::NoGit => Hint::new("install git in the workspace with `exec`, or use an image that has it")
            .or("use an image that has git"),
        Trouble::NoDirectory => "`file_list` shows what a directory holds; path must be absolute".into(),
        Trouble::NotARepository => "`git_clone` clones a repository; `exec` with `git init` makes one".into(),
        Trouble::NotEmpty => Hint::new("choose another path, or empty that directory with `exec` first")
            .or("choose another path"),
        Trouble::Authentication => {
            "the remote wants credentials: put a token into the URL (https://TOKEN@host/…), or a key into /root/.ssh"
                .into()
        }
        Trouble::HostKey => {
            "put the host's key into /root/.ssh/known_hosts first, for instance with ssh-keyscan".into()
        }
        Trouble::NoRemote => {
            "`exec` with `git remote -v` shows the remotes, `git remote add origin URL` adds one".into()
        }
        Trouble::NotFound => "check the URL; private repositories may need credentials in it".into(),
        Trouble::Unreachable => {
            Hint::new("check the host's name, and `network_policy`: workspaces reach only what it allows")
                .or("check the host's name; workspaces reach only what their network policy allows")
        }
        Trouble::NoSuchBranch => "check the branch's name; omit it for the default or the current one".into(),
        Trouble::NoBranch => Hint::new("no branch is checked out: name one, or check one out with `exec`")
            .or("no branch is checked out: name one"),
        Trouble::NonFastForward => Hint::new(
            "the remote has commits that are missing here: fetch and merge or rebase them with `exec`, or push with \
             force:true to overwrite them",
        )
        .or("the remote has commits that are missing here: push with force:true to overwrite them"),
        Trouble::Rejected => "the remote's own rules refused it; its message says why".into(),
        Trouble::Locked => {
            "another git command is running there, or was killed; if none runs, remove .git/index.lock".into()
        }
        Trouble::NoSpace => "delete files in the workspace, or create one with a larger disk_gb".into(),
        Trouble::ForbiddenProtocol => {
            "use a URL with https, http, git or ssh, for submodules too".into()
        }
        Trouble::TimedOut => "raise timeout_secs, or fetch less: a depth or a single branch".into(),
        Trouble::Other => return None,
    })
}

fn of_prepare(error: &PrepareError) -> Hint {
    match error {
        PrepareError::UnderWay { .. } => "try again when it is done; the call then returns at once".into(),
        PrepareError::Setup { .. } => Hint::new(
            "correct the command and prepare again; to try it out, use `workspace_create` and `exec`",
        ),
    }
}

fn of_swarm(error: &SwarmError) -> Hint {
    match error {
        SwarmError::TaskCount(_) => "split the work into several calls".into(),
        SwarmError::Parallel(_) => "omit max_parallel for the default".into(),
        SwarmError::SameName(_) => "give every task a name of its own".into(),
        SwarmError::QueryCount(_) => "give fewer queries: those that the tasks need most".into(),
        SwarmError::QueryLength(_) => "ask for a few words, or for a note by its path".into(),
        SwarmError::NoWorker(_) => "remove the cause and call again; this swarm left nothing behind".into(),
    }
}

fn of_bridge(error: &McpBridgeError) -> Hint {
    match error {
        McpBridgeError::Disabled => {
            "set mcp_bridge.enabled = true in the configuration on the host, or omit mcp_bridge".into()
        }
        McpBridgeError::Elsewhere { .. } => "omit workspace_id: it is always this workspace".into(),
        McpBridgeError::NotFromInside => "the client that created this workspace can do it".into(),
        McpBridgeError::Token(_) => "the daemon's log has the details".into(),
    }
}

fn of_team(error: &TeamError) -> Option<Hint> {
    Some(match error {
        TeamError::Refused(refusal) => match refusal {
            TeamRefusal::NotFound { known, .. } if known.is_empty() => {
                "there are no teams; create one with `team` (action create)".into()
            }
            TeamRefusal::NotFound { known, .. } => Hint::new(format!("there are: {}", known.join(", "))),
            TeamRefusal::NameTaken(_) => {
                Hint::new("choose another name, or destroy that team first with `team` (action destroy)")
                    .or("choose another name")
            }
            TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_) => "give each member a name of its own".into(),
            TeamRefusal::TooLong { .. } => {
                "put the rest into a note, and name the note in the description".into()
            }
            TeamRefusal::TooMany { .. } => {
                "ask for fewer roles, or for a larger max_vms of the topmost team".into()
            }
            TeamRefusal::TooDeep { .. } => "create it below a team that is closer to the topmost".into(),
            TeamRefusal::Going(_) => "create another team".into(),
            TeamRefusal::BeingMade(_) => "try again in a moment".into(),
        },
        TeamError::Mail(MailError::NotAMember { .. }) => "`team` (action status) shows the members".into(),
        TeamError::Mail(MailError::TooLong(_)) | TeamError::Store(MailStoreError::TooLong) => {
            "put it into a note or a file, and send its path".into()
        }
        TeamError::Mail(MailError::TooManyTasks { .. }) => {
            "collect the results with `team` (action receive), then send it again".into()
        }
        TeamError::OwnerActive { .. } => {
            "wait until its session has ended, or use action destroy with force: true once it has made no call for 60 s"
                .into()
        }
        TeamError::OwnerConnected { .. } => {
            "create a team of your own; if that session does not need this one any more, use action destroy with \
             force: true"
                .into()
        }
        TeamError::Member { source, .. } => return of(source),
        TeamError::Left { .. } => "remove the cause, then try again".into(),
        TeamError::Store(MailStoreError::NoSpace { .. }) => "free space on the host's disk".into(),
        TeamError::Store(MailStoreError::Closed) => "create another team".into(),
        TeamError::Store(MailStoreError::Io { .. } | MailStoreError::Full { .. }) => {
            "look at that file on the host, then try again".into()
        }
    })
}

fn of_vault(error: &VaultError) -> Option<Hint> {
    Some(match error {
        VaultError::Root { .. } => "create the directory that vault.path in the configuration names".into(),
        VaultError::Path { .. } => "give a path relative to the vault, such as \"notes/today.md\"".into(),
        VaultError::NotFound { .. } => "`vault` with action list or search shows what there is".into(),
        VaultError::Exists { .. } => "choose another path, or allow it to be replaced with overwrite".into(),
        VaultError::IsFolder { .. } => "`vault` with action list shows what a folder holds".into(),
        VaultError::NotFolder { .. }
        | VaultError::NotRegular { .. }
        | VaultError::Link { .. }
        | VaultError::Excluded { .. } => "choose another path".into(),
        VaultError::TooLarge { .. } => "split the note into several".into(),
        VaultError::Binary { .. } => "the vault reads and edits text only".into(),
        VaultError::Frontmatter { .. } => {
            "correct the YAML between the --- lines with write or replace".into()
        }
        VaultError::Pattern { .. } => "correct the expression, or omit regex to search for plain text".into(),
        VaultError::Busy { .. } => "try again in a moment".into(),
        VaultError::FileSystem { .. } => "keep the vault on ext4, XFS, Btrfs, ZFS 2.2 or tmpfs".into(),
        VaultError::NoSpace { .. } => "free space on the host's disk".into(),
        VaultError::Io { .. } => return None,
    })
}

fn of_board(error: &BoardError) -> Option<Hint> {
    Some(match error {
        BoardError::TaskId { .. } | BoardError::NoTask { .. } => {
            "list the tasks to see which there are".into()
        }
        BoardError::Broken { .. } => Hint::new("correct the note of the task with `vault`")
            .or("correct the note of the task on the host"),
        BoardError::WrongStatus { .. } => "list the tasks to see their status".into(),
        BoardError::NotOwner { .. } => "claim another task, or let its owner release it".into(),
        BoardError::Cycle { .. } => "take one of them out of another's depends_on".into(),
        BoardError::TeamName { .. } | BoardError::NewTask { .. } | BoardError::Full { .. } => return None,
        BoardError::Vault(error) => return of_vault(error),
    })
}

fn of_transfer(error: &TransferError) -> Option<Hint> {
    Some(match error {
        error if error.is_out_of_space() => "free space on the host's disk".into(),
        TransferError::Outside { .. } | TransferError::BadName { .. } => {
            "give a path relative to the transfer directory; [server] transfer_dir says where that is".into()
        }
        TransferError::Link { .. } => {
            "give the path without links, if the target is inside the transfer directory".into()
        }
        TransferError::Missing { .. } => "put the file into the transfer directory of the host first".into(),
        TransferError::NoParent { .. } => "choose a path in a directory that exists".into(),
        TransferError::Exists { .. } => "choose a path that does not exist yet, or an empty directory".into(),
        TransferError::Special { .. } | TransferError::Tree { .. } | TransferError::Io { .. } => return None,
    })
}
