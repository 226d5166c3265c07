//! The limits of semaphores, which are put back on nodes that have lost a slot (protocol §6, client step 6).

use std::{collections::BTreeMap, time::Duration};

use crate::{
    base::{clock::Tick, limit::Limit},
    engine::{cluster::Cluster, round},
    node::{
        Operation,
        request::{Pool, Question},
        session::{Purpose, RoundId},
    },
};

/// The slots of one semaphore are repaired one by one. The limit is sent once for those of this time.
const TOGETHER: Duration = Duration::from_millis(100);

/// The nodes forget an unused semaphore after this many times `max_ttl`, and so does this table.
const FORGOTTEN_AFTER: u32 = 4;

/// The limits that were sent.
#[derive(Default)]
pub(super) struct Limits(BTreeMap<Pool, Sent>);

struct Sent {
    limit: Limit,
    round: RoundId,
    at: Tick,
    answers: usize,
    /// The greatest limit among the answers.
    greatest: Limit,
}

impl Limits {
    /// A node has lost a slot, so it has lost the limit too. All nodes are asked, because the answers of those that kept
    /// it may tell of a resize since the grant. A node where this limit or a greater one stands changes nothing.
    pub(super) fn put_back(&mut self, cluster: &mut Cluster, pool: &Pool, limit: Limit) {
        let (now, rules) = (cluster.now, cluster.settings.rules);
        let forgotten = cluster.fleet().max_ttl() * FORGOTTEN_AFTER;
        self.0.retain(|_, sent| sent.at.plus(forgotten) > now);
        let sent = self.0.get(pool);
        let greatest = match sent {
            Some(sent) if sent.limit.beats(limit, rules) => sent.limit,
            _ => limit,
        };
        if sent.is_none_or(|sent| sent.limit != greatest || sent.at.plus(TOGETHER) <= now) {
            self.send(cluster, pool.clone(), greatest);
        }
    }

    /// Handles the limit that stands on a node. If a majority has answered, the greatest one of theirs counts, as for a
    /// TAKE. If that beats the one that was sent, there was a resize, of which the repaired nodes must learn.
    pub(super) fn heard(&mut self, cluster: &mut Cluster, round: RoundId, limit: Limit) {
        let rules = cluster.settings.rules;
        let found = self.0.iter_mut().find(|(_, sent)| sent.round == round);
        let Some((pool, sent)) = found else { return };
        sent.answers += 1;
        if limit.beats(sent.greatest, rules) {
            sent.greatest = limit;
        }
        if sent.answers >= cluster.needed && sent.greatest.beats(sent.limit, rules) {
            let (pool, greatest) = (pool.clone(), sent.greatest);
            self.send(cluster, pool, greatest);
        }
    }

    fn send(&mut self, cluster: &mut Cluster, pool: Pool, limit: Limit) {
        let round = cluster.new_round();
        let operation = Operation::new(Question::Resize(pool.clone(), limit));
        let tag = Purpose::SettleLimit.of(round);
        round::ask(cluster, tag, &operation, 0..cluster.total());
        let sent = Sent {
            limit,
            round,
            at: cluster.now,
            answers: 0,
            greatest: limit,
        };
        self.0.insert(pool, sent);
    }
}
