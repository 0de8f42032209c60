//! The sessions of one front, by their ids. One whose conversation has ended is forgotten when it is next looked for, or
//! when there is need of its place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::token::{Token, TokenError};
use crate::upstream::Upstream;

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) upstream: Arc<Upstream>,
    /// The version that was agreed on in the handshake.
    pub(crate) version: String,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<String, Session>,
    /// Handshakes under way.
    promised: usize,
}

/// A place for a session that is about to begin.
#[derive(Debug)]
pub(crate) struct Place<'a>(&'a Sessions);

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Mutex::default(), limit }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one insert, remove or count.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: there are as many as there may be.
    pub(crate) fn place(&self) -> Option<Place<'_>> {
        let mut table = self.table();
        table.sessions.retain(|_, session| !session.upstream.is_gone());
        if table.sessions.len() + table.promised >= self.limit {
            return None;
        }
        table.promised += 1;
        Some(Place(self))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Session> {
        self.table().sessions.get(id).filter(|session| !session.upstream.is_gone()).cloned()
    }

    /// Whether there was one.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = self.table().sessions.remove(id);
        ended.is_some_and(|session| !session.upstream.is_gone())
    }
}

impl Place<'_> {
    /// The id of the session, as hard to guess as a token: it is one, for whoever has the other.
    pub(crate) fn take(self, session: Session) -> Result<String, TokenError> {
        let id = Token::random("")?.expose().to_owned();
        self.0.table().sessions.insert(id.clone(), session);
        Ok(id)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.table().promised -= 1;
    }
}
