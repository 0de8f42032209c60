//! Checks the ledger, the quarantine and the inboxes of teams.

use agentiso_core::config::Paths;
use agentiso_daemon::ledger::{self, Found, LedgerError};

use super::report::Outcome;
use crate::output;
use crate::quarantine;

/// Checks the ledger; `None` if it is absent, or is intact and was never mended.
pub(super) fn ledger(paths: &Paths) -> Option<Outcome> {
    const NAME: &str = "ledger";
    match ledger::read(&paths.state_file) {
        Ok(Found::Absent) => None,
        Ok(Found::Whole(document)) => {
            let mended = document.mended?;
            let when = output::age(mended.at, jiff::Timestamp::now());
            let detail =
                format!("intact; repaired {when} when the daemon started: {}", mended.lines.join("; "));
            Some(Outcome::ok(NAME, detail))
        }
        Ok(Found::Damaged { problems, .. }) => Some(Outcome::note(
            NAME,
            format!("{} is damaged: {}", paths.state_file.display(), problems.join("; ")),
            "nothing to do: the next start of the daemon moves it aside and rebuilds it from the directories",
        )),
        Err(error @ LedgerError::Newer { .. }) => {
            Some(Outcome::failed(NAME, error.to_string(), "use the newer agentiso that wrote it"))
        }
        Err(error) => Some(Outcome::failed(
            NAME,
            error.to_string(),
            "make the file readable for the user who runs the daemon",
        )),
    }
}

pub(super) fn quarantine(paths: &Paths) -> Option<Outcome> {
    let found = quarantine::found(paths);
    if found.is_empty() {
        return None;
    }
    let all: Vec<String> = found.iter().map(|item| format!("{} ({})", item.what, item.reason)).collect();
    Some(Outcome::note(
        "quarantine",
        format!("{} in quarantine: {}", found.len(), all.join(", ")),
        "agentiso recover",
    ))
}

/// Checks for inboxes without a team; `None` if there are none.
pub(super) fn mail(paths: &Paths) -> Option<Outcome> {
    let orphans = quarantine::orphaned_mail(paths);
    if orphans.is_empty() {
        return None;
    }
    let all: Vec<String> = orphans.iter().map(|path| path.display().to_string()).collect();
    Some(Outcome::note(
        "mail",
        format!("left over from destroyed teams: {}", all.join(", ")),
        "remove these directories if nobody needs them",
    ))
}
