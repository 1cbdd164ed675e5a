//! A sorted set in Redis whose members are ids and whose scores are the times at which they are due: the delay queue that many
//! a shop has built for itself.
//!
//! Members that are due move, in one script, to a second set, where each has a lease; its look taken, it is removed from there.
//! What is still there when its lease is over goes back, with the time at which it does as its score, unless its producer has put it there again meanwhile with a
//! time of its own. Whoever takes next does that, so it needs no daemon that lives.

use std::{
    collections::HashSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Door, Fault, Taken};
use crate::{
    config::{Redis, SortedSetDoor},
    order::Printable,
    redis::{Commands, DelayQueue, DueMembers, RedisError},
};

/// The longest pause between two looks at the set: a member may be put there at any time with any score.
const PAUSE: Duration = Duration::from_millis(100);

/// A sorted set, and connections of its own to its Redis.
#[derive(Debug)]
pub(super) struct SortedSet {
    commands: Commands,
    queue: DelayQueue,
    lease: Duration,
    in_hand: Mutex<HashSet<Vec<u8>>>,
    /// For how long nothing is due.
    rest: Mutex<Duration>,
}

/// A member.
#[derive(Debug)]
pub(super) struct Member(Vec<u8>);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&String::from_utf8_lossy(&self.0)).fmt(f)
    }
}

impl SortedSet {
    /// # Errors
    /// Says what is wrong with the configuration of Redis.
    pub(super) fn new(redis: &Redis, settings: &SortedSetDoor) -> Result<Self, RedisError> {
        Ok(Self {
            commands: Commands::new(redis)?,
            queue: DelayQueue::new(&settings.key, settings.unit.micros()),
            lease: settings.lease.get(),
            in_hand: Mutex::default(),
            rest: Mutex::default(),
        })
    }

    /// Whether members can be taken.
    pub(super) async fn examine(&self) -> Result<String, Fault> {
        Fault::unless_granted(&self.commands.missing_rights_of_set(&self.queue).await?)?;
        Ok(String::new())
    }

    fn in_hand(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long nothing is due; from now on so long.
    fn rests(&self, rest: Duration) -> Duration {
        std::mem::replace(&mut self.rest.lock().unwrap_or_else(PoisonError::into_inner), rest)
    }

    fn done(&self, members: Vec<Member>) -> Vec<Vec<u8>> {
        let mut in_hand = self.in_hand();
        let done: Vec<Vec<u8>> = members.into_iter().map(|Member(member)| member).collect();
        done.iter().for_each(|member| {
            in_hand.remove(member);
        });
        done
    }
}

impl Door for SortedSet {
    type Receipt = Member;

    async fn open(&mut self) -> Result<(), Fault> {
        self.in_hand().clear();
        self.rests(Duration::ZERO);
        // A key that holds something else is found out now.
        self.commands.take_due(&self.queue, 0, self.lease).await?;
        Ok(())
    }

    async fn take(&self, most: usize) -> Result<Vec<Taken<Member>>, Fault> {
        tokio::time::sleep(self.rests(PAUSE)).await;
        let DueMembers { members, next } = self.commands.take_due(&self.queue, most, self.lease).await?;
        self.rests(if members.is_empty() { next.unwrap_or(PAUSE).min(PAUSE) } else { Duration::ZERO });
        self.in_hand().extend(members.iter().cloned());
        Ok(members.into_iter().map(|id| Taken { receipt: Member(id.clone()), id: Ok(id) }).collect())
    }

    async fn settle(&self, seen: Vec<Member>) -> Result<(), Fault> {
        Ok(self.commands.forget_due(&self.queue, &self.done(seen)).await?)
    }

    async fn set_aside(&self, malformed: Vec<Member>) -> Result<(), Fault> {
        Ok(self.commands.put_apart_due(&self.queue, &self.done(malformed)).await?)
    }

    async fn close(&mut self) {
        let in_hand: Vec<Vec<u8>> = self.in_hand().drain().collect();
        if !in_hand.is_empty() {
            // If that fails, their leases end.
            self.commands.give_back_due(&self.queue, &in_hand).await.ok();
        }
    }
}
