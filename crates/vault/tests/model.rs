//! Random sequences of operations against a map from paths to texts: same answers, same refusals, same files.

mod support;

use std::collections::BTreeMap;

use agentiso_vault::{Replacement, Tag, VaultError, WriteMode};
use proptest::prelude::*;
use support::{TestVault, note};

#[derive(Clone, Debug)]
enum Op {
    Write(usize, String, u8),
    Delete(usize),
    Move(usize, usize, bool),
    Replace(usize, String, String),
    AddTag(usize, String),
}

const PATHS: [&str; 5] = ["a.md", "b.md", "d/a.md", "d/e/a.md", "card.json"];

fn op() -> impl Strategy<Value = Op> {
    let path = 0..PATHS.len();
    let text = "[abx\n]{0,6}|---\nk: v\n---\nä\r\n";
    prop_oneof![
        4 => (path.clone(), text, 0u8..3).prop_map(|(path, text, mode)| Op::Write(path, text, mode)),
        1 => path.clone().prop_map(Op::Delete),
        2 => (path.clone(), 0..PATHS.len(), any::<bool>()).prop_map(|(from, to, over)| Op::Move(from, to, over)),
        2 => (path.clone(), "[abx]{1,2}", "[ab]{0,3}").prop_map(|(path, old, new)| Op::Replace(path, old, new)),
        1 => (path, "[t-v]").prop_map(|(path, tag)| Op::AddTag(path, tag)),
    ]
}

type Model = BTreeMap<&'static str, String>;

/// Applies the operation to the model and returns the expected answer: a number, or an error code.
fn expect(model: &mut Model, op: &Op) -> Result<usize, &'static str> {
    let missing =
        |model: &Model, path: &str| if model.contains_key(path) { Ok(()) } else { Err("not_found") };
    match op {
        Op::Write(path, text, mode) => {
            let before = model.get(PATHS[*path]).cloned();
            let new = match (mode, &before) {
                (0, _) | (_, None) => text.clone(),
                (1, Some(before)) => format!("{before}{text}"),
                (_, Some(before)) => {
                    let body = agentiso_vault::frontmatter::split(before)
                        .map_or(before.as_str(), |parts| parts.body);
                    format!("{}{text}{body}", &before[..before.len() - body.len()])
                }
            };
            model.insert(PATHS[*path], new);
            Ok(usize::from(before.is_none()))
        }
        Op::Delete(path) => {
            missing(model, PATHS[*path])?;
            model.remove(PATHS[*path]);
            Ok(0)
        }
        Op::Move(from, to, overwrite) => {
            missing(model, PATHS[*from])?;
            if !overwrite && model.contains_key(PATHS[*to]) {
                return Err("file_exists");
            }
            if let Some(text) = model.remove(PATHS[*from]) {
                model.insert(PATHS[*to], text);
            }
            Ok(0)
        }
        Op::Replace(path, old, new) => {
            missing(model, PATHS[*path])?;
            let text = model.get_mut(PATHS[*path]).unwrap();
            let count = text.matches(old.as_str()).count();
            *text = text.replace(old.as_str(), new);
            Ok(count)
        }
        Op::AddTag(path, _) => missing(model, PATHS[*path]).map(|()| 0),
    }
}

fn perform(t: &TestVault, op: &Op) -> Result<usize, VaultError> {
    let path = |index: &usize| note(PATHS[*index]);
    match op {
        Op::Write(at, text, mode) => {
            let mode = [WriteMode::Overwrite, WriteMode::Append, WriteMode::Prepend][usize::from(*mode)];
            t.vault.write(&path(at), text, mode).map(usize::from)
        }
        Op::Delete(at) => t.vault.delete(&path(at)).map(|()| 0),
        Op::Move(from, to, overwrite) => t.vault.rename(&path(from), &path(to), *overwrite).map(|()| 0),
        Op::Replace(at, old, new) => t.vault.replace(&path(at), &Replacement::plain(old, new)),
        Op::AddTag(at, tag) => t.vault.add_tag(&path(at), &Tag::parse(tag).unwrap()).map(|_| 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn vault_operations_match_the_model(ops in prop::collection::vec(op(), 1..25)) {
        let t = TestVault::new();
        let mut model = Model::new();
        for op in &ops {
            let expected = expect(&mut model, op);
            let done = perform(&t, op);
            prop_assert_eq!(done.as_ref().map(|n| *n).map_err(VaultError::code), expected, "{:?}", op);
            if let (Op::AddTag(at, tag), Ok(_)) = (op, &done) {
                // The model ignores the layout of YAML, but nothing except the tag may change.
                let after = t.get(PATHS[*at]);
                let body = |text: &str| agentiso_vault::frontmatter::split(text).map_or(text.to_owned(), |p| p.body.to_owned());
                prop_assert_eq!(body(&after), body(&model[PATHS[*at]]));
                prop_assert!(t.vault.tags(&note(PATHS[*at])).unwrap().contains(tag));
                model.insert(PATHS[*at], after);
            }
            for path in PATHS {
                let read = t.vault.read(&note(path));
                prop_assert_eq!(read.ok(), model.get(path).cloned(), "{} after {:?}", path, op);
            }
        }
        let left = t.everything().into_iter().filter(|path| path.contains('.')).collect::<Vec<_>>();
        prop_assert_eq!(left, model.keys().map(|path| (*path).to_owned()).collect::<Vec<_>>());
    }
}
