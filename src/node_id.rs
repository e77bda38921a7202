//! A node's id, as the command line takes it.

use lockstead_client::api::NODE_ID_MAX;

/// Reads a plain number.
///
/// # Errors
/// What is allowed.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|id| plain && (1..=NODE_ID_MAX).contains(id));
    id.ok_or_else(|| format!("out of range; allowed: 1 to {NODE_ID_MAX}"))
}

/// The same for an option that may also come from a file, where a number is an `i64`.
///
/// # Errors
/// As of [`parse`].
pub(crate) fn parse_option(text: &str) -> Result<i64, String> {
    parse(text).map(|id| i64::try_from(id).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_numbers_from_one_to_the_largest_that_json_keeps() {
        assert_eq!((parse("4"), parse_option("9007199254740991")), (Ok(4), Ok(9_007_199_254_740_991)));
        for text in ["0", "+4", "-4", "four", "", "9007199254740992", "18446744073709551615", "18446744073709551616"] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains("1 to 9007199254740991"), "{text}: {refused}");
            assert_eq!(parse_option(text).unwrap_err(), refused);
        }
    }
}
