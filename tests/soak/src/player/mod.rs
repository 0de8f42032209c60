//! One client: it carries out its intents one after the other, and keeps the model of what it owns.
//!
//! Several of them run at once. What one owns no other changes, so each model needs no lock.

mod call;
mod connect;
mod deeds;
mod inside;
mod network;
mod snapshots;
mod teams;
mod verify;
mod wrap_up;

use std::collections::BTreeMap;
use std::sync::Arc;

use agentiso_testkit::Client;

use crate::model::Workspace;
use crate::plan::Intents;
use crate::rng::Rng;
use crate::site::Site;

pub(crate) use teams::Team;

#[derive(Debug)]
pub(crate) struct Player<'a> {
    site: &'a Site,
    index: usize,
    /// How many workspaces it may have at a time, members of teams included.
    cap: usize,
    client: Option<Arc<Client>>,
    intents: Intents,
    /// For contents and samples, so that they do not shift the plan.
    rng: Rng,
    made: u64,
    /// Whether a call went out that does more than look, since this was last set back.
    acted: bool,
    workspaces: BTreeMap<String, Workspace>,
    team: Option<Team>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(site: &'a Site, seed: u64, index: usize, cap: usize) -> Self {
        Self {
            site,
            index,
            cap,
            client: None,
            intents: Intents::of(seed, index),
            rng: Rng::stream(seed, &format!("contents {index}")),
            made: 0,
            acted: false,
            workspaces: BTreeMap::new(),
            team: None,
        }
    }

    fn who(&self) -> String {
        format!("c{}", self.index)
    }

    /// A name that was never used before.
    fn fresh(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}{}-{}", self.index, self.made)
    }
}
