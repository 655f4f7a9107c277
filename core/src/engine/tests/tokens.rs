//! Behaviour 2.1 and 2.5.

use super::{Answer, Rig, SECOND, Told, first, granted};
use crate::engine::{Engine, EngineSettings, Refusal, TermError, Time};
use crate::protocol::{Token, Wait};

const COUNTER_END: u32 = 1 << 28;

/// 2.1
#[test]
fn the_counter_rises_by_one_a_grant_over_all_keys() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let first_token = rig.hold(one, "a").token.get();
    let b = rig.hold(two, "b");
    rig.queue(one, "b", first(1));
    assert!(rig.release("b", b));
    let handed_over = rig.handed_over().1;
    rig.acquire(one, "a", SECOND, Wait::No, None);
    let c = rig.hold(one, "c");
    let tokens = [b, handed_over, c].map(|grant| grant.token.get() - first_token);
    assert_eq!(tokens, [1, 2, 3]);
    assert_eq!(rig.engine.highest_token(), Some(c.token));
}

#[test]
fn nothing_is_granted_before_a_term_is_opened() {
    let engine = Engine::new(EngineSettings::default(), 1);
    let mut rig = Rig {
        engine,
        ..Rig::new()
    };
    let one = rig.client("one");
    let answer = rig.acquire(one, "a", SECOND, Wait::Forever, None);
    assert_eq!(answer, Answer::Refused(Refusal::TokensUsedUp));
    rig.assert_nothing_kept();
    rig.engine.open_term(5, 2, 0).expect("the first term");
    let grant = rig.hold(one, "a");
    assert_eq!(grant.token.get(), 5 << 32 | 2 << 28 | 1);
}

/// 2.5
#[test]
fn the_next_term_is_opened_when_the_counter_ends() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    rig.engine
        .open_term(2, 0, COUNTER_END - 2)
        .expect("a higher term");
    let last = rig.hold(one, "a");
    assert_eq!(rig.told(), [Told::TermHalfUsed(2)]);
    rig.engine.provide_next_term(3).expect("a higher term");
    let next = rig.hold(one, "b");
    assert_eq!(rig.told(), [Told::TermOpened(3)]);
    assert_eq!(next.token, Token::new(3 << 32 | 1).expect("a token"));
    assert!(next.token > last.token);
    assert_eq!(rig.engine.stats().term, 3);
}

/// 2.5
#[test]
fn without_a_next_term_grants_are_refused_and_nothing_wraps() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    rig.engine
        .open_term(2, 0, COUNTER_END - 2)
        .expect("a higher term");
    let last = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(three, "a", first(1));
    let answer = rig.acquire(one, "b", SECOND, Wait::Forever, None);
    assert_eq!(answer, Answer::Refused(Refusal::TokensUsedUp));
    assert!(rig.release("a", last));
    let refused = [
        Told::TermHalfUsed(2),
        Told::Refused(two),
        Told::Refused(three),
    ];
    assert_eq!(rig.told(), refused);
    rig.assert_nothing_kept();
    let refused = TermError {
        term: 2,
        current: 2,
    };
    assert_eq!(rig.engine.provide_next_term(2), Err(refused));
    rig.engine.provide_next_term(9).expect("a higher term");
    let grant = granted(rig.acquire(one, "b", SECOND, Wait::Forever, None));
    assert_eq!(grant.token.get(), 9 << 32 | 1);
}

/// Goal: a long queue that cannot be granted anything is refused in bounded steps, in its order, and a term that is
/// provided meanwhile serves those who are left.
#[test]
fn a_long_queue_without_tokens_is_refused_in_bounded_steps() {
    let mut rig = Rig::with(EngineSettings {
        parted_at_once: 2,
        ..EngineSettings::default()
    });
    let one = rig.client("one");
    let last = rig.hold(one, "a");
    let waiters: Vec<_> = (0..7).map(|_| rig.stranger()).collect();
    for waiter in &waiters {
        rig.queue(*waiter, "a", None);
    }
    rig.engine
        .open_term(2, 0, COUNTER_END - 2)
        .expect("a higher term");
    rig.hold(one, "b");
    assert_eq!(rig.told(), [Told::TermHalfUsed(2)]);
    assert!(rig.release("a", last));
    let refused = |from: usize| [waiters[from], waiters[from + 1]].map(Told::Refused);
    assert_eq!(rig.told(), refused(0));
    assert_eq!(rig.engine.next_deadline(), Some(Time(0)));
    let answer = rig.acquire(one, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad, "others were before");
    assert!(rig.engine.expire(rig.now, 8));
    rig.engine.check_invariants();
    assert_eq!(rig.told(), refused(2));
    rig.engine.provide_next_term(3).expect("a higher term");
    assert!(!rig.engine.expire(rig.now, 8));
    rig.engine.check_invariants();
    assert_eq!(rig.told()[0], Told::TermOpened(3));
    assert_eq!(rig.engine.stats().waiting, 2);
}

impl Rig {
    fn assert_nothing_kept(&mut self) {
        let stats = self.engine.stats();
        assert_eq!((stats.held, stats.keys, stats.waiting), (0, 0, 0));
    }
}
