//! The text of a hint, which names tools in backticks. A session never sees a tool that it does not offer, nor the
//! backticks.

use std::borrow::Cow;

use crate::profile::Profile;
use crate::registry;

/// Separates the clauses of a hint.
const CLAUSE: &str = "; ";

/// One hint in several wordings, the best one first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hint(Vec<Cow<'static, str>>);

impl Hint {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(vec![text.into()])
    }

    /// A wording for sessions that lack a tool of the earlier ones.
    pub(crate) fn or(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.0.push(text.into());
        self
    }

    /// The first wording whose tools are all offered. If there is none, the first one that has clauses left without
    /// the missing tools.
    pub(crate) fn for_session(&self, profile: &Profile) -> Option<String> {
        self.with_tools(|tool| profile.offers(tool))
    }

    pub(crate) fn without_tools(&self) -> Option<String> {
        self.with_tools(|_| false)
    }

    fn with_tools(&self, is_offered: impl Fn(&str) -> bool) -> Option<String> {
        let offered = |clause: &&str| tools_in(clause).all(&is_offered);
        let whole = self.0.iter().find(|text| offered(&text.as_ref()));
        whole.map(|text| plain(text)).or_else(|| {
            let rest =
                |text: &Cow<'_, str>| text.split(CLAUSE).filter(offered).map(plain).collect::<Vec<_>>();
            let left = self.0.iter().map(rest).find(|clauses| !clauses.is_empty())?;
            Some(left.join(CLAUSE))
        })
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::new(text)
    }
}

/// The tools that a text names. Other words in backticks are commands.
fn tools_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|word| is_tool(word))
}

fn is_tool(word: &str) -> bool {
    registry::find(word).next().is_some()
}

fn plain(text: &str) -> String {
    tools_in(text).fold(text.to_owned(), |plain, tool| plain.replace(&format!("`{tool}`"), tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hint: &Hint, tools: &str) -> Option<String> {
        hint.for_session(&Profile::parse(tools, false).unwrap())
    }

    #[test]
    fn clauses_with_missing_tools_are_left_out() {
        let hint = Hint::new("try again; `workspace_logs` shows why; run `agentiso check`");
        let whole = "try again; workspace_logs shows why; run `agentiso check`";
        assert_eq!(shown(&hint, "full").unwrap(), whole);
        assert_eq!(shown(&hint, "core").unwrap(), "try again; run `agentiso check`");
        assert_eq!(shown(&Hint::new("see `workspace_logs`"), "core"), None);
    }

    #[test]
    fn complete_wording_outranks_a_shortened_one() {
        let hint = Hint::new("there is none; take one with `snapshot` (action create)")
            .or("there is none; take one with `snapshot_create`");
        assert_eq!(shown(&hint, "full").unwrap(), "there is none; take one with snapshot (action create)");
        assert_eq!(shown(&hint, "core").unwrap(), "there is none; take one with snapshot_create");
        assert_eq!(shown(&hint, "exec").unwrap(), "there is none");
    }
}
