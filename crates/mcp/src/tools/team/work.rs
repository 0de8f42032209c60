//! Turns the parsed arguments of `team` into one action with everything it needs, and reports missing ones.

use agentiso_core::team::TeamName;
use agentiso_daemon::TeamRequest;
use agentiso_vault::board::Priority;

use super::params::{
    self, AGENT, Action, Arguments, BASE_SNAPSHOT, CONTENT, DEFAULT_LIMIT, DEFAULT_MAX_VMS, GOLDEN, Maybe,
    NAME, ROLES, TASK_ID, TITLE, TO,
};
use crate::args::{Param, Reader, Snapshot, Workspace};

/// The snapshot that members are forked from, from the tool contract.
const DEFAULT_SNAPSHOT: &str = "golden";

pub(super) enum Work {
    Create(TeamRequest),
    Destroy { team: TeamName, force: bool },
    Status(TeamName),
    List,
    Message { team: TeamName, from: String, to: String, content: String, message_type: String },
    Receive { team: TeamName, agent: String, limit: usize },
    Board { team: TeamName, task: BoardWork },
}

/// An action on the task board. Ids are as the client wrote them.
pub(super) enum BoardWork {
    Create { title: String, description: String, priority: Priority, depends_on: Vec<String> },
    List,
    Claim { id: String, agent: String },
    Start { id: String, agent: String },
    Complete { id: String, agent: String, result: Option<String> },
    Fail { id: String, reason: Option<String> },
    Release { id: String, agent: String },
}

/// `None` if something is wrong or missing; every problem has then been reported.
pub(super) fn plan(action: Action, given: Arguments, args: &mut Reader) -> Option<Work> {
    let mut need = RequiredArgs { args, action: word(action) };
    match action {
        Action::Create => create(given, &mut need).map(Work::Create),
        Action::Destroy => {
            let team = need.some(&NAME, given.name);
            Some(Work::Destroy { team: team?, force: given.force?.unwrap_or(false) })
        }
        Action::Status => need.some(&NAME, given.name).map(Work::Status),
        Action::List => Some(Work::List),
        Action::Message => {
            let team = need.some(&NAME, given.name);
            let from = need.some(&AGENT, given.agent);
            let to = need.some(&TO, given.to);
            let content = need.some(&CONTENT, given.content);
            let message_type = given.message_type?.unwrap_or_else(|| "text".to_owned());
            Some(Work::Message { team: team?, from: from?, to: to?, content: content?, message_type })
        }
        Action::Receive => {
            let team = need.some(&NAME, given.name);
            let agent = need.some(&AGENT, given.agent);
            let limit = usize::try_from(given.limit?.unwrap_or(DEFAULT_LIMIT)).ok()?;
            Some(Work::Receive { team: team?, agent: agent?, limit })
        }
        Action::TaskCreate
        | Action::TaskList
        | Action::TaskClaim
        | Action::TaskStart
        | Action::TaskComplete
        | Action::TaskFail
        | Action::TaskRelease => {
            let team = need.some(&NAME, given.name.clone());
            let task = board(action, given, &mut need);
            Some(Work::Board { team: team?, task: task? })
        }
    }
}

fn create(given: Arguments, need: &mut RequiredArgs<'_>) -> Option<TeamRequest> {
    let name = need.some(&NAME, given.name);
    let roles = need.some(&ROLES, given.roles);
    if let (Some(None), Some(Some(_))) = (&given.golden, &given.base_snapshot) {
        need.args.complain(BASE_SNAPSHOT.name, "needs golden_workspace".to_owned());
    }
    let golden = given.golden?.map(|golden| need.parsed(&Workspace::new(GOLDEN.name, ""), golden));
    let snapshot = given.base_snapshot?.unwrap_or_else(|| DEFAULT_SNAPSHOT.to_owned());
    let snapshot = need.parsed(&Snapshot::new(BASE_SNAPSHOT.name, ""), snapshot);
    let golden = match golden {
        Some(golden) => Some((golden?, snapshot?)),
        None => None,
    };
    Some(TeamRequest {
        name: name?,
        roles: roles?,
        max_vms: u32::try_from(given.max_vms?.unwrap_or(DEFAULT_MAX_VMS)).ok()?,
        golden,
        parent: given.parent?,
    })
}

fn board(action: Action, given: Arguments, need: &mut RequiredArgs<'_>) -> Option<BoardWork> {
    let takes_id = !matches!(action, Action::TaskCreate | Action::TaskList);
    let id = if takes_id { need.some(&TASK_ID, given.task_id) } else { None };
    let takes_agent = takes_id && action != Action::TaskFail;
    let agent = if takes_agent { need.some(&AGENT, given.agent) } else { None };
    match action {
        Action::TaskCreate => {
            let title = need.some(&TITLE, given.title);
            Some(BoardWork::Create {
                title: title?,
                description: given.content?.unwrap_or_default(),
                priority: given.priority?.unwrap_or_default(),
                depends_on: given.depends_on?.unwrap_or_default(),
            })
        }
        Action::TaskList => Some(BoardWork::List),
        Action::TaskClaim => Some(BoardWork::Claim { id: id?, agent: agent? }),
        Action::TaskStart => Some(BoardWork::Start { id: id?, agent: agent? }),
        Action::TaskComplete => Some(BoardWork::Complete { id: id?, agent: agent?, result: given.content? }),
        Action::TaskFail => Some(BoardWork::Fail { id: id?, reason: given.content? }),
        Action::TaskRelease => Some(BoardWork::Release { id: id?, agent: agent? }),
        Action::Create
        | Action::Destroy
        | Action::Status
        | Action::List
        | Action::Message
        | Action::Receive => None,
    }
}

/// Takes the arguments that an action requires.
struct RequiredArgs<'a> {
    args: &'a mut Reader,
    action: &'static str,
}

impl RequiredArgs<'_> {
    /// Parses a text that this action needs in a stricter form.
    fn parsed<P: Param>(&mut self, param: &P, text: String) -> Option<P::Output> {
        let complain = |problems: Vec<String>| {
            problems.into_iter().for_each(|problem| self.args.complain(param.name(), problem));
        };
        param.parse(text.into()).map_err(complain).ok()
    }

    fn some<P: Param>(&mut self, param: &P, given: Maybe<P::Output>) -> Option<P::Output> {
        let given = given?;
        if given.is_none() {
            let problem = format!("{} (required for action {})", param.when_missing(), self.action);
            self.args.complain(param.name(), problem);
        }
        given
    }
}

pub(super) fn word(action: Action) -> &'static str {
    params::ACTION.words.iter().find(|(_, known)| *known == action).map_or("", |(word, _)| word)
}
