//! How long an office waits for more requests before it decides: larger batches make each sync worth more.
//!
//! Clients that were just answered tend to come back at once and together. So a drain waits for about as many requests
//! as the last one answered, for half a millisecond at most (rounded up by the timer), and not at all for a while after
//! it waited in vain. A client alone never waits.

use std::time::Duration;

/// The longest wait.
const LINGER_MAX: Duration = Duration::from_micros(500);
/// How many drains do without after one waited in vain.
const REST_AFTER_MISS: u32 = 8;

/// What the last drains teach about the next.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    expected: usize,
    rest: u32,
}

impl Linger {
    /// A drain answered so many requests, with so many others waiting at the door already.
    pub(crate) fn answered(&mut self, answers: usize, at_the_door: usize) {
        self.expected = answers + at_the_door;
    }

    /// How many requests a drain should have, and how long it may wait for them; `None`: decide at once.
    pub(crate) fn goal(&mut self) -> Option<(usize, Duration)> {
        // Nine of ten: the last few are not worth the wait of the others.
        let goal = self.expected * 9 / 10;
        if goal <= 1 {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        Some((goal, LINGER_MAX))
    }

    /// The goal was not reached in time.
    pub(crate) fn missed(&mut self) {
        self.rest = REST_AFTER_MISS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_alone_or_two_never_wait() {
        let mut linger = Linger::default();
        assert_eq!(linger.goal(), None);
        for answers in [1, 2] {
            linger.answered(answers, 0);
            assert_eq!(linger.goal(), None);
        }
    }

    #[test]
    fn most_of_those_just_answered_are_waited_for() {
        let mut linger = Linger::default();
        linger.answered(12, 4);
        assert_eq!(linger.goal(), Some((14, LINGER_MAX)));
    }

    #[test]
    fn a_miss_turns_it_off_for_a_while() {
        let mut linger = Linger::default();
        linger.answered(16, 0);
        linger.missed();
        let goals: Vec<bool> = (0..10).map(|_| linger.goal().is_some()).collect();
        assert_eq!(goals, [false, false, false, false, false, false, false, false, true, true]);
    }
}
