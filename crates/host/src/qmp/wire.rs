//! Parses and writes the lines of QMP. QEMU is trusted less than our own code: a malformed line is an error, an unknown
//! one is ignored.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;

/// An event of QEMU. The data of unknown events is kept but not interpreted.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Value,
    /// The time of the event by QEMU's clock.
    pub at: Option<Duration>,
}

/// The cause in QEMU's SHUTDOWN event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownCause {
    /// The guest switched itself off.
    GuestShutdown,
    /// The guest asked for a reset, which `-no-reboot` turns into a shutdown: a reboot, or a panic.
    GuestReset,
    GuestPanic,
    /// We asked QEMU to quit.
    HostQuit,
    /// QEMU was sent SIGTERM, SIGINT or SIGHUP.
    HostSignal,
    /// A cause that this version does not know by name.
    Unnamed(String),
}

impl Event {
    /// The cause, if this is the SHUTDOWN event.
    pub fn shutdown_cause(&self) -> Option<ShutdownCause> {
        if self.name != "SHUTDOWN" {
            return None;
        }
        Some(match self.data.get("reason").and_then(Value::as_str).unwrap_or("unknown") {
            "guest-shutdown" => ShutdownCause::GuestShutdown,
            "guest-reset" => ShutdownCause::GuestReset,
            "guest-panic" => ShutdownCause::GuestPanic,
            "host-qmp-quit" => ShutdownCause::HostQuit,
            "host-signal" => ShutdownCause::HostSignal,
            other => ShutdownCause::Unnamed(other.to_owned()),
        })
    }

    /// Whether the guest was stopped because a write failed (with the reason) or goes on. `None` if this event says
    /// neither.
    pub fn stall(&self) -> Option<Option<String>> {
        match self.name.as_str() {
            "RESUME" => Some(None),
            "BLOCK_IO_ERROR" if self.data["action"] == "stop" => {
                let reason = match self.data["nospace"] == true {
                    true => "the host's disk is full",
                    false => self.data["reason"].as_str().unwrap_or("its disk could not be written"),
                };
                Some(Some(reason.to_owned()))
            }
            _ => None,
        }
    }

    /// Whether a disk has grown beyond the length that was set for it.
    pub fn is_growth(&self) -> bool {
        self.name == "BLOCK_WRITE_THRESHOLD"
    }

    /// Whether a migration starts another pass over pages that were written meanwhile.
    pub(crate) fn is_migration_pass(&self) -> bool {
        self.name == "MIGRATION_PASS"
    }

    /// The status, if this is a MIGRATION event.
    pub fn migration_status(&self) -> Option<&str> {
        (self.name == "MIGRATION").then(|| self.data.get("status").and_then(Value::as_str)).flatten()
    }
}

/// QEMU's answer to a command.
pub(super) type Answer = Result<Value, Refusal>;

/// An error that QEMU returned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Error)]
#[error("{desc} ({class})")]
pub struct Refusal {
    pub class: String,
    pub desc: String,
}

#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Greeting,
    Answer {
        id: u64,
        answer: Answer,
    },
    Event(Event),
    /// A message of a newer QEMU, or an answer without a matching command.
    Ignored,
}

#[derive(Debug, Error)]
pub(super) enum LineError {
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not a JSON object")]
    NotAnObject,
}

pub(super) fn parse(line: &[u8]) -> Result<Incoming, LineError> {
    let Value::Object(mut object) = serde_json::from_slice(line)? else { return Err(LineError::NotAnObject) };
    if object.contains_key("QMP") {
        return Ok(Incoming::Greeting);
    }
    if let Some(Value::String(name)) = object.get("event") {
        let name = name.clone();
        let at = object.get("timestamp").and_then(timestamp);
        return Ok(Incoming::Event(Event { name, data: object.remove("data").unwrap_or(Value::Null), at }));
    }
    let Some(id) = object.get("id").and_then(Value::as_u64) else { return Ok(Incoming::Ignored) };
    if let Some(value) = object.remove("return") {
        return Ok(Incoming::Answer { id, answer: Ok(value) });
    }
    if let Some(error) = object.remove("error") {
        let refusal = serde_json::from_value(error).unwrap_or_else(|_| Refusal {
            class: "GenericError".to_owned(),
            desc: "no description".to_owned(),
        });
        return Ok(Incoming::Answer { id, answer: Err(refusal) });
    }
    Ok(Incoming::Ignored)
}

fn timestamp(value: &Value) -> Option<Duration> {
    let part = |name: &str| value.get(name).and_then(Value::as_u64);
    // QEMU may send any number, and a sum that overflows would panic.
    Duration::from_secs(part("seconds")?).checked_add(Duration::from_micros(part("microseconds")?))
}

/// One command as a line, newline included.
pub(super) fn command(id: u64, name: &str, arguments: Option<Value>) -> Vec<u8> {
    let mut object = Map::new();
    object.insert("execute".to_owned(), json!(name));
    if let Some(arguments) = arguments {
        object.insert("arguments".to_owned(), arguments);
    }
    object.insert("id".to_owned(), json!(id));
    let mut line = Value::Object(object).to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn qmp_command_is_one_line_with_id() {
        let line = command(7, "migrate", Some(json!({"uri": "a\nb"})));
        assert_eq!(line, b"{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"a\\nb\"},\"id\":7}\n");
        assert_eq!(command(1, "stop", None), b"{\"execute\":\"stop\",\"id\":1}\n");
    }

    #[test]
    fn greeting_answers_and_errors_are_distinguished() {
        assert_eq!(parse(br#"{"QMP":{"version":{}}}"#).unwrap(), Incoming::Greeting);
        let answer = parse(br#"{"return":{"a":1},"id":3}"#).unwrap();
        assert_eq!(answer, Incoming::Answer { id: 3, answer: Ok(json!({"a": 1})) });
        let Incoming::Answer { id: 4, answer: Err(refusal) } =
            parse(br#"{"id":4,"error":{"class":"CommandNotFound","desc":"no such command"}}"#).unwrap()
        else {
            panic!("an error answers its command")
        };
        assert_eq!(refusal.to_string(), "no such command (CommandNotFound)");
    }

    #[test]
    fn unknown_events_and_unmatched_answers_are_harmless() {
        let event = parse(br#"{"event":"FROM_THE_FUTURE","timestamp":{"seconds":1}}"#).unwrap();
        let expected = Event { name: "FROM_THE_FUTURE".to_owned(), data: Value::Null, at: None };
        assert_eq!(event, Incoming::Event(expected));
        assert_eq!(parse(br#"{"return":{}}"#).unwrap(), Incoming::Ignored);
        assert_eq!(parse(br#"{"news":1,"id":2}"#).unwrap(), Incoming::Ignored);
        assert!(parse(b"[1]").is_err());
    }

    #[test]
    fn full_disk_stalls_the_guest_until_resume() {
        let event = |name: &str, data: Value| Event { name: name.to_owned(), data, at: None };
        let full = event("BLOCK_IO_ERROR", json!({"action": "stop", "nospace": true, "reason": "No space"}));
        assert_eq!(full.stall(), Some(Some("the host's disk is full".to_owned())));
        let told = event("BLOCK_IO_ERROR", json!({"action": "report", "nospace": false, "reason": "I/O"}));
        assert_eq!(told.stall(), None, "the guest was told and runs on");
        assert_eq!(event("RESUME", Value::Null).stall(), Some(None));
        assert_eq!(event("STOP", Value::Null).stall(), None);
    }

    #[test]
    fn event_carries_the_time_of_qemus_clock() {
        let line = br#"{"event":"STOP","timestamp":{"seconds":2,"microseconds":500}}"#;
        let Incoming::Event(event) = parse(line).unwrap() else { panic!("an event") };
        assert_eq!(event.at, Some(Duration::from_micros(2_000_500)));
        let line =
            format!(r#"{{"event":"STOP","timestamp":{{"seconds":{0},"microseconds":{0}}}}}"#, u64::MAX);
        let Incoming::Event(event) = parse(line.as_bytes()).unwrap() else { panic!("an event") };
        assert_eq!(event.at, None);
    }

    #[test]
    fn shutdown_event_names_its_cause() {
        let event =
            |reason: &str| Event { name: "SHUTDOWN".to_owned(), data: json!({"reason": reason}), at: None };
        assert_eq!(event("guest-reset").shutdown_cause(), Some(ShutdownCause::GuestReset));
        assert_eq!(event("odd").shutdown_cause(), Some(ShutdownCause::Unnamed("odd".to_owned())));
        assert_eq!(Event { name: "STOP".to_owned(), data: Value::Null, at: None }.shutdown_cause(), None);
    }

    proptest! {
        #[test]
        fn qmp_parser_never_panics(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn every_json_object_parses_without_error(key in "[a-zA-Z]{1,8}", text in ".{0,30}", id: u64) {
            let line = json!({key: text, "id": id}).to_string();
            prop_assert!(parse(line.as_bytes()).is_ok());
        }
    }
}
