//! "Did you mean …?": finds the valid word that is nearest to a mistyped one, if any is near enough.

/// The similarity (0 to 1) below which a suggestion would confuse more than help.
const NEAR_ENOUGH: f64 = 0.7;

pub fn nearest<'a>(wanted: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    valid
        .into_iter()
        .map(|word| (strsim::jaro_winkler(&wanted, &word.to_lowercase()), word))
        .filter(|(score, _)| *score >= NEAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_suggested_for_typos() {
        let tools = ["workspace_create", "workspace_list", "exec"];
        assert_eq!(nearest("workspace_craete", tools), Some("workspace_create"));
        assert_eq!(nearest("exce", tools), Some("exec"));
        assert_eq!(nearest("zzzz", tools), None);
    }
}
