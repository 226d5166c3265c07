//! `quorate evict`: frees a lock everywhere, even if it is held.

use quorate::{Holder, Quorum};
use serde_json::json;

use crate::{
    args::{self, Args},
    failure::Failure,
    output, survey,
};

pub(crate) async fn run(args: &Args, evict: &args::Evict, quorum: &Quorum) -> Result<u8, Failure> {
    quorum.mutex(&evict.name).validate()?;
    survey::reach(args, quorum).await;
    let seen = quorum.inspect(&evict.name).await?;
    let holder = seen.holder();
    if !evict.yes {
        if !args.json {
            output::say(&seen.to_string());
        }
        return Err(Failure::usage(refusal(&evict.name, holder)));
    }
    let evicted = quorum.evict(&evict.name).await?;
    if args.json {
        let object =
            json!({"name": evict.name, "evicted": evicted, "holder": survey::holder_json(holder)});
        output::say(&object.to_string());
    } else {
        output::say(&told(&evict.name, evicted, holder));
    }
    Ok(0)
}

fn refusal(name: &str, holder: Option<&Holder>) -> String {
    let whose = holder.map_or_else(
        || "nobody's by majority".to_owned(),
        |holder| format!("held by {}", holder.label),
    );
    format!(
        "nothing was done. {name:?} is {whose}; with --yes it would be freed on all nodes, its \
         holder would learn of it when it next renews, and until then two may believe that they hold it"
    )
}

fn told(name: &str, evicted: bool, holder: Option<&Holder>) -> String {
    match (evicted, holder) {
        (false, _) => format!("{name:?} was free already"),
        (true, None) => {
            format!("{name:?} is free now; what was left on some nodes made no majority")
        }
        (true, Some(holder)) => format!(
            "{name:?} is free now; it was held by {}, who learns of it when it next renews and may write until then",
            holder.label
        ),
    }
}
