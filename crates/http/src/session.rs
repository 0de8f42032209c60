//! The sessions of one front, by id. A session whose connection to the server has ended is not found any more, and is
//! removed when a new session is reserved.

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
    /// Handshakes in progress.
    reserved: usize,
}

/// A reserved entry for a session that is about to begin. Dropping it releases the reservation.
#[derive(Debug)]
pub(crate) struct Reservation<'a>(&'a Sessions);

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Mutex::default(), limit }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one insert, remove or count.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if the limit of sessions is reached.
    pub(crate) fn reserve(&self) -> Option<Reservation<'_>> {
        let mut table = self.table();
        table.sessions.retain(|_, session| !session.upstream.is_gone());
        if table.sessions.len() + table.reserved >= self.limit {
            return None;
        }
        table.reserved += 1;
        Some(Reservation(self))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Session> {
        self.table().sessions.get(id).filter(|session| !session.upstream.is_gone()).cloned()
    }

    /// Whether the session existed.
    pub(crate) fn end(&self, id: &str) -> bool {
        let ended = self.table().sessions.remove(id);
        ended.is_some_and(|session| !session.upstream.is_gone())
    }
}

impl Reservation<'_> {
    /// Returns the id of the session. It is as hard to guess as a token, because together with the token it grants
    /// access.
    pub(crate) fn fill(self, session: Session) -> Result<String, TokenError> {
        let id = Token::random("")?.expose().to_owned();
        self.0.table().sessions.insert(id.clone(), session);
        Ok(id)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.table().reserved -= 1;
    }
}
