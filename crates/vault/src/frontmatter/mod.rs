//! Frontmatter: YAML between a first line `---` and the next line `---`.
//!
//! It is read into JSON values, in the order of its keys. A change touches the lines of the keys that change and no
//! others, so that comments, order and the style of everything else stay as their author wrote them.

mod edit;
mod entries;
mod split;
mod yaml;

pub use edit::{Change, change};
pub use split::{Parts, split};

use serde_json::{Map, Value};

/// The frontmatter of a note's text; `None` if it has none. The error says what is wrong with the YAML.
pub fn read(text: &str) -> Result<Option<Map<String, Value>>, String> {
    split(text).map(|parts| yaml::parse(parts.yaml)).transpose()
}
