//! Plain words: names of tests, first words of module comments, and words that the glossary retired.
//!
//! The retired words are the line in ARCHITECTURE.md that begins with [`RETIRED`], so the document is the rule.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::sources::Source;

/// A longer name is hard to read, and its end is cut off in most listings.
const WORDS_OF_A_TEST: usize = 8;

/// A name or a comment that begins so has no subject.
const QUESTION_WORDS: [&str; 9] =
    ["what", "whatever", "who", "where", "when", "which", "why", "how", "whose"];

const GLOSSARY: &str = "ARCHITECTURE.md";

const RETIRED: &str = "Retired words: ";

pub(super) fn problems(root: &Path, documents: &[PathBuf], sources: &[Source]) -> Result<Vec<String>> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let glossary = read(&root.join(GLOSSARY))?;
    let retired = retired(&glossary).with_context(|| format!("{GLOSSARY} lists no retired words"))?;
    let mut problems = Vec::new();
    for source in sources {
        let path = source.path.display();
        problems.extend(source.tests().filter_map(|test| Some(format!("{path}: {}", bad_name(test)?))));
        if begins_with_a_question(&source.text) {
            problems.push(format!("{path}: the module comment begins with a question word"));
        }
        problems.extend(uses(&source.text, &retired).map(|(line, word)| said(&path, line, word)));
    }
    for document in documents {
        let text = read(document)?;
        let path = document.strip_prefix(root).unwrap_or(document).display();
        let uses =
            uses(&text, &retired).filter(|(line, _)| !text.lines().nth(*line - 1).is_some_and(is_rule));
        problems.extend(uses.map(|(line, word)| said(&path, line, word)));
    }
    Ok(problems)
}

fn said(path: &impl std::fmt::Display, line: usize, word: &str) -> String {
    format!("{path}:{line}: the glossary retired the word {word}")
}

/// The reason why a test has to be called otherwise.
fn bad_name(test: &str) -> Option<String> {
    let words: Vec<&str> = test.split('_').collect();
    if QUESTION_WORDS.contains(&words[0]) {
        return Some(format!("the test {test} begins with a question word"));
    }
    (words.len() > WORDS_OF_A_TEST)
        .then(|| format!("the test {test} has {} words, more than {WORDS_OF_A_TEST}", words.len()))
}

fn begins_with_a_question(text: &str) -> bool {
    let first = text.strip_prefix("//! ").and_then(|rest| rest.split(|c: char| !c.is_alphabetic()).next());
    first.is_some_and(|word| QUESTION_WORDS.contains(&word.to_lowercase().as_str()))
}

/// Lines of the glossary may name the words that it retires.
fn is_rule(line: &str) -> bool {
    line.starts_with(RETIRED) || line.starts_with("| ")
}

fn retired(glossary: &str) -> Option<Vec<&str>> {
    let list = glossary.lines().find_map(|line| line.strip_prefix(RETIRED))?;
    Some(list.trim_end_matches('.').split(", ").collect())
}

/// Lines, from 1 on, that use a retired word, also as a part of a name such as `OldWord` or `old_word`. Names that are
/// stored or sent stay: lines with `#[serde(rename = …)]` do not count.
fn uses<'a>(text: &'a str, retired: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    text.lines().enumerate().filter(|(_, line)| !line.contains("serde(rename = ")).flat_map(
        move |(index, line)| {
            let words = words_of(line);
            let used = retired.iter().filter(move |word| words.iter().any(|other| is_form_of(other, word)));
            used.map(move |word| (index + 1, *word))
        },
    )
}

/// The words of a line in lower case. Names are taken apart at their humps and joints.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        let begins = !c.is_alphabetic() || (c.is_uppercase() && before.is_lowercase());
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphabetic(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

fn is_form_of(word: &str, retired: &str) -> bool {
    word.strip_prefix(retired).is_some_and(|ending| matches!(ending, "" | "s" | "es"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_questioning_test_names_are_refused() {
        assert_eq!(bad_name("existing_file_is_replaced_only_with_force"), None);
        assert!(bad_name("what_is_there_goes").is_some());
        assert!(bad_name("one_two_three_four_five_six_seven_eight_nine").is_some());
    }

    #[test]
    fn module_comments_begin_with_a_subject() {
        assert!(begins_with_a_question("//! Whatever is there.\n"));
        assert!(!begins_with_a_question("//! Whole files.\n//! What follows may be anything.\n"));
        assert!(!begins_with_a_question("use std::fs;\n"));
    }

    #[test]
    fn retired_words_are_found_within_names() {
        let glossary = "# Words\nRetired words: stool, anyone.\n";
        let retired = retired(glossary).unwrap();
        let text = "/// Anyone asks.\nstruct StoolError;\nlet old_stools = 1;\nstooled\n#[serde(rename = \"stool\")]\n";
        let found: Vec<_> = uses(text, &retired).collect();
        assert_eq!(found, [(1, "anyone"), (2, "stool"), (3, "stool")]);
    }
}
