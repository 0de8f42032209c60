//! Whether what the daemon remembers can be read, and what it does not understand.

use agentiso_core::config::Paths;
use agentiso_daemon::ledger::{self, Found, LedgerError};

use super::report::Outcome;
use crate::output;
use crate::quarantine;

/// Nothing to say about a ledger that is whole and was never mended.
pub(super) fn ledger(paths: &Paths) -> Option<Outcome> {
    const NAME: &str = "ledger";
    match ledger::read(&paths.state_file) {
        Ok(Found::Absent) => None,
        Ok(Found::Whole(document)) => {
            let mended = document.mended?;
            let when = output::age(mended.at, jiff::Timestamp::now());
            let detail = format!("whole; a start {when} mended it: {}", mended.lines.join("; "));
            Some(Outcome::ok(NAME, detail))
        }
        Ok(Found::Damaged { problems, .. }) => Some(Outcome::note(
            NAME,
            format!("{} is damaged: {}", paths.state_file.display(), problems.join("; ")),
            "nothing: the next start keeps it aside and rebuilds it from the directories",
        )),
        Err(error @ LedgerError::Newer { .. }) => {
            Some(Outcome::failed(NAME, error.to_string(), "use the newer agentiso"))
        }
        Err(error) => Some(Outcome::failed(
            NAME,
            error.to_string(),
            "make the file readable for whoever runs the daemon",
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
        format!("{} there: {}", found.len(), all.join(", ")),
        "agentiso recover",
    ))
}

/// Nothing to say if all mail is that of a team.
pub(super) fn mail(paths: &Paths) -> Option<Outcome> {
    let orphans = quarantine::orphaned_mail(paths);
    if orphans.is_empty() {
        return None;
    }
    let all: Vec<String> = orphans.iter().map(|path| path.display().to_string()).collect();
    Some(Outcome::note(
        "mail",
        format!("of teams that are gone: {}", all.join(", ")),
        "remove these directories if nobody wants to read them",
    ))
}
