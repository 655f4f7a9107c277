//! The steps whose instructions are counted.

use fairlock::engine::{
    Answer, ConnectionId, Effect, Engine, EngineSettings, Grant, Recording, Time,
};
use fairlock::protocol::{
    ClientId, Key, KeyRef, Millis, NameRef, Reply, Request, SpelledToken, Split, Tag, Token, Wait,
    split,
};
use std::hint::black_box;

/// Something that is done again and again.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How often, the first time.
    pub(crate) steps: usize,
    run: fn(usize),
}

pub(crate) const ALL: [Case; 14] = [
    Case {
        name: "protocol: read A and R as requests",
        steps: 20_000,
        run: read_requests,
    },
    Case {
        name: "protocol: read A and R ahead",
        steps: 20_000,
        run: read_ahead,
    },
    Case {
        name: "protocol: write A and R as requests",
        steps: 20_000,
        run: write_requests,
    },
    Case {
        name: "protocol: read A and R as replies",
        steps: 20_000,
        run: read_replies,
    },
    Case {
        name: "protocol: write A and R as replies",
        steps: 20_000,
        run: write_replies,
    },
    Case {
        name: "engine: acquire and release",
        steps: 10_000,
        run: pairs,
    },
    Case {
        name: "engine: acquire and release, 64 at once",
        steps: 200,
        run: batches,
    },
    Case {
        name: "engine: the same, changes recorded",
        steps: 200,
        run: recorded_batches,
    },
    Case {
        name: "engine: the same, what lasts recorded",
        steps: 200,
        run: lasting_batches,
    },
    Case {
        name: "engine: hand-over",
        steps: 10_000,
        run: hand_overs,
    },
    Case {
        name: "engine: keep",
        steps: 10_000,
        run: keeps,
    },
    Case {
        name: "engine: end of a lease",
        steps: 10_000,
        run: leases_that_end,
    },
    Case {
        name: "engine: wait that ends",
        steps: 10_000,
        run: waits_that_end,
    },
    Case {
        name: "client: acquire and release",
        steps: 5_000,
        run: fairlock::measure::session_pairs,
    },
];

/// Does one case so often.
pub(crate) fn run(name: &str, steps: usize) {
    let case = ALL.iter().find(|case| case.name == name);
    (case.expect("a case has this name").run)(steps);
}

const LEASE: Millis = Millis(30_000);

fn lines(text: &[u8], mut line: impl FnMut(&[u8])) {
    let mut rest = text;
    while let Split::Line { line: next, used } = split(rest) {
        line(next);
        rest = &rest[used..];
    }
}

fn read_requests(steps: usize) {
    let text =
        b"A order:00000000000042 30 0 #4711\nR order:00000000000042 123695058124800001 #4712\n";
    for _ in 0..steps {
        lines(black_box(text), |line| {
            assert!(black_box(Request::parse(line)).is_ok());
        });
    }
}

fn read_ahead(steps: usize) {
    let text =
        b"A order:00000000000042 30 0 #4711\nR order:00000000000042 123695058124800001 #4712\nA";
    for _ in 0..steps {
        let mut rest = black_box(&text[..]);
        while let Some((request, length)) = Request::parse_ahead(rest) {
            black_box(request);
            rest = &rest[length..];
        }
        assert_eq!(rest.len(), 1);
    }
}

fn read_replies(steps: usize) {
    let text =
        b"A order:00000000000042 123695058124800001 #4711\nR order:00000000000042 ok #4712\n";
    for _ in 0..steps {
        lines(black_box(text), |line| {
            assert!(black_box(Reply::parse(line)).is_some());
        });
    }
}

fn write_requests(steps: usize) {
    let key = KeyRef::parse(b"order:00000000000042").expect("a key");
    let mut out = Vec::with_capacity(4096);
    for step in 0..steps {
        let tag = Some(Tag::first(4711));
        Request::Acquire {
            key: black_box(key),
            lease: LEASE,
            wait: Wait::Forever,
            tag,
        }
        .encode(&mut out);
        Request::Release {
            key: black_box(key),
            token: token(step),
            tag,
        }
        .encode(&mut out);
        black_box(&mut out).clear();
    }
}

fn write_replies(steps: usize) {
    let key = KeyRef::parse(b"order:00000000000042").expect("a key");
    let mut out = Vec::with_capacity(4096);
    let mut spelled = SpelledToken::new();
    for step in 0..steps {
        let tag = Some(Tag::first(4711));
        Reply::Granted {
            key: black_box(key),
            token: token(step),
            tag,
        }
        .encode_with(&mut spelled, &mut out);
        Reply::Released {
            key: black_box(key),
            ok: black_box(true),
            tag,
        }
        .encode_with(&mut spelled, &mut out);
        black_box(&mut out).clear();
    }
}

fn token(step: usize) -> Token {
    Token::new(123_695_058_124_800_001 + step as u64).expect("a token")
}

fn engine() -> (Engine, ConnectionId) {
    let mut engine = Engine::new(EngineSettings::default(), 0x5EED);
    engine.open_term(1, 0, 0).expect("the first term");
    let connection = engine.connect("127.0.0.1:50000");
    engine.hello(connection, Some(ClientId([7; 16])), NameRef::NONE);
    (engine, connection)
}

/// Keys of twenty bytes.
fn keys(count: usize) -> Vec<Key> {
    let keys = (0..count).map(|number| Key::encode(format!("order:{number:014}").as_bytes()));
    keys.collect::<Result<_, _>>().expect("keys")
}

fn granted(answer: Answer) -> Grant {
    match answer {
        Answer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn acquire(
    engine: &mut Engine,
    now: Time,
    connection: ConnectionId,
    key: KeyRef<'_>,
    wait: Wait,
    number: usize,
) -> Answer {
    let tag = Some(Tag::first(number as u64));
    engine.acquire(now, connection, key, LEASE, wait, tag)
}

fn pairs(steps: usize) {
    let (mut engine, connection) = engine();
    let keys = keys(1000);
    for step in 0..steps {
        let now = Time(step as u64);
        engine.expire(now, 100);
        let key = keys[step % 1000].as_ref();
        let answer = acquire(&mut engine, now, connection, key, Wait::Forever, step);
        assert!(engine.release(now, key, granted(answer).token));
        black_box(engine.next_deadline());
    }
}

/// A step is one acquire and one release, but they come in batches, as from a pipelining client.
fn batches_of(recording: Recording, steps: usize) {
    const DEPTH: usize = 64;
    let (mut engine, connection) = engine();
    engine.record_changes(recording);
    let keys = keys(1000);
    let mut grants = Vec::with_capacity(DEPTH);
    for step in 0..steps {
        let now = Time(step as u64 * 100);
        engine.expire(now, 100);
        for place in 0..DEPTH {
            let number = step * DEPTH + place;
            let key = keys[number % 1000].as_ref();
            let answer = acquire(&mut engine, now, connection, key, Wait::Forever, number);
            grants.push((key, granted(answer).token));
        }
        for (key, token) in grants.drain(..) {
            assert!(engine.release(now, key, token));
        }
        engine.tell_standbys(usize::MAX, |news| {
            black_box(&news);
        });
        black_box(engine.next_deadline());
    }
}

fn batches(steps: usize) {
    batches_of(Recording::Nothing, steps);
}

fn recorded_batches(steps: usize) {
    batches_of(Recording::Everything, steps);
}

fn lasting_batches(steps: usize) {
    batches_of(Recording::WhatLasts, steps);
}

fn hand_overs(steps: usize) {
    let (mut engine, connection) = engine();
    let keys = keys(1);
    let key = keys[0].as_ref();
    let answer = acquire(&mut engine, Time(0), connection, key, Wait::Forever, 0);
    let mut grant = granted(answer);
    for number in 1..16 {
        acquire(&mut engine, Time(0), connection, key, Wait::Forever, number);
    }
    for step in 0..steps {
        let now = Time(step as u64);
        assert!(engine.release(now, key, grant.token));
        let Some(Effect::Granted { grant: next, .. }) = engine.poll_effect() else {
            panic!("the lock is handed over");
        };
        grant = next;
        acquire(&mut engine, now, connection, key, Wait::Forever, 16 + step);
    }
}

fn keeps(steps: usize) {
    let (mut engine, connection) = engine();
    let keys = keys(1000);
    let grants: Vec<Grant> = (0..1000)
        .map(|number| {
            let key = keys[number].as_ref();
            let answer = acquire(&mut engine, Time(0), connection, key, Wait::No, number);
            granted(answer)
        })
        .collect();
    for step in 0..steps {
        let now = Time(step as u64);
        let key = keys[step % 1000].as_ref();
        assert!(engine.keep(now, key, grants[step % 1000].token, LEASE));
    }
}

fn leases_that_end(steps: usize) {
    let (mut engine, connection) = engine();
    let keys = keys(steps);
    for (number, key) in keys.iter().enumerate() {
        let now = Time(number as u64 * 20);
        let key = key.as_ref();
        granted(acquire(&mut engine, now, connection, key, Wait::No, number));
    }
    end_all(&mut engine);
}

fn waits_that_end(steps: usize) {
    let (mut engine, connection) = engine();
    let keys = keys(1);
    let key = keys[0].as_ref();
    granted(acquire(&mut engine, Time(0), connection, key, Wait::No, 0));
    for number in 0..steps {
        let now = Time(number as u64 * 20);
        let wait = Wait::For(Millis(5000));
        acquire(&mut engine, now, connection, key, wait, 1 + number);
    }
    end_all(&mut engine);
}

fn end_all(engine: &mut Engine) {
    while let Some(deadline) = engine.next_deadline() {
        engine.expire(deadline.max(Time(1)), 500);
        while let Some(effect) = engine.poll_effect() {
            black_box(effect);
        }
    }
}
