//! Finds the place in a text that is most like one that does not occur in it.

use strsim::sorensen_dice;

/// Pairs of lines that are compared: a fraction of a second.
const MAX_PAIRS: usize = 200_000;

/// Longer lines are compared only for being the same: the cost grows with their length.
const MAX_COMPARED: usize = 400;

/// Below this likeness, showing something would mislead.
const LEAST: f64 = 0.5;

/// Bytes shown.
const MAX_SHOWN: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nearest {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Whether only white space differs.
    pub(crate) only_space: bool,
}

/// As many lines as `wanted` has, where they are most like it.
pub(crate) fn find(text: &str, wanted: &str) -> Option<Nearest> {
    let lines: Vec<&str> = text.split('\n').collect();
    let wanted: Vec<&str> = wanted.trim_matches('\n').split('\n').collect();
    if wanted.iter().all(|line| line.trim().is_empty()) || lines.len() * wanted.len() > MAX_PAIRS {
        return None;
    }
    let likeness = |at: usize| {
        let pairs = lines[at..].iter().zip(&wanted);
        pairs.map(|(line, wanted)| alike(line, wanted)).sum::<f64>() / wanted.len() as f64
    };
    let mut best = (0, 0.0);
    for at in 0..lines.len() {
        let found = likeness(at);
        // The first of equals.
        if found > best.1 {
            best = (at, found);
        }
    }
    let (at, found) = best;
    if found < LEAST {
        return None;
    }
    let shown = lines[at..lines.len().min(at + wanted.len())].join("\n");
    let words = |lines: &str| lines.split_whitespace().collect::<String>();
    let only_space = words(&shown) == words(&wanted.join("\n"));
    let mut text = shown;
    text.truncate(text.floor_char_boundary(MAX_SHOWN));
    Some(Nearest { line: at + 1, text, only_space })
}

/// From 0 to 1, indentation aside. A wanted line that is a part of the line is as good as the line.
fn alike(line: &str, wanted: &str) -> f64 {
    let (line, wanted) = (line.trim(), wanted.trim());
    if line == wanted || (!wanted.is_empty() && line.contains(wanted)) {
        return 1.0;
    }
    if line.len() > MAX_COMPARED || wanted.len() > MAX_COMPARED { 0.0 } else { sorensen_dice(line, wanted) }
}

#[cfg(test)]
mod tests {
    use super::find;

    const TEXT: &str =
        "fn main() {\n    let greeting = \"hello\";\n    println!(\"{greeting}\");\n}\n\nfn other() {}\n";

    #[test]
    fn a_text_with_another_indentation_is_found_and_told() {
        let found = find(TEXT, "  let greeting = \"hello\";\n  println!(\"{greeting}\");").unwrap();
        assert_eq!((found.line, found.only_space), (2, true));
        assert_eq!(found.text, "    let greeting = \"hello\";\n    println!(\"{greeting}\");");
        let windows = TEXT.replace('\n', "\r\n");
        assert!(find(&windows, "fn main() {\n    let greeting = \"hello\";").unwrap().only_space);
    }

    #[test]
    fn a_text_with_another_word_is_found() {
        let found = find(TEXT, "let greeting = \"hallo\";").unwrap();
        assert_eq!((found.line, found.only_space), (2, false));
    }

    #[test]
    fn what_is_like_nothing_is_not_found() {
        assert_eq!(find(TEXT, "SELECT * FROM users WHERE id = 7"), None);
        assert_eq!(find("", "x"), None);
        assert_eq!(find(TEXT, "\n \n"), None);
        assert_eq!(find(&"line\n".repeat(300_000), "lime"), None);
    }

    #[test]
    fn what_is_shown_is_short_and_cut_between_characters() {
        let long = "ä".repeat(5000);
        let found = find(&long, &"ä".repeat(4000)).unwrap();
        assert_eq!(found.text.len(), 2000);
    }
}
