//! The parameters of `team`. All are parsed before the action decides which of them it needs.

use agentiso_core::names::MAX_NAME_LEN;
use agentiso_core::team::{MAX_CONTENT, MAX_INBOX, TeamName};
use agentiso_daemon::RoleRequest;
use agentiso_vault::board::Priority;

use crate::args::{Choice, Flag, Integer, Reader, Roles, Slot, Team, Text, Texts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create,
    Destroy,
    Status,
    List,
    Message,
    Receive,
    TaskCreate,
    TaskList,
    TaskClaim,
    TaskStart,
    TaskComplete,
    TaskFail,
    TaskRelease,
}

pub(super) const ACTION: Choice<Action> = Choice::new(
    "action",
    "What to do.",
    &[
        ("create", Action::Create),
        ("destroy", Action::Destroy),
        ("status", Action::Status),
        ("list", Action::List),
        ("message", Action::Message),
        ("receive", Action::Receive),
        ("task_create", Action::TaskCreate),
        ("task_list", Action::TaskList),
        ("task_claim", Action::TaskClaim),
        ("task_start", Action::TaskStart),
        ("task_complete", Action::TaskComplete),
        ("task_fail", Action::TaskFail),
        ("task_release", Action::TaskRelease),
    ],
);

/// More than any configuration allows in one team.
const MAX_ROLES: usize = 100;

pub(super) const DEFAULT_MAX_VMS: u64 = 10;
pub(super) const DEFAULT_LIMIT: u64 = 10;

/// Bytes of names of members, types of messages and ids of tasks.
const MAX_WORD: usize = MAX_NAME_LEN;

/// Bytes of a title: four for each of the 200 characters that the board allows.
const MAX_TITLE: usize = 800;

const MAX_DEPENDENCIES: usize = 100;

pub(super) const NAME: Team = Team::new("name", "Team name; list needs none.");
pub(super) const ROLES: Roles = Roles { name: "roles", about: "create: the members.", max: MAX_ROLES };
const MAX_VMS: Integer =
    Integer::new("max_vms", "create: maximum members, subteams included.", 1..=Integer::OPEN)
        .default(DEFAULT_MAX_VMS);
pub(super) const GOLDEN: Text = word("golden_workspace", "create: workspace to fork from.");
pub(super) const BASE_SNAPSHOT: Text = word("base_snapshot", "create: its snapshot. Default: golden.");
const FORCE: Flag =
    Flag::new("force", "destroy: also if its session is connected but made no call for 60 s.").default(false);
const PARENT: Team = Team::new("parent_team", "create: parent team.");
pub(super) const AGENT: Text = word("agent", "Member that sends, receives or has the task.");
pub(super) const TO: Text = word("to", "message: a member, or * for all others.");
pub(super) const CONTENT: Text = Text {
    min: 0,
    nul: true,
    ..Text::new("content", "Message; task description, result or reason.", MAX_CONTENT)
};
const MESSAGE_TYPE: Text = word("message_type", "Default: text.");
const LIMIT: Integer =
    Integer::new("limit", "receive: maximum messages.", 1..=MAX_INBOX as u64).default(DEFAULT_LIMIT);
pub(super) const TASK_ID: Text = word("task_id", "Such as task-001.");
pub(super) const TITLE: Text = Text::new("title", "task_create: one line.", MAX_TITLE);
const PRIORITY: Choice<Priority> = Choice::new(
    "priority",
    "task_create: how urgent.",
    &[
        ("low", Priority::Low),
        ("medium", Priority::Medium),
        ("high", Priority::High),
        ("critical", Priority::Critical),
    ],
)
.default("medium");
const DEPENDS_ON: Texts =
    Texts { name: "depends_on", about: "task_create: task ids.", max_items: MAX_DEPENDENCIES, max: MAX_WORD };

const fn word(name: &'static str, about: &'static str) -> Text {
    Text { min: 0, ..Text::new(name, about, MAX_WORD) }
}

pub(super) const SLOTS: &[Slot] = &[
    Slot::Required(&ACTION),
    Slot::Optional(&NAME),
    Slot::Optional(&ROLES),
    Slot::Optional(&MAX_VMS),
    Slot::Optional(&GOLDEN),
    Slot::Optional(&BASE_SNAPSHOT),
    Slot::Optional(&PARENT),
    Slot::Optional(&FORCE),
    Slot::Optional(&AGENT),
    Slot::Optional(&TO),
    Slot::Optional(&CONTENT),
    Slot::Optional(&MESSAGE_TYPE),
    Slot::Optional(&LIMIT),
    Slot::Optional(&TASK_ID),
    Slot::Optional(&TITLE),
    Slot::Optional(&PRIORITY),
    Slot::Optional(&DEPENDS_ON),
];

/// A parsed argument: `None` if it is wrong, which has been reported, `Some(None)` if it was left out.
pub(super) type Maybe<T> = Option<Option<T>>;

pub(super) struct Arguments {
    pub(super) name: Maybe<TeamName>,
    pub(super) roles: Maybe<Vec<RoleRequest>>,
    pub(super) max_vms: Maybe<u64>,
    pub(super) golden: Maybe<String>,
    pub(super) base_snapshot: Maybe<String>,
    pub(super) parent: Maybe<TeamName>,
    pub(super) force: Maybe<bool>,
    pub(super) agent: Maybe<String>,
    pub(super) to: Maybe<String>,
    pub(super) content: Maybe<String>,
    pub(super) message_type: Maybe<String>,
    pub(super) limit: Maybe<u64>,
    pub(super) task_id: Maybe<String>,
    pub(super) title: Maybe<String>,
    pub(super) priority: Maybe<Priority>,
    pub(super) depends_on: Maybe<Vec<String>>,
}

pub(super) fn read(args: &mut Reader) -> Arguments {
    Arguments {
        name: args.optional(&NAME),
        roles: args.optional(&ROLES),
        max_vms: args.optional(&MAX_VMS),
        golden: args.optional(&GOLDEN),
        base_snapshot: args.optional(&BASE_SNAPSHOT),
        parent: args.optional(&PARENT),
        force: args.optional(&FORCE),
        agent: args.optional(&AGENT),
        to: args.optional(&TO),
        content: args.optional(&CONTENT),
        message_type: args.optional(&MESSAGE_TYPE),
        limit: args.optional(&LIMIT),
        task_id: args.optional(&TASK_ID),
        title: args.optional(&TITLE),
        priority: args.optional(&PRIORITY),
        depends_on: args.optional(&DEPENDS_ON),
    }
}
