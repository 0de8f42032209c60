//! Finds the `id` of a JSON-RPC object in bytes that are skipped and not kept.
//!
//! Only members of the outermost object count: `params` may hold an `id` of its own. On text that is not JSON it finds
//! nothing or something wrong, but never fails and never keeps more than [`MAX_TOKEN`] bytes.

use serde_json::Value;

/// The longest id or key that is kept. Ids of clients are small numbers or UUIDs.
const MAX_TOKEN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct IdScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The string or number being read at the outermost level, as it was written.
    token: Vec<u8>,
    key: Option<Vec<u8>>,
    id: Option<Value>,
}

impl IdScanner {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    pub(super) fn id(self) -> Option<Value> {
        self.id
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.token.clear();
            }
            b'}' | b']' => {
                self.member_ends();
                self.depth = self.depth.saturating_sub(1);
                self.token.clear();
            }
            b',' => self.member_ends(),
            b':' if self.depth == 1 => self.key = Some(std::mem::take(&mut self.token)),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= MAX_TOKEN {
            self.token.push(byte);
        }
    }

    fn member_ends(&mut self) {
        if self.depth != 1 {
            return;
        }
        let token = std::mem::take(&mut self.token);
        if self.key.take().is_some_and(|key| key == b"\"id\"") && token.len() <= MAX_TOKEN {
            self.id = match serde_json::from_slice(&token) {
                Ok(id @ (Value::String(_) | Value::Number(_))) => Some(id),
                Ok(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | Err(_) => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn scan(text: &str) -> Option<Value> {
        let mut scanner = IdScanner::default();
        scanner.feed(text.as_bytes());
        scanner.id()
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}|[\"\\\\{}\\[\\],:]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[id\"\\\\]{0,3}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn only_the_outermost_id_counts() {
        assert_eq!(scan(r#"{"params":{"id":1},"id" : 2 }"#), Some(json!(2)));
        assert_eq!(scan(r#"{"params":{"id":1}}"#), None);
        assert_eq!(scan(r#"{"x":"\"id\":1","y":["id",5]}"#), None);
        assert_eq!(scan(r#"{"id":{"a":1}}"#), None);
        assert_eq!(scan(r#"{"id":"a\"}b"}"#), Some(json!("a\"}b")));
    }

    proptest! {
        #[test]
        fn id_scanner_agrees_with_a_parser(
            before in prop::collection::vec(("[a-z]{3}", json_value()), 0..3),
            id in prop_oneof![any::<i64>().prop_map(Value::from), "\\PC{0,20}".prop_map(Value::from)],
            after in prop::collection::vec(("[A-Z]{3}", json_value()), 0..3),
        ) {
            let members = before.into_iter().chain([("id".to_owned(), id.clone())]).chain(after);
            let text = Value::Object(members.collect()).to_string();
            prop_assert_eq!(scan(&text), Some(id));
        }

        #[test]
        fn id_scanner_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut scanner = IdScanner::default();
            scanner.feed(&bytes);
            let _ = scanner.id();
        }
    }
}
