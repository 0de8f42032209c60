//! One client: it carries out its intents one after the other, and keeps the model of its workspaces.
//!
//! Several clients run at once. No client changes another's workspaces, so the models need no lock.

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
    /// The most workspaces at a time, including members of teams.
    cap: usize,
    client: Option<Arc<Client>>,
    intents: Intents,
    /// Random numbers for contents and samples, separate so that they do not shift the plan.
    rng: Rng,
    made: u64,
    /// Whether a call that changes something was sent since this was last reset.
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
