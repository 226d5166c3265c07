//! The operations for units of a rate limit, and what is answered.

use std::{sync::Arc, time::Duration};

use crate::{
    base::quota::Stamp,
    node::{Operation, rate},
};

pub(crate) use rate::Meter;

/// Takes units of a limit. They may be used for `age` from now on.
pub(crate) fn spend(meter: &Meter, units: u32, age: Duration) -> Arc<Operation> {
    Operation::new(rate::Command::Spend {
        meter: meter.clone(),
        units,
        age,
    })
}

/// Gives back units that nobody will use.
pub(crate) fn refund(meter: &Meter, units: u32, stamps: Box<[Stamp]>) -> Arc<Operation> {
    Operation::new(rate::Command::Refund {
        meter: meter.clone(),
        units,
        stamps,
    })
}

/// Reads what is taken of a limit.
pub(crate) fn look(meter: &Meter) -> Arc<Operation> {
    Operation::new(rate::Command::Look {
        meter: meter.clone(),
    })
}
