//! Answers the HTTP requests of programs in a member's VM.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_core::config::RateLimitConfig;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::rate::{RateCategory, RateLevels};
use agentiso_core::team::{MAX_CONTENT, RoleName, TASK_ASSIGNMENT, TeamName};
use agentiso_http::{Hosts, Plain, PlainAnswer, serve_plain};
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::json;

use super::PORT;
use super::lent_messages::LentMessages;
use crate::error::OpError;
use crate::mail::Slot;
use crate::registry::SessionKind;
use crate::session::{Sent, Session};
use crate::shared::Shared;
use crate::vms::LocalConnection;

/// Bytes of the longest message with every character escaped, and its surrounding JSON.
const MAX_BODY: usize = 6 * MAX_CONTENT + 4096;

/// Time from the connection until the program has its answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// Bytes of a message type, which is a single word.
const MAX_TYPE: usize = 64;

#[derive(Debug)]
pub(super) struct InboxServer {
    shared: Arc<Shared>,
    workspace: WorkspaceId,
    /// Rate of messages that it has sent. Separate from the daemon's limit: programs in a VM must not use up the
    /// messages that its owner may send.
    rate: Mutex<RateLevels>,
}

/// A message as the tool `team` takes it, without the sender, which is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Letter {
    to: String,
    content: String,
    #[serde(default = "text")]
    message_type: String,
}

fn text() -> String {
    "text".to_owned()
}

impl InboxServer {
    pub(super) fn new(shared: &Arc<Shared>, workspace: WorkspaceId) -> Self {
        Self { shared: Arc::clone(shared), workspace, rate: Mutex::default() }
    }

    pub(super) fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// Answers one request. Messages that did not reach the program stay in the inbox.
    pub(super) async fn serve(&self, connection: LocalConnection) {
        let LocalConnection { stream, uptime, delivered } = connection;
        let hosts = Hosts::new(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), Vec::new());
        let mut lent = None;
        let whole = async {
            let answered =
                serve_plain(stream, &hosts, MAX_BODY, |plain| self.answer(plain, uptime, &mut lent)).await;
            answered.is_ok() && delivered.await.is_ok()
        };
        let arrived = tokio::time::timeout(DEADLINE, whole).await.unwrap_or(false);
        if let Some(lent) = lent.filter(|_| arrived) {
            lent.delivered(&self.shared).await;
        }
    }

    async fn answer(&self, plain: Plain, uptime: Duration, lent: &mut Option<LentMessages>) -> PlainAnswer {
        match (plain.path.as_str(), plain.method.as_str()) {
            ("/health", "GET") => PlainAnswer::ok(json!({
                "status": "ready",
                "version": env!("CARGO_PKG_VERSION"),
                "uptime_secs": uptime.as_secs(),
            })),
            ("/messages", "GET") => self.receive(lent).await,
            ("/messages", "POST") => self.send(&plain.body).await,
            ("/health", _) => not_allowed("GET"),
            ("/messages", _) => not_allowed("GET, POST"),
            _ => PlainAnswer::refusal(
                StatusCode::NOT_FOUND,
                "not_found",
                "unknown path; use /health or /messages",
            ),
        }
    }

    /// The member whose VM this is, and its inbox.
    fn member(&self) -> Option<(TeamName, RoleName, Arc<Slot>)> {
        let state = self.shared.state();
        let teams = &state.registry.teams;
        let (team, member) = teams.member_at(&self.workspace)?;
        let slot = self.shared.mail.slot(team, teams.get(team)?.created_at, &member.name);
        Some((team.clone(), member.name.clone(), slot))
    }

    async fn receive(&self, lent: &mut Option<LentMessages>) -> PlainAnswer {
        let Some((team, role, slot)) = self.member() else { return nobody() };
        let (mail, messages) = match LentMessages::from(slot).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(workspace = %self.workspace, %error, "cannot read the messages of a member");
                return unavailable("the messages cannot be read; try again later");
            }
        };
        *lent = Some(mail);
        PlainAnswer::ok(json!({ "team": team, "agent": role, "count": messages.len(), "messages": messages }))
    }

    async fn send(&self, body: &[u8]) -> PlainAnswer {
        let Some((team, role, _)) = self.member() else { return nobody() };
        let letter: Letter = match serde_json::from_slice(body) {
            Ok(letter) => letter,
            Err(error) => {
                let message =
                    format!("a message must be JSON {{\"to\", \"content\", \"message_type\"?}}: {error}");
                return PlainAnswer::refusal(StatusCode::BAD_REQUEST, "bad_message", message);
            }
        };
        if letter.message_type.len() > MAX_TYPE {
            let message = format!("message_type has more than {MAX_TYPE} bytes");
            return PlainAnswer::refusal(StatusCode::BAD_REQUEST, "bad_message", message);
        }
        // A task runs a command in another VM, and the programs in this one may be hostile.
        if letter.message_type == TASK_ASSIGNMENT {
            let message =
                "only the client that created the team can assign tasks, not a program inside a workspace";
            return PlainAnswer::refusal(StatusCode::FORBIDDEN, "not_allowed", message);
        }
        if let Some(refusal) = self.over_the_limit() {
            return refusal;
        }
        let session = Session::open(Arc::clone(&self.shared), SessionKind::Shell);
        let Letter { to, content, message_type } = letter;
        match session.send_message(team.as_str(), role.as_str(), &to, content, message_type).await {
            Ok(Sent { message, displaced }) => {
                let mut view = json!({
                    "message_id": message.message_id, "status": "delivered",
                    "from": message.from, "to": message.to,
                });
                if displaced > 0 {
                    view["displaced"] = displaced.into();
                }
                PlainAnswer::ok(view)
            }
            Err(error) => self.refused(&error),
        }
    }

    /// The answer to a message that was refused. Errors that the sender can fix have the same text as in the tool; all
    /// others are hidden, because their text may be about the host.
    fn refused(&self, error: &OpError) -> PlainAnswer {
        let status = match error.code() {
            "not_a_member" => StatusCode::BAD_REQUEST,
            "message_too_long" => StatusCode::PAYLOAD_TOO_LARGE,
            "team_not_found" => StatusCode::NOT_FOUND,
            _ => {
                tracing::warn!(workspace = %self.workspace, %error, "cannot deliver a message from inside a workspace");
                return unavailable("the message was not delivered; try again later");
            }
        };
        PlainAnswer::refusal(status, error.code(), error.to_string())
    }

    /// Charges one message. Each is written to disk, so this limit applies even if the daemon's rate limit is off.
    fn over_the_limit(&self) -> Option<PlainAnswer> {
        let config = RateLimitConfig { enabled: true, ..self.shared.config.rate_limit.clone() };
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = rate.charge(RateCategory::TeamMessage, 1, &config, jiff::Timestamp::now()).err()?;
        let refusal =
            PlainAnswer::refusal(StatusCode::TOO_MANY_REQUESTS, "rate_limited", limited.to_string());
        Some(refusal.with_header(RETRY_AFTER, limited.wait_secs))
    }
}

fn nobody() -> PlainAnswer {
    let message = "this workspace is not in a team, so there are no messages for it";
    PlainAnswer::refusal(StatusCode::NOT_FOUND, "not_a_member", message)
}

fn not_allowed(allowed: &'static str) -> PlainAnswer {
    PlainAnswer::refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("only {allowed} is allowed here"),
    )
    .with_header(ALLOW, HeaderValue::from_static(allowed))
}

fn unavailable(message: &str) -> PlainAnswer {
    PlainAnswer::refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}
