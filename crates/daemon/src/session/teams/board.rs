//! Updates the status of members from the task board: a member that has taken on a task is working.

use std::collections::BTreeSet;

use agentiso_core::team::{RoleName, TeamName};
use agentiso_vault::Vault;
use agentiso_vault::board::{Board, BoardError, Status};

use super::cards;
use crate::error::OpError;
use crate::session::Session;

impl Session {
    /// Changes the board of a team and updates its members' status. Once begun, both are done even if the client gives
    /// up.
    pub async fn change_board<T, E>(
        &self,
        team: TeamName,
        change: impl FnOnce(&Vault) -> Result<T, E> + Send + 'static,
    ) -> Result<T, OpError>
    where
        T: Send + 'static,
        E: Into<OpError> + Send + 'static,
    {
        self.guarded(|session, _| async move {
            let changed = session.vault(change).await?;
            session.board_changed(&team).await;
            Ok(changed)
        })
        .await
    }

    /// Updates the status of members. A failure is only logged, because the board has been changed already.
    async fn board_changed(&self, team: &TeamName) {
        let changed = {
            // One update at a time, so that the latest look at the board decides the status.
            let _lock = self.shared().cards.lock().await;
            let name = team.clone();
            match self.vault(move |vault| busy(&Board::of_team(vault, name.as_str())?)).await {
                Ok(busy) => self.set_busy(team, &busy),
                Err(error) => {
                    tracing::warn!(%team, %error, "cannot update which members of a team are busy");
                    return;
                }
            }
        };
        if changed.is_empty() {
            return;
        }
        self.shared().save_or_warn("the board of a team was changed").await;
        for member in &changed {
            cards::write(self.shared(), team, Some(member)).await;
        }
    }

    /// Sets which members are busy, and returns those whose status changed.
    fn set_busy(&self, team: &TeamName, busy: &BTreeSet<String>) -> Vec<RoleName> {
        self.shared().change(|registry| {
            let members = registry.teams.get_mut(team).into_iter().flat_map(|team| &mut team.members);
            let changed = members.filter_map(|member| {
                let is_busy = busy.contains(member.name.as_str());
                member.set_on_board(is_busy).then(|| member.name.clone())
            });
            changed.collect()
        })
    }
}

/// The owners of tasks that are neither finished nor given back.
fn busy(board: &Board) -> Result<BTreeSet<String>, BoardError> {
    let taken = |status: Status| match status {
        Status::Claimed | Status::InProgress => true,
        Status::Pending | Status::Completed | Status::Failed => false,
    };
    let tasks = board.list()?.tasks;
    Ok(tasks.into_iter().filter(|task| taken(task.status)).filter_map(|task| task.owner).collect())
}
