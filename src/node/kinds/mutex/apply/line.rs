//! Waiting in line (protocol §5): the executable meaning of `line.lua`.

use std::time::Duration;

use super::{Memory, counted, lock::Came};
use crate::{
    base::{name::Name, owner::Entry, rules::Rule},
    node::{
        fault::Fault,
        kinds::{
            counters::{MAX_TOKEN, Mint},
            moment::Moment,
            mutex::{Ahead, Place, Reply, lines::Waiter},
        },
        push::{Push, Says},
    },
};

/// What became of a free lock.
pub(super) enum Served {
    /// Nobody who is alive waits.
    Nobody,
    /// Who asks is the head. It is not handed over, but answered. With a token, if one was made before.
    Me(Option<u64>),
    /// It is another's now, or kept for one.
    Ahead(Ahead),
    /// Something failed. It is free.
    Stuck,
}

impl Memory {
    /// JOIN.
    pub(super) fn join(
        &mut self,
        name: &Name,
        (place, only_last): (&Place, bool),
        ttl: Duration,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let entry = &place.entry;
        if self.is_held_by(name, entry, 0, at.time) {
            at.may_delete()?; // PEXPIRE too is allowed to a full server
            let seq = self.prolong(name, ttl, at.time);
            let counter = mint.counters.read(&counted(name), at);
            return Ok(Reply::Taken { counter, seq });
        }
        if only_last
            && at.rules.hold(Rule::OnlyLast)
            && self.overtakes(name, place, at)
            && let Some(held) = self.held_or_served(name, mint, at)
        {
            return Ok(held);
        }
        let ahead = match self.live(name, at.time) {
            Some(lock) => {
                let ahead = lock.ahead(at.time);
                self.register(name, place, place.seq, at)?;
                ahead
            }
            None => match self.join_free(name, place, mint, at)? {
                Served::Me(token) => {
                    let token = match token {
                        Some(token) => token,
                        None => mint.token(&counted(name), at)?,
                    };
                    let came = Came::by(place.seq, place.ticket);
                    self.hold(name, entry, came, ttl, at.time);
                    self.lines.remove(name, entry);
                    return Ok(Reply::Taken {
                        counter: token,
                        seq: place.seq,
                    });
                }
                Served::Ahead(ahead) => ahead,
                Served::Nobody | Served::Stuck => FREE,
            },
        };
        let mut before = self.lines.all(name, at.ms());
        let rank = before.position(|(_, other)| other == entry).unwrap_or(0);
        Ok(Reply::InLine {
            rank: rank as u64,
            ahead,
        })
    }

    /// Whether one who is to be the last would stand before somebody, or before who has the lock.
    fn overtakes(&self, name: &Name, place: &Place, at: Moment) -> bool {
        let now = at.ms();
        let last = self.lines.all(name, now).next_back();
        let last = last.filter(|_| self.lines.stand(now));
        let held = self.live(name, at.time).map_or(0, |lock| lock.came.ticket);
        let after = last.map_or(0, |(ticket, _)| *ticket).max(held);
        after >= place.ticket && self.lines.waiter(name, &place.entry, now).is_none()
    }

    /// JOIN where the lock is free: who is alive and comes first.
    fn join_free(
        &mut self,
        name: &Name,
        place: &Place,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Served, Fault> {
        let head = self.lines.all(name, at.ms()).next();
        if head.is_none_or(|(_, head)| *head == place.entry) {
            return Ok(Served::Me(None));
        }
        self.register(name, place, place.seq, at)?;
        Ok(self.serve(name, mint, None, Some(&place.entry), at))
    }

    /// YIELD.
    pub(super) fn give_back(
        &mut self,
        name: &Name,
        place: &Place,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<Reply, Fault> {
        if self.is_held_by(name, &place.entry, place.seq, at.time) {
            at.may_delete()?;
            self.locks.remove(name);
        } else if self.is_held_by(name, &place.entry, 0, at.time) {
            // By a later request.
            return Ok(Reply::Yielded);
        }
        // What was given back is not given again: the seq is used up.
        self.register(name, place, 0, at)?;
        if self.live(name, at.time).is_none() {
            self.serve(name, mint, Some(&place.entry), None, at);
        }
        Ok(Reply::Yielded)
    }

    /// What RELEASE does for the line of a name, if there is one.
    pub(in crate::node::kinds) fn leave(
        &mut self,
        name: &Name,
        entry: &Entry,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Result<(), Fault> {
        if !self.has_line(name, at) {
            return Ok(());
        }
        at.may_delete()?;
        self.lines.remove(name, entry);
        if at.admitted && self.live(name, at.time).is_none() {
            self.serve(name, mint, None, None, at);
        }
        Ok(())
    }

    /// ACQUIRE of a name that has a line, which it never overtakes. None: it is as any other.
    pub(in crate::node::kinds) fn behind(
        &mut self,
        name: &Name,
        mint: &mut Mint<'_>,
        at: Moment,
    ) -> Option<Reply> {
        if !self.has_line(name, at) {
            return None;
        }
        self.held_or_served(name, mint, at)
    }

    /// Who has the lock, after it was handed over if it was free. None: nobody.
    fn held_or_served(&mut self, name: &Name, mint: &mut Mint<'_>, at: Moment) -> Option<Reply> {
        let ahead = match self.live(name, at.time) {
            Some(lock) => lock.ahead(at.time),
            None if mint.counters.read(&counted(name), at) >= MAX_TOKEN => return None,
            None => match self.serve(name, mint, None, None, at) {
                Served::Ahead(ahead) => ahead,
                Served::Stuck => FREE,
                Served::Nobody | Served::Me(_) => return None,
            },
        };
        let last = self.lines.all(name, at.ms()).next_back();
        let last = last.map_or(0, |(ticket, _)| *ticket);
        Some(Reply::Held {
            remaining: ahead.remaining,
            counter: mint.counters.read(&counted(name), at),
            holder: ahead.holder,
            ticket: ahead.ticket.max(last),
        })
    }

    /// A holder whose REPAIR is refused: when the lock is free it is kept for the next one.
    pub(super) fn stand_first(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        at: Moment,
    ) -> Result<(), Fault> {
        let place = Place {
            entry: entry.clone(),
            seq: 0,
            ticket: 0,
            term: ttl,
            lock_delay: Duration::ZERO,
            life: ttl,
            claim: ttl,
            channel: "".into(),
        };
        at.may_write()?;
        self.lines.register(name, &place, 0, at.ms());
        Ok(())
    }

    fn has_line(&self, name: &Name, at: Moment) -> bool {
        self.lines.stand(at.ms()) && self.lines.count(name, at.ms()) > 0
    }

    fn register(&mut self, name: &Name, place: &Place, seq: u64, at: Moment) -> Result<(), Fault> {
        at.may_write()?;
        self.lines.refresh(name, place, seq, at.ms());
        Ok(())
    }

    /// A free lock goes to the head of the line. `mint`: of who has set it free, or tries to take it.
    fn serve(
        &mut self,
        name: &Name,
        mint: &mut Mint<'_>,
        not: Option<&Entry>,
        me: Option<&Entry>,
        at: Moment,
    ) -> Served {
        let now = at.ms();
        let mut token = None;
        loop {
            let Some((head, next)) = self.lines.heads(name, now) else {
                return Served::Nobody;
            };
            if not == Some(&head) {
                return Served::Nobody;
            }
            if me == Some(&head) {
                return Served::Me(token);
            }
            let Some(waiter) = self.lines.waiter(name, &head, now).cloned() else {
                return Served::Stuck;
            };
            if let Some(left) = waiter.kept(now)
                && !waiter.is_gone(now)
            {
                return Served::Ahead(reserved(&head, &waiter, left));
            }
            if waiter.is_gone(now) {
                // Dropped, as one whom nobody hears.
            } else if waiter.is_fresh(now) {
                let minted = match token {
                    Some(token) => Ok(token),
                    None => mint.token(&counted(name), at),
                };
                let Ok(minted) = minted else {
                    return Served::Stuck;
                };
                token = Some(minted);
                // Nothing is written for a head before a connection hears it.
                let says = Says::Granted {
                    seq: waiter.seq,
                    token: minted,
                    guard: at.guard.into(),
                };
                if publish(&head, &waiter, says, at) {
                    let left = Duration::from_millis(waiter.term + waiter.lock_delay);
                    let came = Came::by(waiter.seq, waiter.ticket);
                    self.hold(name, &head, came, left, at.time);
                    self.lines.remove(name, &head);
                    self.tell(name, &waiter, next.as_ref(), waiter.term, at);
                    return Served::Ahead(Ahead {
                        remaining: Some(left),
                        ticket: waiter.ticket,
                        holder: Some(head.text()),
                        is_reserved: false,
                    });
                }
            // It has to ask. Without a channel it does so from time to time.
            } else if waiter.channel.is_empty() || publish(&head, &waiter, Says::Called, at) {
                if at.may_write().is_err() {
                    return Served::Stuck;
                }
                self.lines.reserve(name, &head, now);
                self.tell(name, &waiter, next.as_ref(), waiter.claim, at);
                let left = Duration::from_millis(waiter.claim);
                return Served::Ahead(reserved(&head, &waiter, left));
            }
            if at.may_delete().is_err() {
                return Served::Stuck;
            }
            self.lines.remove(name, &head);
        }
    }

    /// Who stands behind the head is told when to ask. It need not hear that. One of the head's own process may have
    /// vanished with it: then the last in line is told, if it is another's and hears it.
    fn tell(&self, name: &Name, head: &Waiter, next: Option<&Entry>, after: u64, at: Moment) {
        let now = at.ms();
        let known = |entry: &Entry| {
            let waiter = self.lines.waiter(name, entry, now)?;
            (!waiter.channel.is_empty()).then(|| (entry.clone(), waiter))
        };
        let Some(next) = next
            .filter(|_| at.rules.hold(Rule::NextIsTold))
            .and_then(known)
        else {
            return;
        };
        let last = self.lines.all(name, now).next_back();
        let last = last.and_then(|(_, last)| known(last));
        let last =
            last.filter(|(_, last)| next.1.channel == head.channel && last.channel != head.channel);
        let says = Says::Next {
            after: Duration::from_millis(after),
        };
        let hears = |(entry, waiter): (Entry, &Waiter)| publish(&entry, waiter, says.clone(), at);
        if !last.is_some_and(hears) && !next.1.asks_soon(now, after) {
            hears(next);
        }
    }
}

/// A lock that is free, and kept for nobody.
const FREE: Ahead = Ahead {
    remaining: Some(Duration::ZERO),
    ticket: 0,
    holder: None,
    is_reserved: false,
};

fn reserved(head: &Entry, waiter: &Waiter, left: Duration) -> Ahead {
    Ahead {
        remaining: Some(left),
        ticket: waiter.ticket,
        holder: Some(head.text()),
        is_reserved: true,
    }
}

/// Whether anybody hears it.
fn publish(entry: &Entry, waiter: &Waiter, says: Says, at: Moment) -> bool {
    let entry = entry.clone();
    at.air.publish(&waiter.channel, Push { entry, says })
}
