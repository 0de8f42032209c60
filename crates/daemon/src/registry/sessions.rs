//! The sessions: since when each is connected, and when it last made a call.
//!
//! ```text
//!  opened ──▶ live (counted handles, calls under way) ──last handle gone──▶ ghost ──owns nothing──▶ forgotten
//! ```
//!
//! A ghost is a session that still owns workspaces but has no connection. The ledger restores sessions as ghosts,
//! too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentiso_core::ids::{SessionId, WorkspaceId};

use crate::error::McpBridgeError;

/// The time for which a live owner must have been silent before its workspaces may be taken over.
pub const TAKEOVER_AFTER: Duration = Duration::from_secs(60);

/// The rights of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// One client connection: owns what it makes, within its quota.
    Client,
    /// A shell user of this host: may do everything, and shares one identity with all other shell users.
    Shell,
    /// A program inside this workspace: may use this workspace, and nothing else.
    Bound(WorkspaceId),
}

impl SessionKind {
    /// Refuses operations that only sessions outside a workspace may do.
    pub(crate) fn refuse_inside(self) -> Result<(), McpBridgeError> {
        match self {
            Self::Bound(_) => Err(McpBridgeError::NotFromInside),
            Self::Client | Self::Shell => Ok(()),
        }
    }
}

/// The reason why a live session keeps its workspaces, and how long it has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeoverRefusal {
    /// It made a call a short time ago.
    Active(Duration),
    /// It is connected, and the request did not use force.
    Connected(Duration),
}

#[derive(Clone, Debug)]
struct Entry {
    created_at: jiff::Timestamp,
    /// The number of handles. A session without handles is a ghost.
    handles: usize,
    calls: usize,
    last_call: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(BTreeMap<SessionId, Entry>);

impl Sessions {
    pub(crate) fn open(&mut self, id: &SessionId, now: jiff::Timestamp) {
        let fresh = Entry { created_at: now, handles: 0, calls: 0, last_call: None };
        self.0.entry(id.clone()).or_insert(fresh).handles += 1;
    }

    pub(crate) fn restore_ghost(&mut self, id: &SessionId, created_at: jiff::Timestamp) {
        let ghost = Entry { created_at, handles: 0, calls: 0, last_call: None };
        self.0.entry(id.clone()).or_insert(ghost);
    }

    /// Removes one handle. The caller forgets sessions that own nothing.
    pub(crate) fn close(&mut self, id: &SessionId) {
        if let Some(entry) = self.0.get_mut(id) {
            entry.handles = entry.handles.saturating_sub(1);
        }
    }

    pub(crate) fn call_begins(&mut self, id: &SessionId, now: Instant) {
        if let Some(entry) = self.0.get_mut(id) {
            entry.calls += 1;
            entry.last_call = Some(now);
        }
    }

    pub(crate) fn call_ends(&mut self, id: &SessionId, now: Instant) {
        if let Some(entry) = self.0.get_mut(id) {
            entry.calls = entry.calls.saturating_sub(1);
            entry.last_call = Some(now);
        }
    }

    /// The time for which a live session has been silent; `None` for a ghost.
    pub(crate) fn idle(&self, id: &SessionId, now: Instant) -> Option<Duration> {
        let entry = self.0.get(id).filter(|entry| entry.handles > 0)?;
        if entry.calls > 0 {
            return Some(Duration::ZERO);
        }
        entry.last_call.map(|last| now.saturating_duration_since(last)).or(Some(TAKEOVER_AFTER))
    }

    /// Whether its workspaces may be taken over: it is a ghost, or `force` is given and it has been silent for long
    /// enough.
    pub(crate) fn may_be_taken_over(
        &self,
        id: &SessionId,
        force: bool,
        now: Instant,
    ) -> Result<(), TakeoverRefusal> {
        match self.idle(id, now) {
            Some(idle) if idle < TAKEOVER_AFTER => Err(TakeoverRefusal::Active(idle)),
            Some(idle) if !force => Err(TakeoverRefusal::Connected(idle)),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn created_at(&self, id: &SessionId) -> Option<jiff::Timestamp> {
        self.0.get(id).map(|entry| entry.created_at)
    }

    /// Drops ghosts that own nothing, because nothing refers to them.
    pub(crate) fn forget_ghosts(&mut self, owns_something: impl Fn(&SessionId) -> bool) {
        self.0.retain(|id, entry| entry.handles > 0 || owns_something(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (Sessions, SessionId, Instant) {
        let mut sessions = Sessions::default();
        let id = SessionId::random();
        sessions.open(&id, jiff::Timestamp::UNIX_EPOCH);
        (sessions, id, Instant::now())
    }

    #[test]
    fn session_is_protected_60_seconds_after_a_call() {
        let (mut sessions, id, start) = opened();
        sessions.call_begins(&id, start);
        sessions.call_ends(&id, start);
        let after =
            |seconds, force| sessions.may_be_taken_over(&id, force, start + Duration::from_secs(seconds));
        for force in [false, true] {
            assert_eq!(after(59, force), Err(TakeoverRefusal::Active(Duration::from_secs(59))));
        }
        assert_eq!(after(60, true), Ok(()));
        assert_eq!(after(3600, false), Err(TakeoverRefusal::Connected(Duration::from_secs(3600))));
    }

    #[test]
    fn session_stays_active_during_a_long_call() {
        let (mut sessions, id, start) = opened();
        sessions.call_begins(&id, start);
        let late = start + Duration::from_secs(3600);
        assert_eq!(sessions.may_be_taken_over(&id, true, late), Err(TakeoverRefusal::Active(Duration::ZERO)));
    }

    #[test]
    fn session_without_handles_is_a_ghost() {
        let (mut sessions, id, start) = opened();
        sessions.call_begins(&id, start);
        sessions.call_ends(&id, start);
        sessions.close(&id);
        assert_eq!(sessions.idle(&id, start), None);
        assert!(sessions.may_be_taken_over(&id, false, start).is_ok());
    }

    #[test]
    fn session_ends_with_its_last_handle() {
        let (mut sessions, id, start) = opened();
        sessions.open(&id, jiff::Timestamp::UNIX_EPOCH);
        sessions.close(&id);
        assert!(sessions.idle(&id, start).is_some());
        sessions.close(&id);
        sessions.forget_ghosts(|_| false);
        assert_eq!(sessions.created_at(&id), None);
    }
}
