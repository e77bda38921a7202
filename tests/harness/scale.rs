//! `LOCKSTEAD_TEST_SCALE`: 1 (the default) lets the suite end within minutes on two cores, `full` takes the sizes of
//! the cases as they were described, a number in between multiplies the small sizes up to those.

use std::sync::LazyLock;

static FACTOR: LazyLock<Option<u64>> = LazyLock::new(|| match std::env::var("LOCKSTEAD_TEST_SCALE").as_deref() {
    Err(_) | Ok("") => Some(1),
    Ok("full") => None,
    Ok(text) => Some(text.parse().expect("LOCKSTEAD_TEST_SCALE is a number or `full`")),
});

/// A size: `small` times the scale, at most `full`.
pub(crate) fn scaled(small: u64, full: u64) -> u64 {
    match *FACTOR {
        None => full,
        Some(factor) => small.saturating_mul(factor).min(full),
    }
}

/// A size that counts things.
pub(crate) fn scaled_len(small: u64, full: u64) -> usize {
    usize::try_from(scaled(small, full)).expect("a size fits")
}
