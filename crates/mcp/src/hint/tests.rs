//! Hints name only tools of the session's profile.

use agentiso_core::lifecycle::Refusal;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::team::{MailError, TeamName, TeamRefusal};
use agentiso_daemon::vms::{AgentFailure, SnapshotFailure};
use agentiso_daemon::{ForwardError, GitError, McpBridgeError, OpError, PrepareError, TeamError};
use agentiso_git::Trouble;
use agentiso_vault::VaultError;
use agentiso_vault::board::{BoardError, TaskId};

use super::of;
use crate::profile::Profile;
use crate::registry;

fn web() -> WorkspaceName {
    WorkspaceName::parse("web").unwrap()
}

fn snapshot() -> SnapshotName {
    SnapshotName::parse("clean").unwrap()
}

fn not_owned(idle_secs: Option<u64>) -> OpError {
    OpError::NotOwned { name: web(), owner: None, idle_secs }
}

fn guest(source: AgentFailure) -> OpError {
    OpError::Guest { name: web(), operation: "exec", source }
}

/// Errors of every kind whose hints name tools.
fn errors() -> Vec<OpError> {
    let known = || vec!["db".to_owned()];
    let wanted = || "wbe".to_owned();
    let forward = |source| OpError::Forward { name: web(), guest_port: 80, source };
    let mut errors = vec![
        OpError::NotFound { wanted: wanted(), nearest: None, known: Vec::new() },
        OpError::NotFound { wanted: wanted(), nearest: None, known: known() },
        not_owned(None),
        not_owned(Some(20)),
        not_owned(Some(60)),
        OpError::TooManyForwards { name: web() },
        OpError::NameTaken { name: web() },
        OpError::TooManyWorkspaces { used: 1, limit: 1 },
        OpError::TooManyVms { used: 1, limit: 1 },
        forward(ForwardError::Exists { guest_port: 80, host_port: 8080 }),
        forward(ForwardError::InUse { port: 8080 }),
        OpError::NoForward { name: web(), guest_port: 80, known: Vec::new() },
        OpError::TooManySnapshots { name: web(), limit: 100 },
        OpError::SnapshotNotFound { name: web(), wanted: wanted(), nearest: None, known: Vec::new() },
        OpError::SnapshotNotFound { name: web(), wanted: wanted(), nearest: None, known: known() },
        OpError::SnapshotNameTaken { name: web(), snapshot: snapshot() },
        OpError::SnapshotInUse { name: web(), snapshot: snapshot(), forks: known() },
        OpError::Snapshot {
            name: web(),
            operation: "snapshot".to_owned(),
            source: SnapshotFailure::Failed { reason: "it broke".to_owned() },
        },
        OpError::SetupFailed {
            name: web(),
            number: 1,
            command: "false".to_owned(),
            ended: "ended with 1".to_owned(),
            output: String::new(),
        },
        OpError::NoImage { name: ImageName::parse("debian-dev").unwrap(), known: Vec::new() },
        OpError::VmDied { name: web(), reason: "it was killed".to_owned() },
        guest(AgentFailure::Broken { reason: "it ended".to_owned() }),
        guest(AgentFailure::Unsupported { call: "this" }),
        OpError::Prepare(PrepareError::Setup {
            name: web(),
            number: 1,
            total: 1,
            command: "false".to_owned(),
            ended: "ended with exit code 1".to_owned(),
            output: String::new(),
        }),
        OpError::McpBridge(McpBridgeError::NotFromInside),
        TeamError::Refused(TeamRefusal::NotFound { wanted: wanted(), nearest: None, known: Vec::new() })
            .into(),
        TeamError::Refused(TeamRefusal::NameTaken(TeamName::parse("web").unwrap())).into(),
        TeamError::Mail(MailError::NotAMember { who: wanted(), members: known() }).into(),
        TeamError::Mail(MailError::TooManyTasks { who: wanted() }).into(),
        VaultError::NotFound { path: "a.md".to_owned() }.into(),
        VaultError::IsFolder { path: "a".to_owned() }.into(),
        BoardError::Broken { id: TaskId::parse("task-001").unwrap(), problem: "it is empty".to_owned() }
            .into(),
    ];
    errors.extend(
        [
            Refusal::NotRunning,
            Refusal::AlreadyRunning,
            Refusal::BeingCreated,
            Refusal::Suspended,
            Refusal::BeingDestroyed,
        ]
        .map(|refusal| OpError::WrongState { name: web(), refusal, stop_reason: None }),
    );
    let git = |trouble, refused: Option<&str>| {
        OpError::Git(GitError::Failed {
            name: web(),
            what: "git push",
            trouble,
            words: "fatal".to_owned(),
            refused: refused.map(str::to_owned),
        })
    };
    errors.push(git(Trouble::Unreachable, Some("x.example is not allowed")));
    errors.extend(
        [
            Trouble::NoGit,
            Trouble::NoDirectory,
            Trouble::NotARepository,
            Trouble::NotEmpty,
            Trouble::NoRemote,
            Trouble::Unreachable,
            Trouble::NoBranch,
            Trouble::NonFastForward,
        ]
        .map(|trouble| git(trouble, None)),
    );
    errors.extend(["no_commit", "no_branch", "uncommitted", "other"].map(|code| {
        OpError::Git(GitError::Target { name: web(), code: code.to_owned(), words: "no".to_owned() })
    }));
    errors
}

/// Whether a text names a tool. Some names are ordinary words too, and are tools only before their action.
fn names(text: &str, tool: &str) -> bool {
    if ["snapshot", "team", "vault"].contains(&tool) {
        return ["(action", "with action"].iter().any(|action| text.contains(&format!("{tool} {action}")));
    }
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == tool)
}

#[test]
fn hints_name_only_tools_of_the_profile() {
    let profiles = [
        Profile::inside(),
        Profile::parse("full", false).unwrap(),
        Profile::parse("full", true).unwrap(),
        Profile::parse("core", false).unwrap(),
        Profile::parse("core", true).unwrap(),
    ];
    let single = registry::listable().map(|tool| Profile::parse(tool.name, false).unwrap());
    for profile in profiles.into_iter().chain(single) {
        for error in errors() {
            let Some(hint) = of(&error).and_then(|hint| hint.for_session(&profile)) else { continue };
            for tool in registry::listable().map(|tool| tool.name) {
                assert!(!names(&hint, tool) || profile.offers(tool), "{tool}: {hint}");
            }
        }
    }
}

#[test]
fn every_tool_in_the_source_is_marked() {
    let source = include_str!("errors.rs");
    for tool in registry::listable().map(|tool| tool.name).filter(|name| name.contains('_')) {
        for (at, _) in source.match_indices(tool) {
            let around = source[at - 1..].chars().next().zip(source[at + tool.len()..].chars().next());
            assert_eq!(around, Some(('`', '`')), "{tool} at byte {at}");
        }
    }
}

#[test]
fn hint_names_force_only_when_it_helps() {
    let hint = |error: &OpError, tools| of(error)?.for_session(&Profile::parse(tools, false).unwrap());
    let full = |idle_secs| hint(&not_owned(idle_secs), "full").unwrap();
    assert_eq!(full(None), "take it over with workspace_adopt, then repeat the call");
    assert!(full(Some(20)).contains("40 s more"), "{}", full(Some(20)));
    assert!(full(Some(60)).contains("or take it over"), "{}", full(Some(60)));
    assert_eq!(hint(&not_owned(Some(60)), "core").unwrap(), "use a workspace of your own");
    assert_eq!(hint(&not_owned(None), "core"), None);
}
