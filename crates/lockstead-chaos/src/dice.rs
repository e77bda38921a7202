//! Numbers from a seed.
//!
//! `SplitMix64`, written out, so that a seed means the same run with every version of every library.

use std::ops::RangeInclusive;

/// A source of numbers that are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A source for one purpose: those of different purposes have nothing to do with each other.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self { state: seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
        // Close seeds begin with close states; one step takes them apart.
        dice.state = dice.next();
        dice
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "an iterator would have an end")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number of a range.
    pub fn between(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end().saturating_sub(*range.start()) + 1)
    }

    /// Yes, in so many of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// An index of something of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(length)).unwrap_or_default()
    }

    /// One of these.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// Brings things into an order of its own.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        let mut dice = Dice::new(7, 1);
        assert_eq!([dice.next(), dice.next()], [10_959_146_043_091_017_608, 1_867_058_173_251_684_962]);
    }

    #[test]
    fn every_number_of_a_range_comes() {
        let mut dice = Dice::new(1, 1);
        let mut seen: Vec<u64> = (0..200).map(|_| dice.between(&(3..=6))).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [3, 4, 5, 6]);
    }
}
