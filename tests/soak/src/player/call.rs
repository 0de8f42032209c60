//! Tool calls and the judgement of their results: an error that no fault explains is a finding.

use std::time::{Duration, Instant};

use agentiso_testkit::{RpcReply, ToolResult};
use serde_json::Value;

use super::Player;
use crate::journal::Kind;
use crate::site::{Call, pause};
use crate::weather::Trouble;

/// No call may take longer, under emulation on a busy host.
const ANSWER_DEADLINE: Duration = Duration::from_secs(240);

/// The interval of checks whether the connection has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The time limit for retries of calls whose error says that a retry helps.
const RETRY_DEADLINE: Duration = Duration::from_secs(60);

const RETRY_EVERY: Duration = Duration::from_millis(300);

/// Errors that mean "not yet". Other programs can cause a lack of memory on the host; if it persists, the host is too
/// small for the run, and that is reported.
const NOT_YET: [&str; 3] = ["still_attaching", "busy", "host_memory"];

/// The daemon's message to a call whose client has disconnected, if it can still be sent.
pub(super) const CANCELLED: &str = "the request was cancelled";

/// Calls that may surround every deed and are no deed themselves.
const LOOKS: [&str; 3] = ["workspace_info", "workspace_list", "workspace_start"];

/// The context of a call, which is needed to explain its failure.
#[derive(Clone, Debug, Default)]
pub(super) struct About<'b> {
    pub(super) vm: Option<&'b str>,
    pub(super) makes_vms: bool,
    pub(super) starts_vm: bool,
    /// Error codes that are acceptable answers for this call.
    pub(super) fine: &'b [&'b str],
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Done(ToolResult),
    Refused {
        code: String,
    },
    /// No answer came: the call may or may not have been carried out.
    Cut,
}

impl Answer {
    pub(super) fn done(self) -> Option<ToolResult> {
        match self {
            Self::Done(result) => Some(result),
            Self::Refused { .. } | Self::Cut => None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    pub(super) fn is_refused_as(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code } if code == wanted)
    }
}

impl Player<'_> {
    /// Calls a tool. A failure that neither a fault nor `about.fine` explains is recorded.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value, about: &About<'_>) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.call_once(tool, arguments, about);
            let again = matches!(&answer, Answer::Refused { code } if NOT_YET.contains(&code.as_str()));
            if !again {
                return answer;
            }
            if begun.elapsed() > RETRY_DEADLINE {
                self.unexpected(&format!("{tool}: {answer:?} for {RETRY_DEADLINE:?}"), begun);
                return answer;
            }
            pause(RETRY_EVERY);
        }
    }

    fn call_once(&mut self, tool: &str, arguments: &Value, about: &About<'_>) -> Answer {
        let since = Instant::now();
        let Some(client) = self.connection() else { return Answer::Cut };
        let sent = Instant::now();
        self.acted |= !LOOKS.contains(&tool);
        let vm = about.vm.map(str::to_owned);
        let call = Call { tool: tool.to_owned(), vm, makes_vms: about.makes_vms };
        self.site.awaits(self.index, Some(call));
        let pending = client.start_tool(tool, arguments.clone());
        let reply = loop {
            if let Some(reply) = pending.wait_for(LOOK_EVERY) {
                break Some(reply);
            }
            if client.is_closed() {
                // An answer may have come together with the end of the connection.
                break pending.wait_for(Duration::ZERO);
            }
            if sent.elapsed() > ANSWER_DEADLINE {
                break None;
            }
        };
        self.site.awaits(self.index, None);
        let took = sent.elapsed();
        let words = format!("{tool} {}", brief(&arguments.to_string()));
        let Some(reply) = reply else {
            let what = if client.is_closed() { "the connection ended" } else { "no answer" };
            self.note(&format!("{words}: {what} after {:.1} s", took.as_secs_f64()));
            client.kill();
            self.drop_connection();
            let trouble = Trouble { code: None, ..self.trouble(about) };
            if !self.site.weather.explains(&trouble, since) {
                let stderr = client.stderr();
                let last = stderr.lines().last().unwrap_or_default();
                self.unexpected(&format!("{words}: {what} after {took:.1?}; serve said: {last}"), since);
            }
            return Answer::Cut;
        };
        let (code, text) = match reply {
            RpcReply::Result(value) => {
                let text = value["content"][0]["text"].as_str().unwrap_or_default().to_owned();
                let structured = value["structuredContent"].clone();
                if !value["isError"].as_bool().unwrap_or(false) {
                    self.note(&format!("{words}: ok in {:.2} s", took.as_secs_f64()));
                    return Answer::Done(ToolResult { text, structured, is_error: false });
                }
                (structured["code"].as_str().unwrap_or("no_code").to_owned(), text)
            }
            RpcReply::Error { message, .. } if message == CANCELLED => ("cancelled".to_owned(), message),
            RpcReply::Error { code, message } => (format!("rpc {code}"), message),
        };
        self.note(&format!("{words}: {code} after {:.2} s: {}", took.as_secs_f64(), brief(&text)));
        let trouble = Trouble { code: Some(&code), ..self.trouble(about) };
        let is_fine = about.fine.contains(&code.as_str()) || NOT_YET.contains(&code.as_str());
        if !is_fine && !self.site.weather.explains(&trouble, since) {
            self.unexpected(&format!("{words}: {code}: {text}"), since);
        }
        Answer::Refused { code }
    }

    fn trouble<'b>(&self, about: &About<'b>) -> Trouble<'b> {
        Trouble {
            code: None,
            client: self.index,
            vm: about.vm,
            makes_vms: about.makes_vms,
            starts_vm: about.starts_vm,
        }
    }

    pub(super) fn note(&self, text: &str) {
        self.site.journal.note(&self.who(), text);
    }

    pub(super) fn unexpected(&self, text: &str, since: Instant) {
        let told = self.site.weather.told_since(since);
        self.site.journal.find(Kind::Unexpected, &self.who(), &format!("{text} [under way: {told}]"));
    }

    pub(super) fn lost(&self, text: &str) {
        self.site.journal.find(Kind::Lost, &self.who(), text);
    }
}

/// The beginning of a text, on one line.
pub(super) fn brief(text: &str) -> String {
    text.chars().take(220).map(|c| if c == '\n' { ' ' } else { c }).collect()
}
