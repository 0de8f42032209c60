//! Quoted words as arguments of a real shell.

use std::process::Command;

use agentiso_git::quote;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn quoted_words_reach_the_shell_unchanged(word in "[^\0]{0,60}|['\"$`\\\\!#~*;&|<>(){}\n \t-]{0,60}") {
        let line = format!("printf %s {}", quote(&word));
        let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        prop_assert!(output.stderr.is_empty());
    }
}
