//! Mutual exclusion: no two leases of one name are good at the same instant of true time, each by its own holder's
//! clock. Readers are the exception: they may hold a lease beside each other.

use super::{Held, Operation, Violation, ms};

/// How a lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Alone.
    Alone,
    /// Beside other readers.
    Reader,
}

/// Checks all leases of one name that were not given up, each with whether it is good by its holder's clock now.
pub(crate) fn check<'a>(
    now: u64,
    leases: impl Iterator<Item = (&'a Operation, Share, bool)>,
) -> Held {
    let (mut any, mut alone): (Option<&Operation>, Option<&Operation>) = (None, None);
    for (lease, share, _) in leases.filter(|(.., good)| *good) {
        let against = match share {
            Share::Alone => any,
            Share::Reader => alone,
        };
        if let Some(other) = against {
            let what = format!("at {} both are holders", ms(now));
            return Err(Violation::new("mutual exclusion", what, &[other, lease]));
        }
        any = Some(lease);
        if share == Share::Alone {
            alone = Some(lease);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn two_holders_at_once_are_found() {
        let (a, b, c) = (
            operation(1, 5, 0, 10),
            operation(2, 6, 5, 20),
            operation(3, 7, 8, 30),
        );
        let all = |shares: [(Share, bool); 3]| {
            let all = [&a, &b, &c].into_iter().zip(shares);
            check(30, all.map(|(op, (share, good))| (op, share, good)))
        };
        let (alone, reader) = (Share::Alone, Share::Reader);
        assert_eq!(
            all([(alone, true), (alone, false), (reader, false)]),
            Ok(())
        );
        let two = all([(alone, true), (alone, false), (alone, true)]).unwrap_err();
        assert_eq!(two.operations, [a.clone(), c.clone()]);
        assert_eq!(
            all([(reader, true), (alone, false), (reader, true)]),
            Ok(())
        );
        let beside = all([(reader, true), (reader, true), (alone, true)]).unwrap_err();
        assert_eq!(beside.operations, [b.clone(), c.clone()]);
        let beside = all([(alone, true), (reader, false), (reader, true)]).unwrap_err();
        assert_eq!(beside.operations, [a.clone(), c.clone()]);
    }
}
