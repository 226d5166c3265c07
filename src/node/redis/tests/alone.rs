//! An operation that is alone in its batch takes a short way (mutex/lone.lua). It must do the same as beside another
//! operation.

use super::{real::Real, *};
use crate::{
    node::{
        answer::{Ahead, Answered},
        request::{Place, Request},
    },
    testing::conformance::trial::CHANNEL,
};

/// p of each operation.
const P: u64 = 1_760_000_000_000_000;
/// A channel without subscribers.
const NOBODY: &str = "quorate:wake:nobody";
const DAYS_3: u64 = 3 * 24 * 3600 * 1_000_000;

/// Everything that stands about the lock `a`, as text. Times are in units of five seconds from now.
const STATE: &str = "
local time, all = redis.call('TIME'), {}
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs({ '@mutex:a', '@mutex-line:a', '@mutex-waiters:a', 'waiting', 'c0', 'c1' }) do
  local kind, rows = redis.call('TYPE', 'quorate:' .. key).ok, {}
  if kind == 'string' then
    rows[1] = redis.call('GET', 'quorate:' .. key)
  elseif kind == 'zset' then
    rows = redis.call('ZRANGE', 'quorate:' .. key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then
    local pairs = redis.call('HGETALL', 'quorate:' .. key)
    for i = 1, #pairs, 2 do
      local value = pairs[i + 1]
      if pairs[i] == '_' then
        value = math.floor(value / 1000)
      end
      rows[#rows + 1] = pairs[i] .. '=' .. value
    end
    table.sort(rows)
  end
  local text = table.concat(rows, ' '):gsub('%f[%d]1[78]%d%d%d%d%d%d%d%d%d%d%d%f[^%d]', function(at)
    return 'now' .. math.floor((at - ms) / 5000 + 0.5)
  end)
  local left = math.floor(redis.call('PTTL', 'quorate:' .. key) / 5000 + 0.5)
  all[#all + 1] = key .. ' ' .. kind .. ' for ' .. left .. ': ' .. text
end
return table.concat(all, '\\n')";

type Before = Box<dyn Fn(&mut Real)>;

fn place(seq: u64, ticket: u64, channel: &str) -> Place {
    Place {
        seq,
        ticket,
        only_last: false,
        term: secs(12),
        lock_delay: secs(3),
        life: secs(20),
        claim: secs(5),
        channel: channel.into(),
    }
}

fn join(owner: u128, seq: u64, ticket: u64, only_last: bool) -> Request {
    let place = Place {
        only_last,
        ..place(seq, ticket, CHANNEL)
    };
    crate::node::mutex::cases::join_for("a", (owner, place), secs(15), P)
}

fn release(owner: u128) -> Request {
    crate::node::mutex::cases::release_for("a", owner, P)
}

impl Real {
    fn now_ms(&mut self) -> u64 {
        let text =
            "local time = redis.call('TIME') return time[1] * 1000 + math.floor(time[2] / 1000)";
        self.text(&["EVAL", text, "0"]).parse().unwrap()
    }

    fn held_by(&mut self, text: &str) {
        self.ok(&["SET", "quorate:@mutex:a", text, "PX", "15000"]);
    }

    /// Marks the node: some waiter may wait for some lock here, for another `ms`.
    fn mark_waiting(&mut self, ms: u64) {
        let (until, ms) = ((self.now_ms() + ms).to_string(), ms.to_string());
        self.ok(&["SET", "quorate:waiting", &until, "PX", &ms]);
    }

    /// Puts a waiter into the queue of `a`. It was heard of `ago` ms ago. The lock is reserved for it for another
    /// `reserved` ms, or not reserved (0).
    fn stands(&mut self, owner: u128, seq: u64, (ago, reserved): (u64, u64), channel: &str) {
        let now = self.now_ms();
        let reserved = if reserved == 0 { 0 } else { now + reserved };
        let text = format!(
            "{} {seq} 12000 3000 20000 5000 {reserved} {channel}",
            now - ago
        );
        let entry = entry(owner).as_str().to_owned();
        self.text(&["HSET", "quorate:@mutex-waiters:a", &entry, &text]);
        let ticket = (owner * 10).to_string();
        self.text(&["ZADD", "quorate:@mutex-line:a", &ticket, &entry]);
        for key in ["quorate:@mutex-line:a", "quorate:@mutex-waiters:a"] {
            self.text(&["PEXPIRE", key, "80000"]);
        }
        self.mark_waiting(80_000);
    }

    /// Owner 1 has the lock, and 2 to 4 wait for it. 3 and 4 belong to another process.
    fn queue(&mut self) {
        self.held_by(entry(1).as_str());
        self.stands(2, 1, (0, 0), CHANNEL);
        self.stands(3, 2, (0, 0), NOBODY);
        self.stands(4, 2, (0, 0), CHANNEL);
    }

    fn counts(&mut self, key: &str, counter: &str, age: u64) {
        let begun = (self.now_ms() * 1000 - age).to_string();
        self.text(&[
            "HSET",
            &format!("quorate:{key}"),
            "@mutex:a",
            counter,
            "_",
            &begun,
        ]);
    }

    /// The answer to the operation, the pushes, and the state after it.
    fn outcome(&mut self, before: &Before, operation: &Request, is_alone: bool) -> String {
        for key in [
            "@mutex:a",
            "@mutex-line:a",
            "@mutex-waiters:a",
            "waiting",
            "c0",
            "c1",
        ] {
            self.text(&["DEL", &format!("quorate:{key}")]);
        }
        self.counts("c0", "7", 0);
        let mut ears = self.another();
        ears.raw(&["SSUBSCRIBE", CHANNEL]);
        before(self);
        let answer = match is_alone {
            true => self.ask(operation.clone()),
            false => {
                let other = extend("other", 9, secs(1)).into();
                let both = self.together(&[operation.clone().into(), other]);
                both.into_iter().next().unwrap()
            }
        };
        self.ok(&["AUTH", "default", "any"]);
        self.ok(&["CONFIG", "SET", "maxmemory", "0"]);
        self.text(&["SPUBLISH", CHANNEL, "the end"]);
        let mut pushes = Vec::new();
        loop {
            let push = ears.push();
            if push == "the end" {
                break;
            }
            pushes.push(push);
        }
        let state = self.text(&["EVAL", STATE, "0"]);
        capped(&format!("{}\n{pushes:#?}\n{state}", told(answer)))
    }
}

/// Replaces tokens of about the present time, in µs, by one word: they were capped, each at its own time.
fn capped(text: &str) -> String {
    let words = text.split_inclusive(|c: char| !c.is_ascii_digit());
    let shown = words.map(|word| {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(token) if (P + 1_000_000_000_000..2 * P).contains(&token) => {
                word.replace(digits, "capped")
            }
            _ => word.to_owned(),
        }
    });
    shown.collect()
}

/// Times in units of five seconds.
fn told(answer: Answered) -> String {
    let fives = |left: Option<Duration>| left.map(|left| (left.as_millis() + 2_500) / 5_000);
    match answer {
        Ok(Answer::InLine { rank, ahead }) => {
            let Ahead {
                remaining,
                ticket,
                holder,
                is_reserved,
            } = ahead;
            let left = fives(remaining);
            format!("in line: {rank} {left:?} {ticket} {holder:?} {is_reserved}")
        }
        Ok(Answer::Held {
            which,
            remaining,
            counter,
            holder,
            ticket,
        }) => {
            let left = fives(remaining);
            format!("held: {which:?} {left:?} {counter} {holder:?} {ticket}")
        }
        answer => format!("{answer:?}"),
    }
}

fn cases() -> Vec<(&'static str, Before, Request)> {
    fn case(
        what: &'static str,
        operation: Request,
        before: impl Fn(&mut Real) + 'static,
    ) -> (&'static str, Before, Request) {
        (what, Box::new(before), operation)
    }
    let take = || acquire("a", 1, secs(15), P);
    let ahead = || crate::node::mutex::cases::release_for("a", 1, 2 * P);
    let mine = || entry(1).as_str().to_owned();
    let mut all = vec![
        case("a free lock", take(), |_| {}),
        case("p far ahead", acquire("a", 1, secs(15), 2 * P), |_| {}),
        case("handed over with p far ahead", ahead(), Real::queue),
        case("one that is held", take(), |real| real.held_by("another")),
        case("old counters", take(), |real| {
            real.counts("c0", "7", DAYS_3)
        }),
        case("a counter of before", take(), |real| {
            real.text(&["DEL", "quorate:c0"]);
            real.counts("c1", "9", DAYS_3);
        }),
        case("a counter of before that is ahead", take(), |real| {
            real.text(&["HDEL", "quorate:c0", "@mutex:a"]);
            real.counts("c1", &(P + 9).to_string(), DAYS_3);
        }),
        case("somebody waits for another lock", take(), |real| {
            real.mark_waiting(80_000);
        }),
        case("somebody waits for this free lock", take(), |real| {
            real.stands(2, 1, (0, 0), CHANNEL);
        }),
        case("a line of another type", take(), |real| {
            real.mark_waiting(80_000);
            real.ok(&["SET", "quorate:@mutex-line:a", "x"]);
        }),
        case("a full server", take(), |real| {
            real.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        }),
        case("nobody waits", release(1), move |real| {
            real.held_by(&mine())
        }),
        case("nobody has it", release(1), |_| {}),
        case("nobody waits for this one", release(1), move |real| {
            real.held_by(&mine());
            real.mark_waiting(80_000);
        }),
        case("it came through the line", release(1), move |real| {
            real.held_by(&format!("{} 3 10", mine()));
            real.mark_waiting(80_000);
        }),
        case("an entry that begins alike", release(1), move |real| {
            real.held_by(&format!("{}0", mine()));
            real.stands(2, 1, (0, 0), CHANNEL);
        }),
        case("a line, and another has it", release(1), |real| {
            real.held_by("another");
            real.stands(2, 1, (0, 0), CHANNEL);
        }),
        case("a line, and a key of another type", release(1), |real| {
            real.text(&["RPUSH", "quorate:@mutex:a", "x"]);
            real.stands(2, 1, (0, 0), CHANNEL);
        }),
        case("it is handed over", release(1), Real::queue),
        case("the second is of another process", release(1), |real| {
            real.queue();
            real.stands(3, 2, (9_000, 0), "quorate:wake:third");
        }),
        case("nobody hears the head", release(1), |real| {
            real.queue();
            real.stands(2, 1, (0, 0), NOBODY);
        }),
        case("the head is old", release(1), |real| {
            real.queue();
            real.stands(2, 1, (7_000, 0), CHANNEL);
        }),
        case("the head is dead", release(1), |real| {
            real.queue();
            real.stands(2, 1, (22_500, 0), CHANNEL);
        }),
        case("the head was given back", release(1), |real| {
            real.queue();
            real.stands(2, 0, (0, 0), CHANNEL);
        }),
        case("the head hears nothing", release(1), |real| {
            real.queue();
            real.stands(2, 1, (0, 0), "");
        }),
        case("it is kept for the head", release(1), |real| {
            real.queue();
            real.stands(2, 1, (0, 5_000), CHANNEL);
        }),
        case(
            "counters to be rotated, and handed over",
            release(1),
            |real| {
                real.queue();
                real.counts("c0", "7", DAYS_3);
            },
        ),
        case(
            "handed over, with a counter that is ahead",
            release(1),
            |real| {
                real.queue();
                real.counts("c0", &(P + 9).to_string(), 0);
            },
        ),
        case(
            "handed over, with a counter of before",
            release(1),
            |real| {
                real.queue();
                real.text(&["HDEL", "quorate:c0", "@mutex:a"]);
                real.counts("c1", "9", DAYS_3);
            },
        ),
        case("handed over, without counters", release(1), |real| {
            real.queue();
            real.text(&["DEL", "quorate:c0"]);
        }),
        case(
            "handed over by a user without channels",
            release(1),
            |real| {
                real.queue();
                real.ok(&[
                    "ACL",
                    "SETUSER",
                    "mute",
                    "on",
                    "nopass",
                    "~*",
                    "+@all",
                    "resetchannels",
                ]);
                real.ok(&["AUTH", "mute", "any"]);
            },
        ),
        case("handed over on a full server", release(1), |real| {
            real.queue();
            real.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        }),
        case("behind others", join(5, 1, 50, false), Real::queue),
        case("again", join(3, 3, 30, false), Real::queue),
        case("again, as the head", join(2, 2, 20, false), Real::queue),
        case("before others", join(5, 1, 25, false), Real::queue),
        case("by who has it", join(1, 1, 10, false), Real::queue),
        case(
            "who has it came through the line",
            join(5, 1, 50, false),
            move |real| {
                real.queue();
                real.held_by(&format!("{} 3 10", entry(1).as_str()));
            },
        ),
        case("a line with little left", join(2, 2, 20, false), |real| {
            real.queue();
            for key in ["quorate:@mutex-line:a", "quorate:@mutex-waiters:a"] {
                real.text(&["PEXPIRE", key, "55000"]);
            }
        }),
        case("a word with little left", join(2, 2, 20, false), |real| {
            real.queue();
            real.mark_waiting(55_000);
        }),
        case("the lock is free", join(5, 1, 50, false), |real| {
            real.queue();
            real.text(&["DEL", "quorate:@mutex:a"]);
        }),
        case("a long text that stays", join(5, 1, 50, false), |real| {
            real.queue();
            real.ok(&["SET", "quorate:@mutex:a", &"x".repeat(300)]);
        }),
        case(
            "a full server takes nobody",
            join(5, 1, 50, false),
            |real| {
                real.queue();
                real.ok(&["CONFIG", "SET", "maxmemory", "1"]);
            },
        ),
    ];
    for counter in ["1.5", "-1", "many", "9007199254740991"] {
        all.push(case("a counter that is none", take(), move |real| {
            real.counts("c0", counter, 0);
        }));
        all.push(case(
            "handed over, with a counter that is none",
            release(1),
            move |real| {
                real.queue();
                real.counts("c0", counter, 0);
            },
        ));
    }
    for key in [
        "quorate:@mutex-line:a",
        "quorate:@mutex-waiters:a",
        "quorate:c0",
    ] {
        for operation in [release(1), join(5, 1, 50, false), join(3, 3, 30, false)] {
            all.push(case("a key of another type", operation, move |real| {
                real.queue();
                real.text(&["DEL", key]);
                real.ok(&["SET", key, "x", "PX", "80000"]);
            }));
        }
    }
    // The owner that releases is in the queue itself, as the first, the second, or the last.
    for owner in [2, 3, 4] {
        all.push(case(
            "who has it waits for it",
            release(owner),
            move |real| {
                real.queue();
                real.held_by(entry(owner).as_str());
            },
        ));
    }
    // A waiter that may only be the last. The ticket of the holder or of the last in the queue decides if it is
    // refused. It is not refused if it is in the queue already.
    for ticket in [39, 40, 41, 60] {
        for holder in ["another", "another 3 39", "another 3 45"] {
            all.push(case(
                "only as the last",
                join(5, 1, ticket, true),
                move |real| {
                    real.queue();
                    real.held_by(holder);
                },
            ));
        }
    }
    all.push(case(
        "only as the last, again",
        join(3, 3, 30, true),
        Real::queue,
    ));
    all
}

#[test]
fn a_lone_operation_acts_as_it_does_beside_another() {
    on_servers(|real| {
        for (what, before, operation) in cases() {
            let both = [true, false].map(|is_alone| real.outcome(&before, &operation, is_alone));
            assert_eq!(both[0], both[1], "{what}: {operation:?}");
        }
    });
}
