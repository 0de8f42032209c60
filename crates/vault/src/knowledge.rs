//! Answers from the notes to several questions, as one text for a worker that cannot access the vault.

use std::fmt::Write as _;

use crate::notes::Vault;
use crate::path::{FolderPath, NotePath};
use crate::pattern::Pattern;
use crate::search::Query;

/// The number of lines for one search, from the tool contract.
const MAX_FOUND: usize = 5;

/// The largest text in bytes, the same as for other contexts of a worker.
pub const MAX_KNOWLEDGE: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Find lines with this text.
    Search(String),
    /// Read the whole note at this path.
    Read(String),
}

impl Vault {
    /// Markdown with an answer to each question. Questions without an answer are left out for any reason, because the
    /// others are still useful. `None` if there are no answers.
    pub fn knowledge(&self, questions: &[Question]) -> Option<String> {
        let mut text = "# Project Knowledge Base\n".to_owned();
        let empty = text.len();
        for question in questions {
            let Some(answer) = self.answer(question) else { continue };
            if text.len() + answer.len() <= MAX_KNOWLEDGE {
                text.push_str(&answer);
            } else if text.len() + LEFT_OUT.len() <= MAX_KNOWLEDGE {
                text.push_str(LEFT_OUT);
            }
        }
        (text.len() > empty).then_some(text)
    }

    fn answer(&self, question: &Question) -> Option<String> {
        match question {
            Question::Read(path) => {
                let note = self.read(&NotePath::parse(path).ok()?).ok()?;
                let note = note.trim_end();
                (!note.is_empty()).then(|| format!("\n## {path}\n\n{note}\n"))
            }
            Question::Search(words) => {
                let pattern = Pattern::plain(words);
                let query = Query { pattern, prefix: FolderPath::root(), tag: None, max_hits: MAX_FOUND };
                let hits = self.search(&query).ok()?.hits;
                let mut text = format!("\n## Search: {words}\n");
                for hit in &hits {
                    let _ = write!(text, "\n{}, line {}:\n\n{}\n", hit.path, hit.line_number, hit.context);
                }
                (!hits.is_empty()).then_some(text)
            }
        }
    }
}

const LEFT_OUT: &str = "\n(An answer that did not fit was left out.)\n";
