//! Messages on their way to a program, until it has them.

use std::sync::Arc;

use agentiso_core::team::{Message, RoleName, TeamName};

use crate::shared::Shared;

/// Taken out of a mailbox. Dropped before they were delivered, they are put back.
#[derive(Debug)]
pub(super) struct Taken {
    shared: Arc<Shared>,
    team: TeamName,
    role: RoleName,
    messages: Vec<Message>,
}

impl Taken {
    /// All messages of a member, the oldest first.
    pub(super) fn from(shared: &Arc<Shared>, team: &TeamName, role: &RoleName) -> Self {
        let messages = shared.change(|registry| {
            let member = registry.teams.get_mut(team).and_then(|team| team.member_mut(role.as_str()));
            member.map(|member| member.mail.take(usize::MAX)).unwrap_or_default()
        });
        Self { shared: Arc::clone(shared), team: team.clone(), role: role.clone(), messages }
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whoever asked has them.
    pub(super) fn delivered(mut self) {
        self.messages.clear();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        if messages.is_empty() {
            return;
        }
        self.shared.change(|registry| {
            let member =
                registry.teams.get_mut(&self.team).and_then(|team| team.member_mut(self.role.as_str()));
            if let Some(member) = member {
                member.mail.give_back(messages);
            }
        });
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn(async move { shared.save_or_warn("messages were not delivered").await });
    }
}
