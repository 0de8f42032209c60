//! The table of prompts, and the functions that list, fill in and complete them.

use agentiso_core::suggest::nearest;
use agentiso_daemon::Session;
use rmcp::model::{
    ErrorData, GetPromptResult, JsonObject, Prompt as ListedPrompt, PromptArgument, PromptMessage, Role,
};
use serde_json::Value;
use std::collections::HashMap;

use super::words::{SNAPSHOT, WORKSPACE, Words};
use super::{build_environment, parallel_hypotheses, safe_experiment, sandbox_review};
use crate::answer::Failure;
use crate::args::{Invalid, Parameter, Reader, Slot};
use crate::profile::Profile;
use crate::resources;

/// In the order in which they are listed.
pub(crate) const PROMPTS: &[&Prompt] = &[
    &safe_experiment::PROMPT,
    &parallel_hypotheses::PROMPT,
    &build_environment::PROMPT,
    &sandbox_review::PROMPT,
];

pub(crate) struct Prompt {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) slots: &'static [Slot],
    /// Tools that the prompt requires.
    pub(crate) needs: &'static [&'static str],
    /// Whether it also requires tools that take and restore snapshots.
    pub(crate) needs_snapshots: bool,
    pub(crate) write: fn(Reader, Words<'_>) -> Result<String, Invalid>,
}

pub(crate) fn offered(profile: &Profile) -> impl Iterator<Item = &'static Prompt> {
    PROMPTS.iter().copied().filter(|prompt| {
        prompt.needs.iter().all(|tool| profile.offers(tool))
            && (!prompt.needs_snapshots || Words(profile).has_snapshots())
    })
}

pub(crate) fn listed(profile: &Profile) -> Vec<ListedPrompt> {
    let argument = |slot: &Slot| {
        let parameter = slot.parameter();
        let argument = PromptArgument::new(parameter.name()).with_required(slot.is_required(false));
        match parameter.schema().get("description").and_then(Value::as_str) {
            Some(about) => argument.with_description(about),
            None => argument,
        }
    };
    let listed = |prompt: &Prompt| {
        let arguments = prompt.slots.iter().map(argument).collect();
        ListedPrompt::new(prompt.name, Some(prompt.description), Some(arguments)).with_title(prompt.title)
    };
    offered(profile).map(listed).collect()
}

pub(crate) fn find(profile: &Profile, name: &str) -> Result<&'static Prompt, ErrorData> {
    offered(profile).find(|prompt| prompt.name == name).ok_or_else(|| {
        let shown: String = name.chars().take(80).collect();
        let names: Vec<&str> = offered(profile).map(|prompt| prompt.name).collect();
        let advice = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the prompts are {}", names.join(", ")),
        };
        ErrorData::invalid_params(format!("unknown prompt {shown:?}; {advice}"), None)
    })
}

/// The prompt with its arguments filled in: one message of the person to the model.
pub(crate) fn get(
    profile: &Profile,
    name: &str,
    arguments: Option<JsonObject>,
) -> Result<GetPromptResult, ErrorData> {
    let prompt = find(profile, name)?;
    // Clients send a field that a person left empty as an empty text.
    let arguments = arguments.map(|mut given| {
        given.retain(|_, value| value != "");
        given
    });
    let text = (prompt.write)(Reader::new(prompt.slots, arguments), Words(profile))
        .map_err(|invalid| Failure::invalid(prompt.name, invalid).into_error())?;
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(prompt.description))
}

/// All values for an argument that begin with `typed`; empty for free text, `None` if there is no such argument.
pub(crate) async fn complete(
    session: &Session,
    prompt: &Prompt,
    argument: &str,
    typed: &str,
    chosen: &HashMap<String, String>,
) -> Option<Vec<String>> {
    let slot = prompt.slots.iter().find(|slot| slot.parameter().name() == argument)?;
    let name = slot.parameter().name();
    if name == WORKSPACE.name() {
        return Some(resources::workspaces(session, typed));
    }
    if name == SNAPSHOT.name() {
        return Some(resources::snapshots(session, typed, chosen.get(WORKSPACE.name())).await);
    }
    Some(Vec::new())
}
