//! The task board of a team, which is a folder of notes.

use agentiso_core::team::TeamName;
use agentiso_daemon::Session;
use agentiso_vault::Vault;
use agentiso_vault::board::{Board, BoardError, NewTask, Task, TaskId, available};
use serde_json::{Value, json};

use super::work::BoardWork;
use crate::answer::{Answer, Failure};
use crate::tools::vault::budget::fitting;

/// Every session may read a board, as all notes; changes are made in the name of a member.
pub(super) async fn run(session: &Session, team: TeamName, task: BoardWork) -> Result<Answer, Failure> {
    // Without a vault every other problem is irrelevant.
    session.vault_settings()?;
    match &task {
        BoardWork::List => drop(session.team_info(team.as_str())?),
        BoardWork::Create { .. } | BoardWork::Fail { .. } => drop(session.own_team(team.as_str())?),
        BoardWork::Claim { agent, .. }
        | BoardWork::Start { agent, .. }
        | BoardWork::Complete { agent, .. }
        | BoardWork::Release { agent, .. } => drop(session.check_team_member(team.as_str(), agent)?),
    }
    let changes = !matches!(task, BoardWork::List);
    let name = team.clone();
    let act = move |vault: &Vault| act(vault, &name, task);
    let done = if changes { session.change_board(team, act).await } else { session.vault(act).await };
    Ok(done?)
}

/// Blocks, so it must run on a thread that may block.
fn act(vault: &Vault, team: &TeamName, task: BoardWork) -> Result<Answer, BoardError> {
    let board = Board::of_team(vault, team.as_str())?;
    let done = |action: &str, id: &TaskId, status: &str| {
        Answer::json(json!({ "action": action, "name": team, "task_id": id, "status": status }))
    };
    match task {
        BoardWork::Create { title, description, priority, depends_on } => {
            let depends_on = depends_on.iter().map(|id| TaskId::parse(id)).collect::<Result<_, _>>()?;
            let made = board.create(&NewTask { title, description, priority, depends_on })?;
            Ok(done("task_create", &made.id, made.status.as_str()))
        }
        BoardWork::List => list(&board, team),
        BoardWork::Claim { id, agent } => {
            let id = TaskId::parse(&id)?;
            let claimed = board.claim(&id, &agent)?;
            let view = json!({ "action": "task_claim", "name": team, "task_id": id, "claimed": claimed });
            let answer = Answer::json(view);
            Ok(if claimed { answer } else { answer.with_note("The task is already claimed.".to_owned()) })
        }
        BoardWork::Start { id, agent } => {
            let id = TaskId::parse(&id)?;
            board.start(&id, &agent)?;
            Ok(done("task_start", &id, "inprogress"))
        }
        BoardWork::Complete { id, agent, result } => {
            let id = TaskId::parse(&id)?;
            board.complete(&id, &agent, result.as_deref())?;
            Ok(done("task_complete", &id, "completed"))
        }
        BoardWork::Fail { id, reason } => {
            let id = TaskId::parse(&id)?;
            board.fail(&id, reason.as_deref())?;
            Ok(done("task_fail", &id, "failed"))
        }
        BoardWork::Release { id, agent } => {
            let id = TaskId::parse(&id)?;
            board.release(&id, &agent)?;
            Ok(done("task_release", &id, "pending"))
        }
    }
}

/// Lists tasks without their descriptions, which are in the notes.
fn list(board: &Board, team: &TeamName) -> Result<Answer, BoardError> {
    let all = board.list()?;
    let free: Vec<&TaskId> = available(&all.tasks, None).into_iter().map(|task| &task.id).collect();
    let (tasks, hidden) = fitting(all.tasks.iter().map(view).collect());
    let mut shown = json!({
        "action": "task_list", "name": team, "count": all.tasks.len(), "available": free, "tasks": tasks,
    });
    if !all.broken.is_empty() {
        let broken = all.broken.iter().map(|task| json!({ "id": task.id, "problem": task.problem }));
        shown["broken"] = fitting(broken.collect()).0.into();
    }
    let answer = Answer::json(shown);
    let more = format!("{hidden} more tasks are not shown; read teams/{team}/tasks/INDEX.md with vault.");
    Ok(if hidden > 0 { answer.with_note(more) } else { answer })
}

fn view(task: &Task) -> Value {
    json!({
        "id": task.id,
        "title": task.title,
        "status": task.status.as_str(),
        "priority": task.priority.as_str(),
        "owner": task.owner,
        "depends_on": task.depends_on,
    })
}
