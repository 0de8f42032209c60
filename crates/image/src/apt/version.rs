//! The order of Debian versions (deb-version(7), without epoch and revision: kernel releases have neither).

use std::cmp::Ordering;

/// Compares two upstream versions the way dpkg does.
pub(crate) fn compare(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while !left.is_empty() || !right.is_empty() {
        let (left_text, left_rest) = split(left, |byte| !byte.is_ascii_digit());
        let (right_text, right_rest) = split(right, |byte| !byte.is_ascii_digit());
        let longest = left_text.len().max(right_text.len());
        let by_text = (0..=longest)
            .map(|i| weight(left_text.get(i)).cmp(&weight(right_text.get(i))))
            .find(|order| order.is_ne());
        if let Some(order) = by_text {
            return order;
        }
        let (left_digits, left_rest) = split(left_rest, u8::is_ascii_digit);
        let (right_digits, right_rest) = split(right_rest, u8::is_ascii_digit);
        let (left_digits, right_digits) = (without_zeros(left_digits), without_zeros(right_digits));
        let by_number =
            left_digits.len().cmp(&right_digits.len()).then_with(|| left_digits.cmp(right_digits));
        if by_number.is_ne() {
            return by_number;
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

fn split(text: &[u8], belongs: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !belongs(byte)).unwrap_or(text.len()))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    split(digits, |byte| *byte == b'0').1
}

/// A tilde sorts before the end, letters before everything else.
fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        Some(b'~') => -1,
        None => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(*byte),
        Some(byte) => i32::from(*byte) + 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_compare_as_in_dpkg() {
        for (older, newer) in [
            ("6.1.0-9", "6.1.0-54"),
            ("6.1.0-54", "6.12.95+deb12"),
            ("6.12.95+deb12", "6.12.115+deb12"),
            ("6.12.90+deb12", "6.12.90+deb12.1"),
            ("6.12~rc1", "6.12"),
            ("1.0a", "1.0+"),
        ] {
            assert_eq!(compare(older, newer), Ordering::Less, "{older} < {newer}");
            assert_eq!(compare(newer, older), Ordering::Greater, "{newer} > {older}");
        }
        assert_eq!(compare("6.01", "6.1"), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn version_order_is_antisymmetric(a in "[0-9a-z~+.-]{0,12}", b in "[0-9a-z~+.-]{0,12}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
        }
    }
}
