//! ADMIT (protocol §2): the record before, what an operator brings, and the record afterwards.

use super::*;

/// One ADMIT. `RUN` is the server's run id.
pub(crate) struct Brought {
    pub(crate) line: String,
    pub(crate) boot: String,
    pub(crate) admit: Admit,
    /// None: refused.
    pub(crate) after: Option<String>,
}

/// Every mode of ADMIT.
pub(crate) fn modes() -> Vec<Brought> {
    let mut cases = Vec::new();
    let mut add = |line: &str, boot: &str, brought: &str, after: &str| {
        let (boot, brought) = (spelled(boot), spelled(brought));
        let words: Vec<&str> = brought.split(' ').collect();
        let [masters, list, max_ttl, margin, run, id, w, mode] = words[..] else {
            panic!("{brought}")
        };
        let admit = Admit {
            masters: masters.parse().unwrap(),
            list: list.into(),
            run: run.into(),
            id: id.into(),
            terms: terms(max_ttl, margin),
            witnessed: w.parse().unwrap(),
            mode: match mode {
                "new" => Mode::New,
                "raise" => Mode::Raise,
                _ => Mode::Forced,
            },
        };
        cases.push(Brought {
            line: format!("{line}: {boot:?}, {admit:?}"),
            boot,
            admit,
            after: (after != "=").then(|| spelled(after)),
        });
    };
    let boot = "3 3 word 20000 5000 here old 0 0 25200";
    for mode in ["new", "raise", "forced"] {
        for brought in [
            "5 word 20000 5000 here old 25200",
            "3 other 20000 5000 here old 25200",
            "3 word 20000 5000 there old 25200",
            "3 word 20000 5000 here other 25200",
            "3 word 19999 5000 here old 25200",
            "3 word 20000 4999 here old 25200",
        ] {
            let line = "another record, or greater terms stored";
            add(line, boot, &format!("{brought} {mode}"), "=");
        }
        let brought = format!("3 word 30000 6000 here old 25199 {mode}");
        let after = "3 3 word 30000 6000 here old 1 0 25200";
        add("terms as brought, w the greater", boot, &brought, after);
        let brought = format!("3 word 20000 5000 here old 97200000 {mode}");
        let after = "3 3 word 20000 5000 here old 1 0 97200000";
        add("w as brought", boot, &brought, after);
        for bad in [
            "garbage",
            "1 3 here old 20000 25200 500",
            "2 3 word 20000 5000 here old 0 0 25200",
            "3 3 word 20000 5000 here old 0 2 25200",
            "3 3 word 86400001 5000 here old 0 0 99999999",
            "3 3 word 20000 5000 here old 0 0 1000000000000000",
        ] {
            let brought = format!("3 word 86400000 86400000 here old 25200 {mode}");
            add("what does not parse", bad, &brought, "=");
        }
        // Every combination of u and voting.
        for (u, w) in [(0, 25_199), (0, 25_200), (1, 25_199), (1, 25_200)] {
            let boot = format!("3 3 word 20000 5000 here old 0 {u} {w}");
            let refused = match mode {
                "new" => u == 1,
                "raise" => w == 25_199,
                _ => false,
            };
            let after = match refused {
                true => "=".to_owned(),
                false => format!("3 3 word 20000 5000 here old 1 {u} 25200"),
            };
            let brought = format!("3 word 20000 5000 here old 25200 {mode}");
            add("u of new ones, a vote to raise", &boot, &brought, &after);
        }
    }
    cases
}
