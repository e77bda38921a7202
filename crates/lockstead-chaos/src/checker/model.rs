//! One lock with a TTL, in one copy: what each answer asserts, tried against a state.

use super::lock_calls::{Ask, Deed, Effect, Entry, How, Label, LockCalls, Whose};

/// Who holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) fence: u64,
    pub(super) owner: Label,
    pub(super) request: Label,
    /// The TTL that it was last given.
    pub(super) ttl_us: u64,
    /// Before this it can't end by itself.
    pub(super) end_us: u64,
    /// When it was last granted or prolonged, at the earliest.
    pub(super) set_us: u64,
}

/// The lock at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) hold: Option<Hold>,
    pub(super) last_fence: u64,
    /// It is at least this late.
    pub(super) now_us: u64,
}

/// Why an answer can't be next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The hold can't have ended before `until_us`.
    Alive { hold: Hold, until_us: u64 },
    /// The fence is not above the last one.
    FenceFell { last: u64 },
    /// A lower fence must have been granted before.
    NotYet { lower: u64 },
    /// The fence has been granted to another.
    FenceTwice { hold: Hold },
    /// The hold that the answer names is not the one in force.
    Over,
    /// The caller was denied because of its own hold.
    Own { hold: Hold },
    /// The TTL is not the one that the hold was last given.
    OtherTtl { hold: Hold },
}

impl LockCalls {
    /// The state after `entry`, if it can be decided next and not after `until_us`.
    pub(super) fn step(&self, state: &State, entry: &Entry, until_us: u64) -> Result<State, Refusal> {
        let state = State { now_us: state.now_us.max(entry.low_us), ..*state };
        match entry.deed {
            Deed::Grant { .. } => self.grant(&state, &entry.deed, until_us),
            Deed::Denied { holder, owner, request } => self.denied(&state, holder, (owner, request), until_us),
            Deed::Renewed { fence, owner, ttl_us, end_us } => {
                let hold = in_force(&state, fence)?;
                if owner != 0 && hold.owner != owner {
                    return Err(Refusal::Over);
                }
                Ok(State { hold: Some(prolonged(&hold, ttl_us, end_us, state.now_us)), ..state })
            }
            Deed::Released { fence } => in_force(&state, fence).map(|_| State { hold: None, ..state }),
            Deed::Shown { fence } => in_force(&state, fence).map(|_| state),
            Deed::Gone { of } if !state.hold.is_some_and(|hold| is_meant(&hold, of)) => Ok(state),
            Deed::Gone { .. } | Deed::Free => self.freed(&state, until_us),
        }
    }

    /// The state after the acquire of unknown outcome `ask` was granted `fence`.
    pub(super) fn granted_unseen(&self, state: &State, ask: &Ask, fence: u64, until_us: u64) -> Option<State> {
        let state = State { now_us: state.now_us.max(ask.sent_us), ..*state };
        let free = self.freed(&state, until_us).ok().filter(|free| free.now_us <= until_us)?;
        // A grant that no answer carried may be given back at any moment.
        let Ask { owner, request, .. } = *ask;
        let hold = Hold { fence, owner, request, ttl_us: 0, end_us: 0, set_us: free.now_us };
        Some(State { hold: Some(hold), last_fence: fence, ..free })
    }

    fn grant(&self, state: &State, deed: &Deed, until_us: u64) -> Result<State, Refusal> {
        let Deed::Grant { fence, how, owner, request, ttl_us, end_us } = *deed else { return Ok(*state) };
        match (how, state.hold.filter(|hold| hold.fence == fence)) {
            (How::RenewedAsOwner, Some(hold)) if owner != 0 && hold.owner == owner => {
                Ok(State { hold: Some(prolonged(&hold, ttl_us, end_us, state.now_us)), ..*state })
            }
            (How::Granted, Some(hold)) if request != 0 && hold.request == request => {
                // Another TTL than is known tells of a renewal that nobody was told of, so there must have been one.
                if !self.may_have_ttl(&hold, ttl_us) {
                    return Err(Refusal::OtherTtl { hold });
                }
                let end_us = if ttl_us >= hold.ttl_us { end_us.max(hold.end_us) } else { end_us };
                Ok(State { hold: Some(Hold { ttl_us, end_us, ..hold }), ..*state })
            }
            (_, Some(hold)) => Err(Refusal::FenceTwice { hold }),
            (How::RenewedAsOwner, None) => Err(Refusal::Over),
            (How::Granted, None) if fence <= state.last_fence => Err(Refusal::FenceFell { last: state.last_fence }),
            (How::Granted, None) => {
                let free = self.freed(state, until_us)?;
                match self.next_fence(state.last_fence) {
                    Some((lower, _)) if lower < fence => return Err(Refusal::NotYet { lower }),
                    _ => {}
                }
                let hold = Hold { fence, owner, request, ttl_us, end_us, set_us: free.now_us };
                Ok(State { hold: Some(hold), last_fence: fence, ..free })
            }
        }
    }

    /// Whether the hold has this TTL, or may have been given it by a call of unknown outcome. Of a grant unseen it is
    /// not known.
    fn may_have_ttl(&self, hold: &Hold, asked_us: u64) -> bool {
        let gives = |effect| matches!(effect, Effect::Shorten { ttl_us, .. } if ttl_us == asked_us);
        let in_doubt = || self.doubts.iter().any(|doubt| is_meant(hold, doubt.of) && gives(doubt.effect));
        hold.ttl_us == 0 || hold.ttl_us == asked_us || in_doubt()
    }

    fn denied(
        &self,
        state: &State,
        holder: u64,
        (owner, request): (Label, Label),
        until_us: u64,
    ) -> Result<State, Refusal> {
        let is_own = |hold: &Hold| owner != 0 && hold.owner == owner || request != 0 && hold.request == request;
        let own = state.hold.filter(is_own);
        if holder != 0 {
            in_force(state, holder)?;
            return own.map_or(Ok(*state), |hold| Err(Refusal::Own { hold }));
        }
        match own {
            Some(hold) => self.freed(state, until_us).map_err(|_| Refusal::Own { hold }),
            None => Ok(*state),
        }
    }

    /// The state once the hold, if any, has ended by itself or by what is in doubt.
    fn freed(&self, state: &State, until_us: u64) -> Result<State, Refusal> {
        let Some(hold) = state.hold else { return Ok(*state) };
        let now_us = state.now_us.max(self.earliest_end_us(&hold));
        if now_us > until_us {
            return Err(Refusal::Alive { hold, until_us: now_us });
        }
        Ok(State { hold: None, now_us, ..*state })
    }

    fn earliest_end_us(&self, hold: &Hold) -> u64 {
        let in_doubt =
            self.doubts.iter().filter(|doubt| is_meant(hold, doubt.of)).filter_map(|doubt| match doubt.effect {
                Effect::Release => Some(doubt.sent_us),
                Effect::Shorten { ttl_us, margin_us } => {
                    (ttl_us < hold.ttl_us).then(|| (doubt.sent_us.max(hold.set_us) + ttl_us).saturating_sub(margin_us))
                }
            });
        in_doubt.min().map_or(hold.end_us, |in_doubt_us| in_doubt_us.min(hold.end_us))
    }
}

/// A renewal counts from its own moment. It lets the hold end sooner only if its TTL is shorter.
fn prolonged(hold: &Hold, ttl_us: u64, end_us: u64, now_us: u64) -> Hold {
    let end_us = if ttl_us >= hold.ttl_us { end_us.max(hold.end_us) } else { end_us };
    Hold { ttl_us, end_us, set_us: now_us, ..*hold }
}

fn in_force(state: &State, fence: u64) -> Result<Hold, Refusal> {
    state.hold.filter(|hold| hold.fence == fence).ok_or(Refusal::Over)
}

fn is_meant(hold: &Hold, of: Whose) -> bool {
    match of {
        Whose::Fence(fence) => hold.fence == fence,
        Whose::Owner(owner) => owner != 0 && hold.owner == owner,
    }
}
