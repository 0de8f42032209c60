//! Changes of single keys in frontmatter; everything else is kept.

use serde_json::{Map, Value};

use super::split::{Parts, split};
use super::{entries, yaml};

/// A key with its new value, or `None` to remove it.
pub type Change<'a> = (&'a str, Option<Value>);

/// Applies changes to the frontmatter of a note's text. A missing block is added, and a block without keys is removed.
pub fn change(text: &str, changes: &[Change<'_>]) -> Result<String, String> {
    let Some(parts) = split(text) else {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let added = apply("", changes, line_end)?;
        let fence = format!("---{line_end}");
        return Ok(if added.is_empty() { text.to_owned() } else { format!("{fence}{added}{fence}{text}") });
    };
    let line_end = parts.line_end();
    let changed = apply(parts.yaml, changes, line_end)?;
    let Parts { opening, closing, body, .. } = parts;
    if yaml::parse(&changed)?.is_empty() && changed != parts.yaml {
        return Ok(body.to_owned());
    }
    Ok(format!("{opening}{changed}{closing}{body}"))
}

fn apply(before: &str, changes: &[Change<'_>], line_end: &str) -> Result<String, String> {
    let mut text = before.to_owned();
    let mut map = yaml::parse(before)?;
    for (key, value) in changes {
        text = apply_one(&text, &mut map, key, value.as_ref(), line_end)?;
    }
    Ok(text)
}

fn apply_one(
    before: &str,
    map: &mut Map<String, Value>,
    key: &str,
    value: Option<&Value>,
    line_end: &str,
) -> Result<String, String> {
    if map.get(key) == value {
        return Ok(before.to_owned());
    }
    let known = map.contains_key(key);
    let lines = match value {
        Some(value) => {
            map.insert(key.to_owned(), value.clone());
            ended(&yaml::entry(key, value)?, line_end)
        }
        None => {
            map.shift_remove(key);
            String::new()
        }
    };
    let edited = match entries::find(before, key) {
        Some(range) => Some(format!("{}{lines}{}", &before[..range.start], &before[range.end..])),
        // The key exists, but not on lines of its own.
        None if known => None,
        None => {
            let missing_end = if before.is_empty() || before.ends_with('\n') { "" } else { line_end };
            Some(format!("{before}{missing_end}{lines}"))
        }
    };
    // The edit by lines is a guess about YAML, so the result is parsed. If the guess was wrong, the whole block is
    // rewritten.
    match edited.filter(|edited| yaml::parse(edited).is_ok_and(|read| read == *map)) {
        Some(edited) => Ok(edited),
        None => Ok(ended(&yaml::render(map)?, line_end)),
    }
}

fn ended(lines: &str, line_end: &str) -> String {
    if line_end == "\n" { lines.to_owned() } else { lines.replace('\n', line_end) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontmatter::read;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(text: &str, key: &str, value: Value) -> String {
        change(text, &[(key, Some(value))]).unwrap()
    }

    fn delete(text: &str, key: &str) -> String {
        change(text, &[(key, None)]).unwrap()
    }

    #[test]
    fn only_the_lines_of_the_key_change() {
        let text = "---\n# who\nname:   'x y'   # kept\ntags: [a,   b]\ncount: 1\n---\nbody\n";
        assert_eq!(set(text, "count", json!(2)), text.replace("count: 1", "count: 2"));
        assert_eq!(delete(text, "tags"), text.replace("tags: [a,   b]\n", ""));
        assert_eq!(set(text, "new", json!("v")), text.replace("count: 1\n", "count: 1\nnew: v\n"));
        assert_eq!(set(text, "count", json!(1)), text);
        assert_eq!(delete(text, "none"), text);
    }

    #[test]
    fn frontmatter_block_exists_only_with_keys() {
        for text in ["body\n", "", "# t\r\nbody\r\n", "---\nno end"] {
            let with = set(text, "a", json!("b"));
            assert_eq!(read(&with).unwrap().unwrap()["a"], "b", "{with:?}");
            assert!(with.ends_with(text));
            assert_eq!(delete(&with, "a"), text);
        }
        assert!(set("x\r\n", "a", json!(1)).starts_with("---\r\na: 1\r\n---\r\n"));
    }

    #[test]
    fn unusual_yaml_is_rewritten_whole() {
        let text = "---\n{a: 1, b: 2}\n---\nbody\n";
        let after = set(text, "a", json!(3));
        assert_eq!(Value::Object(read(&after).unwrap().unwrap()), json!({"a": 3, "b": 2}));
        let text = "---\na: &x 1\nb: *x\n---\n";
        let after = delete(text, "a");
        assert_eq!(Value::Object(read(&after).unwrap().unwrap()), json!({"b": 1}));
    }

    #[test]
    fn unreadable_frontmatter_is_not_touched() {
        assert!(change("---\na: [1\n---\nbody", &[("b", Some(json!(1)))]).is_err());
    }

    proptest! {
        #[test]
        fn change_affects_only_its_own_key(
            pairs in prop::collection::vec(("[a-e]", "[a-z ]{0,6}|\\[x, y\\]|\\|\n  a\n  b|'q'"), 0..5),
            crlf in any::<bool>(),
            key in "[a-e]",
            value in prop::option::of(prop_oneof![
                Just(json!("text")), Just(json!(["l", 1])), Just(json!({"m": {"n": 1}})), Just(json!("two\nlines")),
            ]),
        ) {
            let mut yaml: String = pairs.iter().map(|(key, value)| format!("{key}: {value}\n# after {key}\n")).collect();
            yaml = format!("---\n{yaml}---\nbody\n");
            if crlf {
                yaml = yaml.replace('\n', "\r\n");
            }
            if let Ok(before) = read(&yaml) {
                let mut expected = before.unwrap();
                let after = change(&yaml, &[(&key, value.clone())]).unwrap();
                match value {
                    Some(value) => { expected.insert(key, value); }
                    None => { expected.shift_remove(&key); }
                }
                let ends_as_before = after.ends_with(if crlf { "body\r\n" } else { "body\n" });
                prop_assert!(ends_as_before);
                prop_assert_eq!(read(&after).unwrap().unwrap_or_default(), expected);
                if crlf {
                    prop_assert_eq!(after.matches('\n').count(), after.matches("\r\n").count());
                }
            }
        }
    }
}
