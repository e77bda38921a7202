//! What a node takes from the machine it runs on: clocks, randomness, its log and its network.
//!
//! Everything that decides is generic over [`Platform`], so that a simulator can run the same code on clocks and links
//! of its own; tokio's paused clock stands in for the async runtime there. Nobody outside this crate sees the
//! parameter.

use std::time::{SystemTime, UNIX_EPOCH};

use lockstead_core::{Token, WallTime};
use openraft::network::{NetSnapshot, RaftNetworkFactory};
use openraft::storage::RaftLogStorage;
use rustix::time::{ClockId, clock_gettime};

use crate::peer::PeerNetworkFactory;
use crate::store::LogStore;
use crate::types::{SnapshotData, TypeConfig};

/// What a node takes from the machine it runs on.
pub(crate) trait Platform: Send + Sync + 'static {
    /// Where the log is kept.
    type Log: RaftLogStorage<TypeConfig>;
    /// How peers are reached.
    type Network: RaftNetworkFactory<TypeConfig, Network: NetSnapshot<TypeConfig, SnapshotData = SnapshotData>>;

    /// Both elapsed clocks, read together.
    fn clocks(&self) -> ClockPair;
    /// The wall clock, for people.
    fn wall(&self) -> WallTime;
    /// 128 bits that nobody can guess.
    fn random(&self) -> u128;

    /// A fresh token.
    fn token(&self) -> Token {
        Token(self.random().to_be_bytes())
    }
}

/// One reading of a machine's two elapsed clocks, in microseconds from origins of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockPair {
    /// `CLOCK_BOOTTIME`: counts on during suspend, steered by NTP's rate.
    pub(crate) boottime_us: u64,
    /// `CLOCK_MONOTONIC_RAW`: the hardware's own rate, stands still during suspend.
    pub(crate) monotonic_raw_us: u64,
}

impl ClockPair {
    /// Microseconds from `earlier` to this reading on the clock that ran slower: what a server may count as passed.
    pub(crate) fn us_since_at_least(self, earlier: Self) -> u64 {
        let (boottime_us, monotonic_raw_us) = self.us_since(earlier);
        boottime_us.min(monotonic_raw_us)
    }

    /// Microseconds from `earlier` to this reading on the clock that ran faster: what a holder must count as passed.
    pub(crate) fn us_since_at_most(self, earlier: Self) -> u64 {
        let (boottime_us, monotonic_raw_us) = self.us_since(earlier);
        boottime_us.max(monotonic_raw_us)
    }

    /// Milliseconds from `earlier`, rounded up, on the clock that ran faster.
    pub(crate) fn ms_since_at_most(self, earlier: Self) -> u64 {
        self.us_since_at_most(earlier).div_ceil(1_000)
    }

    fn us_since(self, earlier: Self) -> (u64, u64) {
        (
            self.boottime_us.saturating_sub(earlier.boottime_us),
            self.monotonic_raw_us.saturating_sub(earlier.monotonic_raw_us),
        )
    }
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host;

impl Platform for Host {
    type Log = LogStore;
    type Network = PeerNetworkFactory;

    fn clocks(&self) -> ClockPair {
        ClockPair {
            boottime_us: micros(clock_gettime(ClockId::Boottime)),
            monotonic_raw_us: micros(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    fn wall(&self) -> WallTime {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn random(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the kernel's random source works: without it no token is secret");
        u128::from_be_bytes(bytes)
    }
}

fn micros(time: rustix::time::Timespec) -> u64 {
    let whole_us = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000);
    whole_us + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::ClockPair;

    #[test]
    fn servers_count_the_slower_clock_and_holders_the_faster() {
        let before = ClockPair { boottime_us: 1_000, monotonic_raw_us: 500 };
        let suspended = ClockPair { boottime_us: 9_001, monotonic_raw_us: 2_500 };
        assert_eq!(suspended.us_since_at_least(before), 2_000);
        assert_eq!(suspended.us_since_at_most(before), 8_001);
        assert_eq!(suspended.ms_since_at_most(before), 9, "rounded up");
    }

    #[test]
    fn a_clock_that_steps_back_counts_as_no_time() {
        let later = ClockPair { boottime_us: 10, monotonic_raw_us: 10 };
        assert_eq!(ClockPair::default().us_since_at_most(later), 0);
    }
}
