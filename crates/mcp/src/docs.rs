//! Renders the reference of the tools from the table that serves them. `docs/tools.md` holds the output of [`render`];
//! a test compares the two.

use std::fmt::Write;

use serde_json::Value;

use crate::args::{Slot, input_schema};
use crate::profile::Profile;
use crate::prompts::PROMPTS;
use crate::registry::{EARLIER, SINGLE_ACTIONS, TOOLS, Tool};
use crate::resources::KINDS;

const INTRODUCTION: &str = "\
<!-- Written by `agentiso_mcp::docs::render`. Change the tools in crates/mcp/src/tools, not this file. -->

# Tools

Every answer comes twice: as text and as `structuredContent`. Either is enough by itself. Where the text is a bare
JSON array, the structured form is an object with one member that holds it.

A call that fails answers with `isError: true`. Its text says what failed, what would be valid and what to do next; its
structured form is `{code, message, hint, retryable}` with a stable `code`. Wrong arguments are reported all at once,
before anything runs, with code `invalid_arguments` and a list `problems`. Only malformed requests and unknown tools get
a JSON-RPC error.

In arguments, `null` counts as left out. An integer may be written as a float without a fraction (`120.0`). A
number in quotes is refused. Names and UUIDs of workspaces are interchangeable.

A request whose `_meta` carries a `progressToken` gets progress notifications; others get none. Cancelling a call, or
closing the connection, aborts it: a command in a guest is killed with everything it started.

A request may have up to 64 MiB. A longer one is refused and skipped; the session continues.

";

const SINGLE: &str = "\
# Single actions

The actions of `snapshot` as separate tools: easier for small models, and known to clients of earlier versions. They are
listed if `--tools` names them (two are part of `core`) and can be called wherever `snapshot` is offered. Each accepts
`name` and `snapshot_name` as the same argument.

";

const RESOURCES: &str = "\
# Resources

Data that can be read without a tool. `resources/list` shows the session's own workspaces and the notes of the vault, in
pages; everything else is read with the templates below, with completion for names, paths and ids. Access is the same as
for the tool that shows the same data: a session that may not call the tool may not read the resource, and a profile
without the tool does not offer it.

Workspaces and jobs can be subscribed to: `notifications/resources/updated` is sent when a workspace changes (its state, VM,
network policy, snapshots or owner), is created or destroyed, and when a job ends. Stateless requests use
`subscriptions/listen` instead.

| template | |
|---|---|
";

const PROMPTS_BEGIN: &str = "\
# Prompts

Workflows that a user can choose. A prompt is offered if the session has all the tools that it names.

";

/// The text of `docs/tools.md`.
pub fn render() -> String {
    let mut text = INTRODUCTION.to_owned();
    for tool in TOOLS {
        section(&mut text, tool);
    }
    text.push_str(SINGLE);
    for tool in SINGLE_ACTIONS {
        section(&mut text, tool);
    }
    text.push_str(RESOURCES);
    for kind in KINDS {
        write(&mut text, format_args!("| `{}` | {} |\n", kind.template, kind.about));
    }
    text.push('\n');
    text.push_str(PROMPTS_BEGIN);
    for prompt in PROMPTS {
        write(&mut text, format_args!("## `{}`\n\n{}\n\n", prompt.name, prompt.description));
        arguments(&mut text, prompt.slots);
    }
    closing(&mut text);
    text
}

fn section(text: &mut String, tool: &Tool) {
    let hints = tool.hints;
    let mut traits = Vec::new();
    traits.push(if hints.read_only { "changes nothing" } else { "changes something" });
    if hints.destructive {
        traits.push("destructive");
    }
    if hints.idempotent && !hints.read_only {
        traits.push("idempotent");
    }
    write(text, format_args!("## `{}`\n\n{}\n\n*{}*\n\n", tool.name, tool.description, traits.join(", ")));
    arguments(text, tool.slots);
    if let Value::Object(members) = (tool.output)() {
        let names: Vec<String> =
            members
                .iter()
                .map(|(name, schema)| {
                    if schema.get("optional").is_some() { format!("`{name}?`") } else { format!("`{name}`") }
                })
                .collect();
        write(text, format_args!("Structured answer: {}.\n\n", names.join(", ")));
    }
}

fn arguments(text: &mut String, slots: &[Slot]) {
    if slots.is_empty() {
        text.push_str("No arguments.\n\n");
        return;
    }
    text.push_str("| argument | type | |\n|---|---|---|\n");
    let schema = input_schema(slots, false);
    for slot in slots.iter().filter(|slot| slot.is_listed()) {
        let name = slot.parameter().name();
        let property = &schema["properties"][name];
        let needed = if slot.is_required(false) { "**required.** " } else { "" };
        let about = property["description"].as_str().unwrap_or_default().replace('|', "\\|");
        write(text, format_args!("| `{name}` | {} | {needed}{about} |\n", kind(property)));
    }
    text.push('\n');
}

fn kind(property: &Value) -> String {
    let mut words = property["type"].as_str().unwrap_or("anything").to_owned();
    if let Value::Array(choices) = &property["enum"] {
        let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
        words = choices.join(" / ");
    }
    match (property["minimum"].as_u64(), property["maximum"].as_u64()) {
        (Some(min), Some(max)) => write(&mut words, format_args!(", {min} to {max}")),
        (Some(min), None) => write(&mut words, format_args!(", {min} or more")),
        (None, _) => {}
    }
    match &property["default"] {
        Value::Null => {}
        Value::String(default) => write(&mut words, format_args!(", default {default}")),
        default @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            write(&mut words, format_args!(", default {default}"))
        }
    }
    words
}

fn closing(text: &mut String) {
    let core = match Profile::parse("core", false) {
        Ok(profile) => profile.tools().map(|tool| format!("`{}`", tool.name)).collect::<Vec<_>>().join(", "),
        Err(_) => String::new(),
    };
    let targets =
        TOOLS.iter().filter(|tool| tool.slots.iter().any(|slot| matches!(slot, Slot::Target(_)))).count();
    let earlier: Vec<String> = EARLIER
        .iter()
        .filter(|(name, _, _)| !SINGLE_ACTIONS.iter().any(|single| single.name == *name))
        .map(|(name, _, now)| format!("`{name}` (now in `{now}`)"))
        .collect();
    write(
        text,
        format_args!(
            "# Profiles\n\n`full` offers all tools. `core` offers {core}; in it the workspace may be left out (in the \
             {targets} tools that work on one) while the session owns exactly one. `--read-only` offers only tools \
             that change nothing.\n\nThese names of earlier versions can be called but are not listed: {}.\n",
            earlier.join(", "),
        ),
    );
}

/// Writing to a `String` cannot fail.
fn write(text: &mut String, words: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(words);
}
