//! Behaviour 5.2, as far as it concerns keys and waiters.

use super::{Answer, Rig, SECOND, again, first, granted};
use crate::engine::{EngineSettings, Refusal};
use crate::protocol::{Code, Wait};

fn tight() -> EngineSettings {
    EngineSettings {
        max_keys: 3,
        max_waiters_per_key: 2,
        max_waiters: 4,
        max_waiting_per_connection: 3,
        ..EngineSettings::default()
    }
}

#[test]
fn each_limit_refuses_and_changes_nothing() {
    let mut rig = Rig::with(tight());
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grants = ["a", "b", "c"].map(|key| rig.hold(one, key));
    let mut ask = |connection, key, number| {
        rig.acquire(connection, key, SECOND, Wait::Forever, first(number))
    };
    assert_eq!(ask(one, "d", 1), Answer::Refused(Refusal::Keys));
    assert_eq!(ask(two, "a", 2), Answer::Queued);
    assert_eq!(ask(two, "a", 3), Answer::Queued);
    assert_eq!(ask(two, "a", 4), Answer::Refused(Refusal::WaitersOfKey));
    assert_eq!(ask(two, "b", 5), Answer::Queued);
    assert_eq!(
        ask(two, "b", 6),
        Answer::Refused(Refusal::WaitingOfConnection)
    );
    assert_eq!(ask(one, "b", 7), Answer::Queued);
    assert_eq!(ask(one, "c", 8), Answer::Refused(Refusal::Waiters));
    assert_eq!(rig.told(), []);
    assert!(rig.release("c", grants[2]));
    granted(rig.acquire(one, "d", SECOND, Wait::Forever, None));
}

#[test]
fn a_request_that_comes_back_needs_room_on_its_new_connection_only() {
    let mut rig = Rig::with(tight());
    let (one, two) = (rig.client("one"), rig.client("two"));
    let holder = rig.hold(one, "a");
    rig.hold(one, "b");
    rig.queue(two, "a", first(1));
    rig.queue(two, "a", first(2));
    let other = rig.client("two");
    rig.queue(other, "a", again(1, 1));
    rig.queue(two, "b", first(3));
    rig.queue(two, "b", first(4));
    let answer = rig.acquire(two, "a", SECOND, Wait::Forever, again(1, 2));
    assert_eq!(answer, Answer::Refused(Refusal::WaitingOfConnection));
    assert!(rig.release("a", holder));
    assert_eq!(rig.handed_over().0, other, "it still waits where it did");
}

#[test]
fn a_refusal_names_its_code_and_its_setting() {
    for refusal in [
        Refusal::Keys,
        Refusal::WaitersOfKey,
        Refusal::Waiters,
        Refusal::WaitingOfConnection,
    ] {
        assert_eq!(refusal.code(), Code::Busy);
        assert!(refusal.text().starts_with("max_"), "{}", refusal.text());
    }
    assert_eq!(Refusal::TokensUsedUp.code(), Code::Internal);
}
