//! Parses the text of a ledger entry by entry: an unreadable entry does not affect the others.
//!
//! If the checksum does not match the text, any part may differ from what was written, even where it makes sense.
//! The document then gets revision 0, so that every description in a directory outranks it.
//!
//! | `schema_version` | what becomes of it |
//! |---|---|
//! | 5 | read |
//! | 4 | read: it has no `revision` and no `removing`, which have defaults |
//! | below 4 | an earlier program's; its VMs cannot be taken over |
//! | above 5 | a newer program's; refused by the caller |

use std::collections::BTreeMap;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::{Team, TeamName, Teams};
use agentiso_sys::seal::{self, Seal};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schema::{LedgerDocument, SCHEMA_VERSION, StoredSession, StoredWorkspace};

/// The first version that this program wrote.
const OLDEST: u64 = 4;

/// The result of parsing a text.
#[derive(Debug)]
pub(super) enum Parsed {
    Whole(Box<LedgerDocument>),
    /// Some entries could not be read; there is a line for each.
    Partial {
        document: Box<LedgerDocument>,
        problems: Vec<String>,
    },
    Newer(u64),
    /// Nothing of it can be used.
    Unusable(String),
}

pub(super) fn parse(text: &str) -> Parsed {
    let mut ledger: Map<String, Value> = match serde_json::from_str(text) {
        Ok(ledger) => ledger,
        Err(error) => return Parsed::Unusable(error.to_string()),
    };
    match ledger.get("schema_version").and_then(Value::as_u64) {
        None => return Parsed::Unusable("it has no schema_version".to_owned()),
        Some(found) if found > SCHEMA_VERSION => return Parsed::Newer(found),
        Some(found) if found < OLDEST => {
            return Parsed::Unusable(format!(
                "schema {found} is of an older program, whose VMs cannot be taken over"
            ));
        }
        Some(_) => {}
    }
    let mut problems = Vec::new();
    let is_changed = seal::check(text) == Seal::Broken;
    if is_changed {
        problems.push("its checksum does not match its content".to_owned());
    }
    let revision = optional(&mut ledger, "revision", &mut problems);
    let document = LedgerDocument {
        schema_version: SCHEMA_VERSION,
        saved_at: field(&mut ledger, "saved_at", &mut problems).unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        revision: if is_changed { 0 } else { revision },
        workspaces: workspaces(&mut ledger, &mut problems),
        sessions: sessions(&mut ledger, &mut problems),
        teams: teams(&mut ledger, &mut problems),
        counters: optional(&mut ledger, "counters", &mut problems),
        mended: optional(&mut ledger, "mended", &mut problems),
    };
    let document = Box::new(document);
    match problems.is_empty() {
        true => Parsed::Whole(document),
        false => Parsed::Partial { document, problems },
    }
}

fn field<T: DeserializeOwned>(
    ledger: &mut Map<String, Value>,
    name: &str,
    problems: &mut Vec<String>,
) -> Option<T> {
    let Some(value) = ledger.remove(name) else {
        problems.push(format!("{name} is missing"));
        return None;
    };
    serde_json::from_value(value).map_err(|error| problems.push(format!("{name}: {error}"))).ok()
}

fn optional<T: DeserializeOwned + Default>(
    ledger: &mut Map<String, Value>,
    name: &str,
    problems: &mut Vec<String>,
) -> T {
    if !ledger.contains_key(name) {
        return T::default();
    }
    field(ledger, name, problems).unwrap_or_default()
}

fn workspaces(
    ledger: &mut Map<String, Value>,
    problems: &mut Vec<String>,
) -> BTreeMap<WorkspaceId, StoredWorkspace> {
    let entries: Map<String, Value> = field(ledger, "workspaces", problems).unwrap_or_default();
    let mut workspaces = BTreeMap::new();
    for (key, value) in entries {
        let entry = key
            .parse::<WorkspaceId>()
            .map_err(|error| error.to_string())
            .and_then(|id| Ok((id, serde_json::from_value(value).map_err(|error| error.to_string())?)));
        match entry {
            Ok((id, workspace)) => drop(workspaces.insert(id, workspace)),
            Err(problem) => problems.push(format!("workspace {key}: {problem}")),
        }
    }
    workspaces
}

fn sessions(ledger: &mut Map<String, Value>, problems: &mut Vec<String>) -> Vec<StoredSession> {
    let entries: Vec<Value> = optional(ledger, "sessions", problems);
    let parsed = entries.into_iter().map(serde_json::from_value);
    parsed
        .filter_map(|session| session.map_err(|error| problems.push(format!("a session: {error}"))).ok())
        .collect()
}

fn teams(ledger: &mut Map<String, Value>, problems: &mut Vec<String>) -> Teams {
    let entries: Map<String, Value> = optional(ledger, "teams", problems);
    let mut teams = Teams::default();
    for (key, value) in entries {
        let entry = TeamName::parse(&key).map_err(|error| error.to_string()).and_then(|name| {
            Ok((name, serde_json::from_value::<Team>(value).map_err(|error| error.to_string())?))
        });
        match entry {
            Ok((name, team)) => drop(teams.restore(name, team)),
            Err(problem) => problems.push(format!("team {key}: {problem}")),
        }
    }
    teams
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = include_str!("../../tests/fixtures/ledger-v4.json");
    const V4_SNAPSHOTS: &str = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
    const V4_TEAMS: &str = include_str!("../../tests/fixtures/ledger-v4-teams.json");

    fn whole(text: &str) -> LedgerDocument {
        match parse(text) {
            Parsed::Whole(document) => *document,
            other @ (Parsed::Partial { .. } | Parsed::Newer(_) | Parsed::Unusable(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn version_4_ledgers_are_migrated() {
        let document = whole(V4);
        assert_eq!((document.schema_version, document.revision), (SCHEMA_VERSION, 0));
        assert_eq!(document.workspaces.len(), 3);
        assert_eq!(document.sessions[0].workspace_ids.len(), 1);
        assert_eq!(document.counters.last_address, Some("10.42.0.4".parse().unwrap()));
        assert!(!whole(V4_TEAMS).teams.is_empty());
    }

    #[test]
    fn snapshots_and_forks_of_version_4_are_read() {
        let document = whole(V4_SNAPSHOTS);
        let all: Vec<_> = document.workspaces.values().collect();
        assert_eq!(all[0].snapshots[1].parent, Some(all[0].snapshots[0].id));
        assert_eq!(all[0].current, Some(all[0].snapshots[1].id));
        assert_eq!(all[1].restoring, all[1].current);
        assert_eq!(all[1].forked_from.as_ref().unwrap().snapshot_id, all[0].snapshots[1].id);
    }

    /// Written by the last program that used version 4, with real VMs: one of a shell, one of a session and one of
    /// a team.
    #[test]
    fn real_version_4_ledger_is_read() {
        let document = whole(include_str!("../../tests/fixtures/ledger-v4-made.json"));
        let named = |name: &str| document.workspaces.values().find(|w| w.name.as_str() == name).unwrap();
        let web = named("web");
        let snapshots: Vec<_> = web.snapshots.iter().map(|s| (s.name.as_str(), s.has_memory)).collect();
        assert_eq!(snapshots, [("clean", true), ("ready", false)]);
        assert!(web.vm.is_some() && web.current == Some(web.snapshots[1].id));
        assert_eq!(named("idea").forked_from.as_ref().unwrap().snapshot_id, web.snapshots[0].id);
        let owned: usize = document.sessions.iter().map(|session| session.workspace_ids.len()).sum();
        assert_eq!((document.workspaces.len(), owned), (4, 4));
        assert_eq!(document.teams.find("crew").unwrap().1.members.len(), 1);
    }

    /// The same ledger after this program took it over.
    #[test]
    fn real_version_5_ledger_is_read() {
        let document = whole(include_str!("../../tests/fixtures/ledger-v5-made.json"));
        assert_eq!((document.revision, document.workspaces.len()), (1, 4));
        assert!(document.teams.find("crew").is_ok());
    }

    #[test]
    fn bad_ledger_entry_spares_all_others() {
        let mut ledger: Value = serde_json::from_str(V4_TEAMS).unwrap();
        let (whole, keys) = {
            let workspaces = ledger["workspaces"].as_object().unwrap();
            (workspaces.len(), workspaces.keys().cloned().collect::<Vec<_>>())
        };
        ledger["workspaces"][&keys[0]]["resources"] = Value::from("a lot");
        ledger["workspaces"]["not an id"] = Value::Null;
        ledger["teams"]["bad name"] = Value::Null;
        ledger["counters"] = Value::from(7);
        let Parsed::Partial { document, problems } = parse(&ledger.to_string()) else {
            panic!("not partial")
        };
        assert_eq!((document.workspaces.len(), problems.len()), (whole - 1, 4), "{problems:?}");
        assert!(problems[0].contains("counters") || problems.iter().any(|line| line.contains(&keys[0])));
        assert!(!document.teams.is_empty());
    }

    #[test]
    fn earlier_and_newer_ledgers_are_distinguished() {
        for fixture in [
            include_str!("../../tests/fixtures/ledger-v1.json"),
            include_str!("../../tests/fixtures/ledger-v3.json"),
        ] {
            let Parsed::Unusable(problem) = parse(fixture) else { panic!("was used") };
            assert!(problem.contains("older program"), "{problem}");
        }
        let newer = "{\"schema_version\": 6, \"workspaces\": \"in a form to come\"}";
        assert!(matches!(parse(newer), Parsed::Newer(6)));
    }

    #[test]
    fn damaged_texts_are_unusable() {
        for bad in ["", "{", "[]", "{\"schema_version\":\"x\"}", "{\"schema_version\":-1}", "\u{0}\u{1}"] {
            assert!(matches!(parse(bad), Parsed::Unusable(_)), "{bad:?}");
        }
        assert!(matches!(parse("{\"schema_version\":4}"), Parsed::Partial { .. }));
    }

    #[test]
    fn every_changed_byte_of_a_ledger_is_found() {
        let mut document = whole(V4_SNAPSHOTS);
        document.revision = 7;
        let sealed = seal::seal(&serde_json::to_string_pretty(&document).unwrap());
        assert_eq!(whole(&sealed), document);
        for (at, byte) in sealed.bytes().enumerate() {
            for other in [b'0', b'8', b'b', b'e'].into_iter().filter(|other| *other != byte) {
                let mut changed = sealed.clone().into_bytes();
                changed[at] = other;
                match parse(std::str::from_utf8(&changed).unwrap()) {
                    // Only a change in the name of the checksum field stays unnoticed.
                    Parsed::Whole(read) => assert_eq!(*read, document, "{at}"),
                    Parsed::Partial { document, problems } => {
                        assert_eq!(document.revision, 0, "{at}: {problems:?}");
                    }
                    Parsed::Newer(_) | Parsed::Unusable(_) => {}
                }
            }
        }
    }

    #[test]
    fn wrong_byte_never_invents_a_workspace() {
        let good = whole(V4_SNAPSHOTS);
        for at in 0..V4_SNAPSHOTS.len() {
            let mut bytes = V4_SNAPSHOTS.as_bytes().to_vec();
            bytes[at] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            match parse(&text) {
                Parsed::Whole(document) | Parsed::Partial { document, .. } => {
                    assert!(document.workspaces.len() <= good.workspaces.len());
                }
                Parsed::Newer(_) | Parsed::Unusable(_) => {}
            }
        }
    }
}
