//! How the units of a quota are given out: some intervals by single nodes, others as slots of a majority.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    Error, Quota, Semaphore,
    claim::{Family, Pool},
    clock::Tick,
    engine::Engine,
    name::Name,
    node::wire::keys,
    quota::{Masters, Window},
    rate::words::Limited,
};

const SHORTEST_GRACE: Duration = Duration::from_millis(20);
const LONGEST_GRACE: Duration = Duration::from_millis(500);

/// What a limiter's settings come to.
pub(super) struct Plan {
    /// The intervals in which every node has units of its own.
    pub(super) limited: Option<Arc<Limited>>,
    /// Those with fewer units than nodes: each unit is a slot.
    pub(super) small: Vec<Small>,
    /// How old units may be when they are used.
    pub(super) age: Duration,
    /// As many can be had at once.
    pub(super) most: u32,
}

pub(super) struct Small {
    pub(super) window: Window,
    pub(super) slots: Semaphore,
    /// For how long a slot is taken.
    pub(super) ttl: Duration,
    /// When this process used one, as long as it is taken.
    pub(super) used: Mutex<Vec<Tick>>,
}

impl Plan {
    /// # Errors
    /// `Invalid`.
    pub(super) fn new(
        engine: &Engine,
        name: &Arc<str>,
        quota: &Quota,
        masters: Masters,
        (grace, block): (Option<Duration>, Option<u32>),
    ) -> Result<Self, Error> {
        let name = Name::new(Arc::clone(name))?;
        quota.check()?;
        let most = Duration::from_millis(quota.windows().first().map_or(0, Window::ahead));
        let age = match grace {
            Some(grace) if grace.is_zero() || grace > most => {
                return Err(Error::Invalid(format!(
                    "a grace of {grace:?} is not allowed: it is above 0, and at most {most:?}, a tenth of the interval"
                )));
            }
            Some(grace) => grace,
            None if block.is_some() => most,
            None => (quota.shortest() / 20)
                .clamp(SHORTEST_GRACE, LONGEST_GRACE)
                .min(most),
        };
        let is_small = |window: &&Window| (window.limit as usize) < masters.total;
        let (small, large): (Vec<&Window>, Vec<&Window>) =
            quota.windows().iter().partition(is_small);
        if let Some(block) = block {
            check_block(block, quota, small.first().copied())?;
        }
        let limited = (!large.is_empty()).then(|| {
            Arc::new(Limited {
                name: name.clone(),
                windows: large.into_iter().copied().collect(),
            })
        });
        let small = small.into_iter().map(|window| {
            let ttl = Duration::from_millis(window.kept()) + age;
            let total = u32::try_from(masters.total).unwrap_or(u32::MAX);
            let pool = Pool {
                name: Name::of_part(keys::limited(total, *window, name.as_str())),
                family: Family::Units {
                    kept: Duration::from_millis(window.kept() + window.ahead()),
                    history: window.history(),
                },
            };
            Small {
                window: *window,
                slots: Semaphore::of_units(
                    engine.clone(),
                    pool,
                    window.limit,
                    (ttl, masters.max_ttl),
                ),
                ttl,
                used: Mutex::default(),
            }
        });
        let small: Vec<Small> = small.collect();
        let shares = limited.iter().flat_map(|limited| &limited.windows);
        let shares = shares.map(|window| window.shared(masters));
        let most = shares.chain(small.iter().map(|small| small.window.limit));
        Ok(Self {
            most: most.min().unwrap_or(0),
            limited,
            small,
            age,
        })
    }
}

fn check_block(block: u32, quota: &Quota, small: Option<&Window>) -> Result<(), Error> {
    if let Some(window) = small {
        return Err(Error::Invalid(format!(
            "units of {window} cannot be taken in blocks: there are fewer than masters"
        )));
    }
    match (1..=quota.most().min(super::block::MOST)).contains(&block) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a block of {block} units is not allowed: 1 to {} of {quota}",
            quota.most().min(super::block::MOST)
        ))),
    }
}
