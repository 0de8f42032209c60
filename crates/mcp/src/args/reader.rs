//! Takes the arguments of one call and collects all their problems.

use agentiso_core::names::WorkspaceRef;
use agentiso_core::suggest::nearest;
use rmcp::model::JsonObject;
use serde_json::Value;

use super::names::Workspace;
use super::param::{Param, Parameter, Slot};
use super::words::echo;

/// Problems that are reported; the rest is only counted. A client that sends a thousand wrong arguments does not
/// need a thousand sentences.
const MAX_PROBLEMS: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) argument: String,
    pub(crate) problem: String,
}

/// Arguments that a tool cannot be called with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) problems: Vec<Problem>,
    pub(crate) more: usize,
}

/// The workspace that a call means if it names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Implied {
    Workspace(WorkspaceRef),
    /// A call has to name one. The text follows "is missing".
    None(String),
}

#[derive(Debug)]
pub(crate) struct Reader {
    arguments: JsonObject,
    problems: Vec<Problem>,
}

impl Reader {
    pub(crate) fn new(slots: &[Slot], arguments: Option<JsonObject>) -> Self {
        let arguments = arguments.unwrap_or_default();
        let mut reader = Self { arguments, problems: Vec::new() };
        let is_taken = |key: &str| slots.iter().any(|slot| slot.parameter().name() == key);
        let unknown: Vec<String> = reader.arguments.keys().filter(|key| !is_taken(key)).cloned().collect();
        let names: Vec<&str> =
            slots.iter().filter(|slot| slot.is_listed()).map(|slot| slot.parameter().name()).collect();
        for key in unknown {
            let advice = match (nearest(&key, names.iter().copied()), names.is_empty()) {
                (Some(near), _) => format!("is not an argument here; did you mean {near}?"),
                (None, false) => format!("is not an argument here; the arguments are {}", names.join(", ")),
                (None, true) => "is not an argument here; no arguments are taken".to_owned(),
            };
            reader.complain(&echo(&key), advice);
        }
        reader
    }

    /// A parameter that must be given.
    pub(crate) fn required<P: Param>(&mut self, param: &P) -> Option<P::Output> {
        match self.take(param.name()) {
            Some(value) => self.parse(param, value),
            None => {
                self.complain(param.name(), param.when_missing());
                None
            }
        }
    }

    /// A parameter that must be given, under its own name or under its alias.
    pub(crate) fn required_as<P: Param>(&mut self, param: &P, alias: &P) -> Option<P::Output>
    where
        P::Output: PartialEq,
    {
        let other = self.optional(alias);
        let own = match &other {
            Some(None) => self.required(param).map(Some),
            Some(Some(_)) | None => self.optional(param),
        };
        match (own?, other?) {
            (Some(own), Some(other)) if own != other => {
                let problem = format!("contradicts {}; give only one of them", param.name());
                self.complain(alias.name(), problem);
                None
            }
            (own, other) => own.or(other),
        }
    }

    /// A parameter that may be left out: `None` only if it is present and wrong.
    pub(crate) fn optional<P: Param>(&mut self, param: &P) -> Option<Option<P::Output>> {
        match self.take(param.name()) {
            Some(value) => self.parse(param, value).map(Some),
            None => Some(None),
        }
    }

    /// A text argument as the client wrote it, for answers that repeat it.
    pub(crate) fn written(&self, param: &Workspace) -> Option<String> {
        self.arguments.get(param.name()).and_then(Value::as_str).map(str::to_owned)
    }

    /// The workspace a tool works on.
    pub(crate) fn target(&mut self, param: &Workspace, implied: &Implied) -> Option<WorkspaceRef> {
        match (self.take(param.name()), implied) {
            (Some(value), _) => self.parse(param, value),
            (None, Implied::Workspace(workspace)) => Some(workspace.clone()),
            (None, Implied::None(why)) => {
                self.complain(param.name(), format!("is missing{why}"));
                None
            }
        }
    }

    /// Reports a problem, for example one of several arguments together.
    pub(crate) fn complain(&mut self, argument: &str, problem: String) {
        self.problems.push(Problem { argument: argument.to_owned(), problem });
    }

    /// The input that was built from the parameters, unless any of them had a problem.
    pub(crate) fn finish<T>(mut self, input: Option<T>) -> Result<T, Invalid> {
        match input {
            Some(input) if self.problems.is_empty() => Ok(input),
            Some(_) | None => {
                let more = self.problems.len().saturating_sub(MAX_PROBLEMS);
                self.problems.truncate(MAX_PROBLEMS);
                Err(Invalid { problems: self.problems, more })
            }
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.arguments.remove(name).filter(|value| !value.is_null())
    }

    fn parse<P: Param>(&mut self, param: &P, value: Value) -> Option<P::Output> {
        match param.parse(value) {
            Ok(output) => Some(output),
            Err(problems) => {
                for problem in problems {
                    self.complain(param.name(), problem);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Choice, Env, FileMode, Flag, Integer};
    use proptest::prelude::*;
    use serde_json::json;

    const SECONDS: Integer = Integer::new("seconds", "", 1..=100);
    const FORCE: Flag = Flag::new("force", "");
    const MODE: FileMode = FileMode { name: "mode", about: "", default: "0644" };
    const ENV: Env = Env { name: "env", about: "" };
    const WORD: Choice<u8> = Choice::new("word", "", &[("one", 1), ("two", 2)]);
    const SLOTS: &[Slot] = &[
        Slot::Required(&SECONDS),
        Slot::Optional(&FORCE),
        Slot::Optional(&MODE),
        Slot::Optional(&ENV),
        Slot::Optional(&WORD),
    ];

    type Read = (u64, Option<bool>, Option<u32>, Option<u8>);

    fn read(arguments: Value) -> Result<Read, Invalid> {
        let Value::Object(object) = arguments else { panic!("an object is needed") };
        let mut args = Reader::new(SLOTS, Some(object));
        let seconds = args.required(&SECONDS);
        let force = args.optional(&FORCE);
        let mode = args.optional(&MODE);
        let env = args.optional(&ENV);
        let word = args.optional(&WORD);
        args.finish((|| {
            env?;
            Some((seconds?, force?, mode?, word?))
        })())
    }

    fn problems(arguments: Value) -> Vec<String> {
        read(arguments)
            .unwrap_err()
            .problems
            .into_iter()
            .map(|p| format!("{} {}", p.argument, p.problem))
            .collect()
    }

    #[test]
    fn all_argument_problems_are_reported_at_once() {
        let found = problems(json!({"seconds": 0, "forse": true, "mode": 644, "word": "three",
            "env": {"PATH": "x", "A": 1, "B": "fine"}}));
        let expected = [
            "forse is not an argument here; did you mean force?",
            "seconds must be an integer between 1 and 100, not 0",
            "mode must be an octal mode in quotes such as \"0644\", \"755\" or \"0o600\", not 644",
            "env cannot be used: environment variable PATH may not be set: it changes which programs run (set it inside \
             the command instead)",
            "env has a number as value of \"A\"; values must be strings",
            "word must be one of one, two, not \"three\"",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn integer_may_be_a_whole_float_not_text() {
        assert_eq!(read(json!({"seconds": 5.0})).unwrap().0, 5);
        assert_eq!(read(json!({"seconds": 1e1})).unwrap().0, 10);
        assert!(problems(json!({"seconds": "5"}))[0].contains("leave the quotes out"));
        for wrong in
            [json!(1.5), json!(-1), json!(1e300), json!(u64::MAX), json!(4_294_967_297u64), json!([1])]
        {
            assert!(problems(json!({ "seconds": wrong }))[0].contains("between 1 and 100"));
        }
    }

    #[test]
    fn null_counts_as_left_out() {
        assert_eq!(read(json!({"seconds": 1, "force": null})).unwrap(), (1, None, None, None));
        assert_eq!(problems(json!({"seconds": null})), ["seconds is missing"]);
    }

    #[test]
    fn file_modes_are_read_as_octal() {
        for (text, mode) in [("0644", 0o644), ("644", 0o644), ("0o644", 0o644), ("7777", 0o7777), ("0", 0)] {
            assert_eq!(read(json!({"seconds": 1, "mode": text})).unwrap().2, Some(mode));
        }
        for wrong in ["", "0o", "888", "rwxr-xr-x", "0x1ff", "17777", "+644", " 644", "0o0o644", "-1"] {
            assert!(problems(json!({"seconds": 1, "mode": wrong}))[0].contains("octal"), "{wrong}");
        }
    }

    #[test]
    fn argument_problems_are_capped_at_20() {
        let many: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("zz{n}"), json!(1))).collect();
        let invalid = read(Value::Object(many)).unwrap_err();
        assert_eq!((invalid.problems.len(), invalid.more), (20, 981));
    }

    proptest! {
        #[test]
        fn parsed_file_mode_never_exceeds_7777(text in "\\PC{0,8}|[0-7o]{0,7}") {
            if let Ok((_, _, Some(mode), _)) = read(json!({"seconds": 1, "mode": text})) {
                prop_assert!(mode <= 0o7777);
            }
        }
    }
}
