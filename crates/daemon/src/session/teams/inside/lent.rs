//! Messages on their way to a program, until it has them.
//!
//! They stay in the mailbox and in the ledger meanwhile, so that neither a program that goes away nor a daemon that is
//! killed loses them, and asking alone writes nothing to disk.

use std::sync::Arc;

use agentiso_core::team::{Mailbox, Message, RoleName, TeamName};
use uuid::Uuid;

use crate::registry::Registry;
use crate::shared::Shared;

/// Nobody else is given them while this is there. Dropped before they were delivered, they can be had again.
#[derive(Debug)]
pub(super) struct Lent {
    shared: Arc<Shared>,
    team: TeamName,
    role: RoleName,
    ids: Vec<Uuid>,
}

impl Lent {
    /// All messages of a member that are not on their way already, the oldest first.
    pub(super) fn from(shared: &Arc<Shared>, team: &TeamName, role: &RoleName) -> (Self, Vec<Message>) {
        let mail = mailbox(&mut shared.state().registry, team, role).map(Mailbox::lend).unwrap_or_default();
        let ids = mail.iter().map(|message| message.message_id).collect();
        (Self { shared: Arc::clone(shared), team: team.clone(), role: role.clone(), ids }, mail)
    }

    /// Whoever asked has them. Returns when that is on disk; it gets there also if nobody waits for it.
    pub(super) async fn delivered(mut self) {
        let ids = std::mem::take(&mut self.ids);
        if ids.is_empty() {
            return;
        }
        self.shared.change(|registry| {
            if let Some(mail) = mailbox(registry, &self.team, &self.role) {
                mail.remove(&ids);
            }
        });
        let shared = Arc::clone(&self.shared);
        let saved =
            self.shared.tasks.spawn(async move { shared.save_or_warn("messages were delivered").await });
        // It fails only with the runtime, and then nobody waits.
        let _ = saved.await;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        // Who has been lent what is in no file, so there is nothing to save.
        if let Some(mail) = mailbox(&mut self.shared.state().registry, &self.team, &self.role) {
            mail.take_back(&self.ids);
        }
    }
}

fn mailbox<'a>(registry: &'a mut Registry, team: &TeamName, role: &RoleName) -> Option<&'a mut Mailbox> {
    let member = registry.teams.get_mut(team)?.member_mut(role.as_str())?;
    Some(&mut member.mail)
}
