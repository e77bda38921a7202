//! Wing & Gong's search: is there an order of the calls that a single lock could have gone through?
//!
//! Depth first, each step puts one more call next. States that were reached before, with the same calls behind them,
//! are not gone through again (Lowe, "Testing for linearizability"; Horn & Kroening, "Faster linearizability checking
//! via P-compositionality"). What is particular here:
//! - An entry takes effect in a window of time, and a state knows how late it is at least, so that deadlines can be
//!   compared.
//! - An answer that leaves the state as it is, is put next at once: any order that has it later can have it now as
//!   well.
//! - Fences rise, so the next fence is known. An acquire with unknown outcome needs to be tried only for a fence that
//!   is shown, and only when the next answers need it: a hold that nobody saw can only stand in the way.

use std::collections::HashSet;

use super::limits::Budget;
use super::lock_calls::{Ask, LockCalls};
use super::model::{Refusal, State};

/// How often the clock is read: once in so many states.
const STATES_PER_LOOK: u64 = 256;

/// What a search found.
#[derive(Debug)]
pub(super) enum Outcome {
    /// There is such an order.
    Linearizable,
    /// There is none.
    Stuck(Stuck),
    /// The time or the memory did not suffice.
    Undecided,
}

/// How far the best order came, and why it could not go on.
#[derive(Clone, Debug)]
pub(super) struct Stuck {
    /// The state there.
    pub(super) state: State,
    /// The entry that had to be next, since all the others may be later.
    pub(super) entry: usize,
    /// Why it could not be.
    pub(super) refusal: Refusal,
    placed: usize,
}

/// Looks for an order; also says how many states it went through.
pub(super) fn search(lock: &LockCalls, budget: &Budget) -> (Outcome, u64) {
    Search { lock, budget, seen: HashSet::new(), states: 0, best: None }.run()
}

struct Search<'a> {
    lock: &'a LockCalls,
    budget: &'a Budget,
    seen: HashSet<(Placed, State)>,
    states: u64,
    best: Option<Stuck>,
}

/// Which entries and asks are behind us: bits, the entries first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Placed(Box<[u64]>);

impl Placed {
    fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)].into_boxed_slice())
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(&self, index: usize) -> Self {
        let mut next = self.clone();
        next.0[index / 64] |= 1 << (index % 64);
        next
    }
}

/// A point of the search, and the ways on from it that were not tried yet.
struct Frame {
    placed: Placed,
    /// All entries before this one are placed.
    first: usize,
    count: usize,
    /// The next to be tried stands last.
    choices: Vec<Choice>,
}

#[derive(Clone, Copy)]
struct Choice {
    /// The bit of the entry or ask.
    index: usize,
    state: State,
}

impl Search<'_> {
    fn run(mut self) -> (Outcome, u64) {
        let len = self.lock.entries.len();
        let root = Placed::none(len + self.lock.asks.len());
        let mut frames = vec![self.frame(root, 0, 0, State::default())];
        while let Some(frame) = frames.last_mut() {
            if frame.count == len {
                return (Outcome::Linearizable, self.states);
            }
            let Some(choice) = frame.choices.pop() else {
                frames.pop();
                continue;
            };
            let placed = frame.placed.with(choice.index);
            let (first, count) = (frame.first, frame.count + usize::from(choice.index < len));
            self.states += 1;
            if self.is_used_up() {
                return (Outcome::Undecided, self.states);
            }
            let next = self.frame(placed, first, count, choice.state);
            let is_fork = next.choices.len() > 1;
            if !is_fork || self.seen.insert((next.placed.clone(), choice.state)) {
                frames.push(next);
            }
        }
        let stuck = self.best.expect("a search that ends without an order was stuck at least once");
        (Outcome::Stuck(stuck), self.states)
    }

    fn is_used_up(&self) -> bool {
        self.seen.len() >= self.budget.states_max
            || self.states.is_multiple_of(STATES_PER_LOOK) && self.budget.is_used_up()
    }

    fn frame(&mut self, placed: Placed, first: usize, count: usize, state: State) -> Frame {
        let len = self.lock.entries.len();
        let first = (first..len).find(|index| !placed.has(*index)).unwrap_or(len);
        let choices = self.choices(&placed, first, count, &state);
        Frame { placed, first, count, choices }
    }

    /// The ways on from a state, the most urgent last.
    fn choices(&mut self, placed: &Placed, first: usize, count: usize, state: &State) -> Vec<Choice> {
        let (window, until_us) = self.window(placed, first);
        let mut choices = Vec::new();
        for &index in &window {
            let Ok(after) = self.lock.step(state, &self.lock.entries[index], until_us) else { continue };
            let choice = Choice { index, state: after };
            if self.changes_nothing(state, &after) {
                return vec![choice];
            }
            choices.push(choice);
        }
        choices.sort_by_key(|choice| std::cmp::Reverse(self.lock.entries[choice.index].high_us));
        let mut all = self.unseen_grants(placed, &window, state, until_us);
        all.append(&mut choices);
        if all.is_empty() {
            self.note_stuck(&window, count, state, until_us);
        }
        all
    }

    /// The entries that may be next, and until when the next one must have taken effect: none may be after the end of
    /// another.
    fn window(&self, placed: &Placed, first: usize) -> (Vec<usize>, u64) {
        let mut window = Vec::new();
        let mut until_us = u64::MAX;
        for (index, entry) in self.lock.entries.iter().enumerate().skip(first) {
            if entry.low_us > until_us {
                break;
            }
            if !placed.has(index) {
                until_us = until_us.min(entry.high_us);
                window.push(index);
            }
        }
        window.retain(|index| self.lock.entries[*index].low_us <= until_us);
        (window, until_us)
    }

    /// Time alone matters only where something in doubt counts from it.
    fn changes_nothing(&self, before: &State, after: &State) -> bool {
        let is_same_hold = before.hold == after.hold && before.last_fence == after.last_fence;
        is_same_hold && (before.now_us == after.now_us || self.lock.doubts.is_empty())
    }

    /// Grants that no answer carried, for the next fence, if one of the entries that may be next shows it.
    fn unseen_grants(&self, placed: &Placed, window: &[usize], state: &State, until_us: u64) -> Vec<Choice> {
        let Some((fence, grantee)) = self.lock.next_fence(state.last_fence) else { return Vec::new() };
        let is_shown = window.iter().any(|index| self.lock.entries[*index].deed.fence() == Some(fence));
        if !is_shown || fence == u64::MAX {
            return Vec::new();
        }
        let mut tried: Vec<&Ask> = Vec::new();
        let mut choices = Vec::new();
        for (number, ask) in self.lock.asks.iter().enumerate().take_while(|(_, ask)| ask.sent_us <= until_us) {
            let index = self.lock.entries.len() + number;
            let is_other_request = grantee.granted.is_some_and(|request| request == 0 || request != ask.request);
            let is_other_owner = grantee.owner.is_some_and(|owner| owner != ask.owner);
            // The earliest of several that are alike stands for all of them.
            let is_alike = |other: &&Ask| (other.owner, other.request) == (ask.owner, ask.request);
            if is_other_request || is_other_owner || placed.has(index) || tried.iter().any(is_alike) {
                continue;
            }
            if let Some(state) = self.lock.granted_unseen(state, ask, fence, until_us) {
                tried.push(ask);
                choices.push(Choice { index, state });
            }
        }
        choices.reverse();
        choices
    }

    /// Remembers the point at which the most entries were placed.
    fn note_stuck(&mut self, window: &[usize], placed: usize, state: &State, until_us: u64) {
        if window.is_empty() || self.best.as_ref().is_some_and(|best| best.placed >= placed) {
            return;
        }
        let urgent = window.iter().min_by_key(|index| self.lock.entries[**index].high_us);
        let entry = *urgent.expect("the window is not empty");
        if let Err(refusal) = self.lock.step(state, &self.lock.entries[entry], until_us) {
            self.best = Some(Stuck { state: *state, entry, refusal, placed });
        }
    }
}
