//! `quorate resize`: changes the limit of a semaphore, for all programs that use it.

use quorate::{Error, Quorum, cli::counted};
use serde_json::json;

use crate::{
    args::{self, Args},
    failure::Failure,
    output, survey,
};

pub(crate) async fn run(
    args: &Args,
    resize: &args::Resize,
    quorum: &Quorum,
) -> Result<u8, Failure> {
    let semaphore = quorum.semaphore(&*resize.name, resize.limit);
    semaphore.validate()?;
    survey::reach(args, quorum).await;
    let before = quorum.inspect(&*resize.name).await?.limit();
    semaphore.resize(resize.limit).await.map_err(failure)?;
    let (name, limit) = (&*resize.name, resize.limit);
    if args.json {
        let object = json!({"name": name, "limit": limit, "before": before});
        output::say(&object.to_string());
        return Ok(0);
    }
    let slots = counted(limit.into(), "slot");
    let before = match before {
        Some(before) => format!("it had {before}"),
        None => "it was not in use before".to_owned(),
    };
    output::say(&format!("{name:?} has {slots} now; {before}"));
    Ok(0)
}

fn failure(error: Error) -> Failure {
    let all = match &error {
        Error::NoQuorum(report) => report.needed() == report.nodes().len(),
        _ => false,
    };
    let failure = Failure::from(error);
    match all {
        true => failure.saying(
            "not every server has answered, so the limit may be changed on some of them only: run it again when all of them vote",
        ),
        false => failure,
    }
}
