//! A team of two and its messages: those that were sent and not received must be there, in order.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Player;
use super::call::{About, Answer};
use crate::site::pause;

const MEMBERS: [&str; 2] = ["ann", "bob"];

/// Error codes after which an inbox is unchanged.
const NOT_STORED: [&str; 2] = ["no_space", "mail_not_stored"];

const UNDONE_WITHIN: Duration = Duration::from_secs(120);

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The most messages in an inbox. It holds a hundred, and would drop the oldest.
const MOST_MAIL: usize = 50;

#[derive(Debug)]
pub(crate) struct Team {
    name: String,
    /// The messages that bob has not received. False: the call that sent or received it got no answer.
    mail: Vec<(String, bool)>,
}

impl Team {
    /// The workspace names of the members.
    pub(super) fn members(&self) -> impl Iterator<Item = String> + '_ {
        MEMBERS.iter().map(|member| format!("{}.{member}", self.name))
    }
}

impl Player<'_> {
    /// Makes the team, or sometimes destroys it.
    pub(super) fn team(&mut self, choice: u64) {
        match &self.team {
            None => self.make_team(),
            Some(_) if choice.is_multiple_of(3) => self.end_team(),
            Some(_) => self.send(),
        }
    }

    fn make_team(&mut self) {
        let name = self.fresh("t");
        let roles: Vec<_> = MEMBERS.iter().map(|member| json!({"name": member, "role": "worker"})).collect();
        let about = About { makes_vms: true, ..About::default() };
        let arguments = json!({"action": "create", "name": name, "roles": roles});
        match self.call("team", &arguments, &about) {
            Answer::Done(_) => self.team = Some(Team { name, mail: Vec::new() }),
            Answer::Refused { .. } | Answer::Cut => self.discard_team(&name),
        }
    }

    /// Destroys the team. Its messages are lost with it, so they are compared first, but not over a new connection:
    /// that is used for cleaning up only.
    pub(super) fn end_team(&mut self) {
        if self.client.as_ref().is_some_and(|client| !client.is_closed()) {
            self.receive();
        }
        if let Some(team) = self.team.take() {
            self.discard_team(&team.name);
        }
    }

    fn discard_team(&mut self, name: &str) {
        let begun = Instant::now();
        while begun.elapsed() < UNDONE_WITHIN {
            // A team that is being made or removed gives one of these codes.
            let fine = ["team_not_found", "team_going", "team_being_made", "owner_active"];
            let about = About { makes_vms: true, fine: &fine, ..About::default() };
            let answer = self.call("team", &json!({"action": "destroy", "name": name}), &about);
            if answer.is_done() || answer.is_refused_as("team_not_found") {
                return;
            }
            if self.client.is_none() && self.site.is_over() && begun.elapsed() > UNDONE_WITHIN / 2 {
                return;
            }
            pause(LOOK_EVERY);
        }
        self.unexpected(&format!("team {name} could not be removed within {UNDONE_WITHIN:?}"), begun);
    }

    fn send(&mut self) {
        let content = format!("mail {:016x}", self.rng.draw());
        let Some(team) = &mut self.team else { return };
        if team.mail.len() >= MOST_MAIL {
            return self.receive();
        }
        let [from, to] = MEMBERS;
        let arguments =
            json!({"action": "message", "name": team.name, "agent": from, "to": to, "content": content});
        let answer = self.ask_team(&arguments);
        if let Some(team) = &mut self.team
            && !changed_nothing(&answer)
        {
            team.mail.push((content, answer.is_done()));
        }
    }

    /// Calls the team tool for an existing team.
    fn ask_team(&mut self, arguments: &Value) -> Answer {
        let about = About { fine: &["team_not_found"], ..About::default() };
        let answer = self.call("team", arguments, &about);
        if answer.is_refused_as("team_not_found")
            && let Some(team) = self.team.take()
        {
            self.lost(&format!("team {} is gone, and {} messages with it", team.name, team.mail.len()));
        }
        answer
    }

    pub(super) fn mail(&mut self, choice: u64) {
        if choice.is_multiple_of(3) { self.receive() } else { self.send() }
    }

    pub(super) fn receive(&mut self) {
        let Some(team) = &self.team else { return };
        let arguments = json!({"action": "receive", "name": team.name, "agent": MEMBERS[1], "limit": 100});
        let answer = self.ask_team(&arguments);
        if changed_nothing(&answer) {
            return;
        }
        let Some(result) = answer.done() else {
            // Messages in an answer that never arrived are lost, as the contract says.
            if let Some(team) = &mut self.team {
                team.mail.iter_mut().for_each(|(_, is_sure)| *is_sure = false);
            }
            return;
        };
        let answer = result.json();
        let received: Vec<String> = answer["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect();
        let Some(team) = &mut self.team else { return };
        let (name, expected) = (team.name.clone(), std::mem::take(&mut team.mail));
        for difference in differences(&expected, &received) {
            self.lost(&format!("mail of team {name}: {difference}"));
        }
    }
}

fn changed_nothing(answer: &Answer) -> bool {
    NOT_STORED.iter().any(|code| answer.is_refused_as(code))
}

/// Received messages must equal the sent ones, in order; uncertain ones may be missing.
fn differences(expected: &[(String, bool)], received: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = received.iter().peekable();
    for (content, is_sure) in expected {
        if rest.next_if_eq(&content).is_none() && *is_sure {
            found.push(format!("{content:?} is missing"));
        }
    }
    found.extend(rest.map(|content| format!("{content:?} came out of turn")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_mail_is_noticed() {
        let sent = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
            list.iter().map(|(text, sure)| ((*text).to_owned(), *sure)).collect()
        };
        let got = |list: &[&str]| -> Vec<String> { list.iter().map(|text| (*text).to_owned()).collect() };
        let all = sent(&[("a", true), ("b", false), ("c", true)]);
        assert!(differences(&all, &got(&["a", "b", "c"])).is_empty());
        assert!(differences(&all, &got(&["a", "c"])).is_empty(), "b was cut off");
        assert_eq!(differences(&all, &got(&["a", "b"])), ["\"c\" is missing"]);
        assert!(!differences(&all, &got(&["a", "a", "c"])).is_empty(), "a came twice");
    }
}
