//! What a shell makes of quoted words.

use std::process::Command;

use agentiso_git::quote;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn every_word_arrives_as_it_is(word in "[^\0]{0,60}|['\"$`\\\\!#~*;&|<>(){}\n \t-]{0,60}") {
        let line = format!("printf %s {}", quote(&word));
        let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        prop_assert!(output.stderr.is_empty());
    }
}
