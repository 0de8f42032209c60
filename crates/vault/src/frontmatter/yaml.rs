//! Conversion of YAML to JSON values and back.

use serde_json::{Map, Value};

/// Parses a mapping. An empty text is an empty mapping.
pub(super) fn parse(yaml: &str) -> Result<Map<String, Value>, String> {
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if yaml.lines().all(blank) {
        return Ok(Map::new());
    }
    // Only true and false are booleans, as in YAML 1.2: `answer: no` stays text.
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        strict_booleans: true,
    };
    match serde_saphyr::from_str_with_options::<Value>(yaml, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            Err("it is a single value, not keys with values".to_owned())
        }
        Ok(Value::Array(_)) => Err("it is a list, not keys with values".to_owned()),
        Err(error) => Err(first_line(&error.to_string())),
    }
}

/// The first line of an error message. Some messages show the surrounding text after it.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// One key with its value as lines of YAML, with a final newline. It parses back to the same value.
pub(super) fn entry(key: &str, value: &Value) -> Result<String, String> {
    let map = Map::from_iter([(key.to_owned(), value.clone())]);
    // JSON is valid YAML and can express every value, though less readably.
    let json = format!("{}: {value}\n", Value::from(key));
    let pretty = serde_saphyr::to_string(&map).ok().map(|yaml| format!("{}\n", yaml.trim_end_matches('\n')));
    let reads_back = |yaml: &String| parse(yaml).is_ok_and(|read| read == map);
    pretty
        .filter(reads_back)
        .or_else(|| Some(json).filter(reads_back))
        .ok_or_else(|| format!("the value of {key:?} cannot be written as YAML"))
}

/// A whole mapping.
pub(super) fn render(map: &Map<String, Value>) -> Result<String, String> {
    map.iter().map(|(key, value)| entry(key, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values_follow_yaml_1_2() {
        let map = parse("a: 1\nb: no\nc: true\nd: [x, 2]\ne: 2026-11-16\nf:\n  g: null\n# h: i\n").unwrap();
        let expected =
            json!({"a": 1, "b": "no", "c": true, "d": ["x", 2], "e": "2026-11-16", "f": {"g": null}});
        assert_eq!(Value::Object(map.clone()), expected);
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(parse("# only a comment\n\n").unwrap(), Map::new());
        for bad in ["- a\n", "just words\n", "a: [1\n", "a: b: c\n", "\t: x\n", "a: *nowhere\n"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn alias_bomb_is_refused() {
        let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..30 {
            let below = format!("*a{}", level - 1);
            yaml.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 9].join(", ")));
        }
        assert!(parse(&yaml).is_err());
        assert!(parse(&format!("a: {}", "[".repeat(100_000))).is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(Value::from),
            "\\PC{0,12}|yes|null|~|1e3|- x|a: b|#c|[a-z \n:#'\"-]{0,16}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z#: -]{1,6}", inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_entry_reads_back(key in "[a-z]{1,8}|\\PC{1,8}", value in any_json()) {
            if let Ok(yaml) = entry(&key, &value) {
                let read = parse(&yaml).unwrap();
                prop_assert_eq!(read.get(&key), Some(&value));
            }
        }

        #[test]
        fn plain_values_can_always_be_written(key in "[a-z]{1,8}", value in "[ -~äöü\n]{0,40}") {
            prop_assert!(entry(&key, &Value::from(value)).is_ok());
        }

        #[test]
        fn any_text_is_read_or_refused(yaml in "\\PC{0,60}|[a: \n\\[\\]{}&*!|>'\"#-]{0,40}") {
            let _ = parse(&yaml);
        }
    }
}
