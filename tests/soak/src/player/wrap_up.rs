//! The end of a run: everything is compared with the model, every snapshot through a fork of it, and then destroyed.

use std::time::Instant;

use super::Player;

impl Player<'_> {
    /// Compares everything that this client owns.
    pub(crate) fn verify_all(&mut self) {
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        for name in &names {
            self.check_one(name);
        }
        for (name, snapshot) in self.sure_snapshots() {
            let Some(kept) = self.workspaces.get(&name).and_then(|ws| ws.snapshots.get(&snapshot)).cloned()
            else {
                continue;
            };
            let fork = self.fresh("w");
            self.fork_as(&name, &snapshot, &kept, &fork);
            if self.workspaces.contains_key(&fork) {
                self.check_one(&fork);
                self.destroy(&fork);
            } else {
                self.unexpected(&format!("snapshot {snapshot} of {name} cannot be forked"), Instant::now());
            }
        }
        if self.team.is_some() {
            self.receive();
        }
    }

    pub(crate) fn destroy_all(&mut self) {
        self.end_team();
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        for name in names {
            self.destroy(&name);
        }
    }

    pub(crate) fn leave(&mut self) {
        self.drop_connection();
    }
}
