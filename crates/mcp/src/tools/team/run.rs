//! Executes an action of `team` and builds its answer.

use agentiso_core::rate::RateCategory;
use serde_json::json;

use super::work::Work;
use super::{board, view};
use crate::answer::{Answer, Failure};
use crate::registry::Call;

pub(super) async fn run(work: Work, call: Call) -> Result<Answer, Failure> {
    let session = &call.session;
    match work {
        Work::Create(request) => {
            session.charge(RateCategory::Create, 1)?;
            let made = session.create_team(request, &call.progress.as_progress()).await?;
            Ok(Answer::json(view::created(&made)))
        }
        Work::Destroy { team, force } => {
            let name = session.destroy_team(team.as_str(), force).await?;
            Ok(Answer::json(json!({ "action": "destroy", "name": name, "success": true })))
        }
        Work::Status(team) => Ok(Answer::json(view::status(&session.team_info(team.as_str())?))),
        Work::List => Ok(Answer::json(view::list(&session.teams()))),
        Work::Message { team, from, to, content, message_type } => {
            session.charge(RateCategory::TeamMessage, 1)?;
            let sent = session.send_message(team.as_str(), &from, &to, content, message_type).await?;
            let answer = Answer::json(json!({
                "action": "message",
                "message_id": sent.message.message_id.to_string(),
                "status": "delivered",
                "from": sent.message.from,
                "to": sent.message.to,
            }));
            let full = format!("An inbox was full: {} older unread messages were dropped.", sent.displaced);
            Ok(if sent.displaced > 0 { answer.with_note(full) } else { answer })
        }
        Work::Receive { team, agent, limit } => {
            let received = session.receive_messages(team.as_str(), &agent, limit).await?;
            let answer = Answer::json(view::received(&agent, &received));
            let more = format!("{} more results are waiting; call receive again.", received.results_left);
            Ok(if received.results_left > 0 { answer.with_note(more) } else { answer })
        }
        Work::Board { team, task } => board::run(session, team, task).await,
    }
}
