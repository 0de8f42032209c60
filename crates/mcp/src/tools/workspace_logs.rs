//! `workspace_logs`: shows the output of the guest's console, of QEMU and of the network.

use agentiso_daemon::LogKind;
use serde_json::{Map, Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Choice, Integer, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate;

/// Characters shown of one log, as JSON: a line can have any length, and there are three logs.
const MAX_CHARACTERS: usize = 15_000;

/// An unknown word means all, as it did for earlier clients.
const LOG_TYPE: Choice<LogKind> = Choice {
    otherwise: Some(LogKind::All),
    ..Choice::new(
        "log_type",
        "console: guest kernel. stderr: QEMU. network: connections, with the reason if refused.",
        &[
            ("console", LogKind::Console),
            ("stderr", LogKind::Stderr),
            ("network", LogKind::Network),
            ("all", LogKind::All),
        ],
    )
    .default("all")
};
const MAX_LINES: Integer = Integer::new("max_lines", "Lines to show of each log.", 1..=10_000).default(100);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_logs",
    title: "Read a workspace's logs",
    description: "Show the last lines of a workspace's console, QEMU and network logs. Use it when a \
                  workspace does not boot, died, or a connection fails.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Optional(&LOG_TYPE), Slot::Optional(&MAX_LINES)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    let text = schema::optional_text();
    json!({ "console": text, "stderr": text, "network": text })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let kind = args.optional(&LOG_TYPE);
    let lines = args.optional(&MAX_LINES);
    let (workspace, kind, lines) =
        args.finish((|| Some((workspace?, kind?.unwrap_or(LogKind::All), lines?.unwrap_or(100))))())?;
    Ok(Box::pin(async move {
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        let logs = call.session.logs(&workspace, kind, lines).await?;
        let mut answer = Map::new();
        for (key, log) in [("console", logs.console), ("stderr", logs.stderr), ("network", logs.network)] {
            if let Some(log) = log {
                answer.insert(key.to_owned(), end_of(log).into());
            }
        }
        Ok(Answer::json(answer.into()))
    }))
}

fn end_of(log: String) -> String {
    let end = truncate::end_within(&log, MAX_CHARACTERS);
    if end.len() == log.len() {
        return log;
    }
    let (all, shown) = (log.len(), end.len());
    format!(
        "[TRUNCATED {all} bytes in all, the last {shown} shown; agentiso logs shows more on the host]\n{end}"
    )
}
