//! A leader that is killed in the middle of a change of the members.

use std::io;
use std::time::Duration;

use super::members::{Call, Operator};
use crate::clock::{ms, now, secs, wait_for};
use crate::cluster::view::view_of;
use crate::http::Conn;

/// A leader that has not acted upon the call by then dies all the same.
const ACTED_UPON_WITHIN: Duration = secs(1);
const VIEW_WITHIN: Duration = ms(200);

/// What is under way when the leader is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Midway {
    /// A new node is added.
    Add,
    /// A new node gets its vote.
    Promote,
    /// This one is removed.
    Remove(u64),
    /// Leadership goes to this one.
    Lead(u64),
}

/// When the leader dies.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the call was sent.
    After(Duration),
    /// As soon as a node shows other members than before: the first of two steps, or all of one, is in its log.
    Logged,
}

impl Operator<'_> {
    /// Asks for a change, kills the leader before there is an answer, asks again until it is granted, and looks whether
    /// it is there.
    pub(super) fn lose_leader_midway(&mut self, change: Midway) -> io::Result<()> {
        let (planned, moment) = (self.cluster.planned(), self.moment_in(change));
        match change {
            Midway::Add => {
                let id = self.start_new(&["--standby".to_owned()])?;
                self.granted_at_last(&self.call_to_add(id), moment)?;
                self.must_be_member(id)?;
                self.insist(&Call::to_promote(id))?;
                self.is_one_of_them(id)?;
                self.done.steps.push(format!("node {id} added"));
                self.shrink_to(planned + 1)
            }
            Midway::Promote => {
                let id = self.start_new(&["--standby".to_owned()])?;
                self.insist(&self.call_to_add(id))?;
                self.must_be_member(id)?;
                self.granted_at_last(&Call::to_promote(id), moment)?;
                self.is_one_of_them(id)?;
                self.done.steps.push(format!("node {id} promoted"));
                self.shrink_to(planned + 1)
            }
            Midway::Remove(id) => {
                self.grow_to(planned.max(2))?;
                let id = self.still(id);
                self.is_leaving(id);
                self.granted_at_last(&Call::to_remove(id), moment)?;
                self.is_gone(id)?;
                self.must_end(id)
            }
            Midway::Lead(to) => {
                let to = self.still(to);
                self.granted_at_last(&Call::to_lead(Some(to)), moment)?;
                self.done.steps.push(format!("leadership to {to}"));
                Ok(())
            }
        }
    }

    fn moment_in(&mut self, change: Midway) -> Moment {
        match change {
            // It logs nothing, and is over sooner.
            Midway::Lead(_) => Moment::After(ms(self.dice.between(&(0..=20)))),
            _ if self.dice.chance(60) => Moment::Logged,
            _ => Moment::After(ms(self.dice.between(&(0..=80)))),
        }
    }

    /// The first call loses its leader; it is repeated while that is down, and once it is back.
    fn granted_at_last(&mut self, call: &Call, moment: Moment) -> io::Result<()> {
        let down_for = ms(self.dice.between(&(300..=2_000)));
        let Some(killed) = self.kill_leader_during(call, moment)? else { return self.insist(call).map(drop) };
        let back_at = now() + down_for;
        // Without it there may be no majority of the old members and of the new ones.
        let granted = self.insist_within(down_for, call).is_ok();
        let _in_time = wait_for(back_at.saturating_duration_since(now()), || {
            (self.meanwhile)();
            None::<()>
        });
        self.cluster.start_node(killed)?;
        if granted { Ok(()) } else { self.insist(call).map(drop) }
    }

    /// Sends a call and kills whoever leads at a moment before it is answered; whom. Nobody, if nobody was seen to
    /// lead.
    fn kill_leader_during(&mut self, call: &Call, moment: Moment) -> io::Result<Option<u64>> {
        let others = self.others(call.not_at);
        let asked = *self.dice.pick(&others);
        let Some(leader) = self.observer.leader().filter(|leader| self.cluster.ids().contains(leader)) else {
            return Ok(None);
        };
        let mut conn = Conn::open(self.cluster.node(asked).api_address)?;
        let before = view_of(self.cluster.node(leader).api_address, VIEW_WITHIN).and_then(|view| view.membership);
        conn.send(&call.bytes())?;
        let leader = self.leader_at(moment, leader, before.as_deref(), &conn);
        self.is_hit(leader);
        let killed = self.cluster.node_mut(leader).kill();
        // Whatever came while it died came too late to tell: it does not count.
        self.done.was_under_way = killed && !conn.has_bytes();
        self.done.steps.push(format!("node {leader} killed"));
        Ok(Some(leader))
    }

    /// Who leads at that moment, which an answer brings forward.
    fn leader_at(&self, moment: Moment, leader: u64, before: Option<&str>, conn: &Conn) -> u64 {
        let (sent, mut leader) = (now(), leader);
        let until = sent + ACTED_UPON_WITHIN;
        while now() < until && !conn.has_bytes() {
            let Some(view) = view_of(self.cluster.node(leader).api_address, VIEW_WITHIN) else { return leader };
            leader = view.leader.filter(|leader| self.cluster.ids().contains(leader)).unwrap_or(leader);
            let is_there = match moment {
                Moment::After(wait) => sent.elapsed() >= wait,
                Moment::Logged => view.membership.as_deref() != before,
            };
            if is_there {
                return leader;
            }
        }
        leader
    }
}
