//! Batches: operations that wait for a node leave together in one script call (protocol §3, "Batches"). This file
//! decides which operations these are, and is pure.

use super::{Guard, Operation};

/// Maximum number of operations in a batch. A call with this many takes a server about 0.1 ms, in which it does nothing
/// else.
pub(crate) const MOST_OPERATIONS: usize = 64;
/// Maximum size of a batch in bytes, roughly. It matters if names are long.
pub(crate) const MOST_BYTES: usize = 32 << 10;

/// True if every operation travels alone on new connections.
#[cfg(any(test, feature = "test-util"))]
static WITHOUT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// For benchmarks: on connections that are opened from now on each request travels alone.
#[cfg(any(test, feature = "test-util"))]
pub fn without_batches(without: bool) {
    WITHOUT.store(without, std::sync::atomic::Ordering::SeqCst);
}

/// Returns true if a new connection makes batches.
pub(crate) fn are_made() -> bool {
    #[cfg(any(test, feature = "test-util"))]
    return !WITHOUT.load(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(test, feature = "test-util")))]
    true
}

/// How many of these operations leave together, counted from the first one. It is zero only if there are none. An
/// operation that travels alone ends the batch before it, so the order never changes.
pub(crate) fn first<'q>(waiting: impl IntoIterator<Item = (&'q Operation, &'q Guard)>) -> usize {
    let mut waiting = waiting.into_iter();
    let Some((first, guard)) = waiting.next() else {
        return 0;
    };
    let Some(rider) = first.command().rider() else {
        return 1;
    };
    let mut bytes = rider.bytes();
    let mut operations = 1;
    for (operation, its) in waiting.take(MOST_OPERATIONS - 1) {
        let Some(rider) = operation.command().rider() else {
            break;
        };
        bytes += rider.bytes();
        if bytes > MOST_BYTES || its.as_str() != guard.as_str() {
            break;
        }
        operations += 1;
    }
    operations
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::{Command, mutex::cases, server};

    fn first_of(commands: &[Command], guards: &[Arc<Guard>]) -> usize {
        let operations: Vec<_> = commands.iter().cloned().map(Operation::new).collect();
        let guards = guards.iter().cycle();
        first(operations.iter().zip(guards).map(|(o, g)| (&**o, &**g)))
    }

    fn guard(text: &str) -> Arc<Guard> {
        Guard::new(text.into())
    }

    fn release(name: &str) -> Command {
        cases::release(name, 1).into()
    }

    #[test]
    fn a_batch_is_limited_in_operations_and_bytes() {
        let one = [guard("g")];
        for (waiting, together) in [(0, 0), (1, 1), (63, 63), (64, 64), (65, 64), (1000, 64)] {
            assert_eq!(first_of(&vec![release("a"); waiting], &one), together);
        }
        let together = first_of(&vec![release(&"a".repeat(512)); 64], &one);
        assert!((32..64).contains(&together), "{together}");
    }

    #[test]
    fn an_operation_that_travels_alone_ends_the_batch_before_it() {
        let one = [guard("g")];
        let load = || Command::Server(server::Command::LoadScripts);
        let inspect = || Command::from(cases::inspect("a"));
        assert_eq!(first_of(&[load(), release("a")], &one), 1);
        assert_eq!(first_of(&[inspect(), inspect()], &one), 1);
        assert_eq!(first_of(&[release("a"), release("b"), load()], &one), 2);
        assert_eq!(first_of(&[release("a"), inspect(), release("b")], &one), 1);
    }

    #[test]
    fn a_batch_has_one_guard() {
        let same = [guard("g"), guard("g")];
        assert_eq!(first_of(&vec![release("a"); 3], &same), 3, "by its text");
        let other = [guard("g"), guard("h")];
        assert_eq!(first_of(&vec![release("a"); 3], &other), 1);
    }
}
