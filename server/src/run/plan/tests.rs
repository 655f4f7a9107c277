//! Orders of events, and what `run` does about them.

use super::*;
use nix::libc::{SIGINT, SIGTERM};

fn wishes() -> Wishes {
    Wishes {
        lease: Duration::from_secs(16),
        stop_on_lost: true,
        timeout_code: 75,
        lost_code: 74,
    }
}

fn seconds(time: u64) -> Time {
    Time(time * 1_000_000)
}

/// Feeds events at the time 0 and gives all actions.
fn actions(plan: &mut Plan, events: &[Event]) -> Vec<Action> {
    let each = events
        .iter()
        .flat_map(|event| plan.handle(seconds(0), *event));
    each.collect()
}

fn running() -> Plan {
    let mut plan = Plan::new(wishes());
    assert_eq!(
        actions(&mut plan, &[Event::Granted, Event::Started]),
        [Action::Start]
    );
    plan
}

#[test]
fn the_lock_is_released_when_the_whole_group_has_ended_and_not_before() {
    let mut plan = running();
    assert_eq!(actions(&mut plan, &[Event::Ended(Ended::Exit(3))]), []);
    assert_eq!(actions(&mut plan, &[Event::GroupEmpty]), [Action::Release]);
    assert_eq!(
        actions(&mut plan, &[Event::Released(Released::Yes)]),
        [Action::Exit(3)]
    );
}

#[test]
fn a_command_ended_by_a_signal_gives_128_and_its_number() {
    let mut plan = running();
    let events = [
        Event::Ended(Ended::Signal(SIGTERM)),
        Event::GroupEmpty,
        Event::Released(Released::Yes),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Release, Action::Exit(143)]
    );
}

#[test]
fn a_signal_while_waiting_cancels_and_a_grant_on_its_way_is_released() {
    let mut plan = Plan::new(wishes());
    assert_eq!(
        actions(&mut plan, &[Event::Signal(SIGINT)]),
        [Action::Cancel]
    );
    assert_eq!(
        actions(&mut plan, &[Event::NotHad { code: 1 }]),
        [Action::Exit(130)]
    );

    let mut plan = Plan::new(wishes());
    let events = [
        Event::Signal(SIGTERM),
        Event::Granted,
        Event::Released(Released::Yes),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Cancel, Action::Release, Action::Exit(143)]
    );
}

#[test]
fn a_second_signal_ends_the_cancelling_at_once() {
    let mut plan = Plan::new(wishes());
    assert_eq!(
        actions(&mut plan, &[Event::Signal(SIGINT), Event::Signal(SIGINT)]),
        [Action::Cancel, Action::Exit(130)]
    );
}

#[test]
fn a_wait_is_not_ended_by_a_resized_window_nor_by_the_terminal_stopping_it() {
    let mut plan = Plan::new(wishes());
    let events = [SIGWINCH, SIGTSTP, SIGCONT].map(Event::Signal);
    assert_eq!(actions(&mut plan, &events), [Action::Suspend]);
    assert_eq!(actions(&mut plan, &[Event::Granted]), [Action::Start]);
}

#[test]
fn signals_are_passed_on_while_anything_of_the_group_is_left() {
    let mut plan = running();
    assert_eq!(
        actions(&mut plan, &[Event::Signal(SIGTERM), Event::Signal(SIGTSTP)]),
        [Action::Send(SIGTERM), Action::Send(SIGTSTP)]
    );
    assert_eq!(
        actions(
            &mut plan,
            &[Event::Ended(Ended::Exit(0)), Event::Signal(SIGWINCH)]
        ),
        [Action::Send(SIGWINCH)]
    );
}

#[test]
fn codes_of_the_user_replace_ours_and_no_others() {
    let own = Wishes {
        timeout_code: 1,
        lost_code: 2,
        ..wishes()
    };
    for (code, expected) in [(exit::NOT_HAD, 1), (exit::LOST, 2), (exit::UNREACHABLE, 69)] {
        let mut plan = Plan::new(own);
        assert_eq!(
            actions(&mut plan, &[Event::NotHad { code }]),
            [Action::Exit(expected)]
        );
    }
}

#[test]
fn a_lost_lock_stops_the_group_before_the_lease_ends() {
    let mut plan = running();
    let end = seconds(100);
    assert_eq!(
        plan.handle(seconds(98), Event::Lost(Lost::Until(end))),
        [Action::Terminate]
    );
    assert_eq!(plan.wake_at(), Some(seconds(99)));
    assert_eq!(plan.handle(Time(98_999_999), Event::Tick), []);
    assert_eq!(plan.handle(seconds(99), Event::Tick), [Action::Kill]);
    let events = [
        Event::Ended(Ended::Signal(9)),
        Event::GroupEmpty,
        Event::Released(Released::LostBefore),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Release, Action::Exit(74)]
    );
}

#[test]
fn sigterm_comes_at_an_eighth_of_the_lease_and_sigkill_at_a_sixteenth() {
    assert_eq!(wishes().deadlines(seconds(100)), (seconds(98), seconds(99)));
}

#[test]
fn who_wakes_after_the_lease_has_ended_kills_at_once() {
    let mut plan = running();
    assert_eq!(
        plan.handle(seconds(200), Event::Lost(Lost::Until(seconds(100)))),
        [Action::Kill]
    );
}

#[test]
fn a_lock_that_was_taken_away_leaves_a_short_grace() {
    let mut plan = running();
    assert_eq!(
        plan.handle(seconds(10), Event::Lost(Lost::Taken)),
        [Action::Terminate]
    );
    assert_eq!(plan.wake_at(), Some(seconds(11)));
    let mut long = Plan::new(Wishes {
        lease: Duration::from_secs(86_400),
        ..wishes()
    });
    actions(&mut long, &[Event::Granted, Event::Started]);
    long.handle(seconds(10), Event::Lost(Lost::Taken));
    assert_eq!(long.wake_at(), Some(seconds(15)));
}

#[test]
fn a_loss_is_acted_upon_once() {
    let mut plan = running();
    let lost = Event::Lost(Lost::Taken);
    assert_eq!(actions(&mut plan, &[lost, lost]), [Action::Terminate]);
}

#[test]
fn a_lost_lock_can_be_ignored_and_the_code_is_then_that_of_the_command() {
    let mut plan = Plan::new(Wishes {
        stop_on_lost: false,
        ..wishes()
    });
    let events = [
        Event::Granted,
        Event::Started,
        Event::Lost(Lost::Taken),
        Event::Ended(Ended::Exit(0)),
        Event::GroupEmpty,
        Event::Released(Released::LostBefore),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [
            Action::Start,
            Action::TellIgnored,
            Action::Release,
            Action::Exit(0)
        ]
    );
}

#[test]
fn a_loss_that_only_the_release_shows_is_a_loss() {
    let mut plan = running();
    let events = [
        Event::Ended(Ended::Exit(0)),
        Event::GroupEmpty,
        Event::Released(Released::LostBefore),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Release, Action::Exit(74)]
    );
}

#[test]
fn a_lease_that_ends_during_the_release_is_no_loss() {
    let mut plan = running();
    let events = [
        Event::Ended(Ended::Exit(0)),
        Event::GroupEmpty,
        Event::Lost(Lost::Taken),
        Event::Released(Released::Unconfirmed),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Release, Action::Exit(0)]
    );
}

#[test]
fn an_unconfirmed_release_leaves_the_code_of_the_command() {
    let mut plan = running();
    let events = [
        Event::Ended(Ended::Exit(5)),
        Event::GroupEmpty,
        Event::Released(Released::Unconfirmed),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Release, Action::Exit(5)]
    );
}

#[test]
fn a_lock_lost_before_the_start_stops_the_command_as_soon_as_it_is_there() {
    let mut plan = Plan::new(wishes());
    let events = [Event::Granted, Event::Lost(Lost::Taken), Event::Started];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Start, Action::Terminate]
    );
}

#[test]
fn a_command_that_cannot_start_gives_the_lock_back() {
    let mut plan = Plan::new(wishes());
    let events = [
        Event::Granted,
        Event::NotStarted {
            code: exit::NOT_FOUND,
        },
        Event::Released(Released::Yes),
    ];
    assert_eq!(
        actions(&mut plan, &events),
        [Action::Start, Action::Release, Action::Exit(127)]
    );
}

#[test]
fn what_the_command_leaves_behind_is_waited_for_and_told_after_a_second() {
    let mut plan = running();
    assert_eq!(plan.handle(seconds(5), Event::Ended(Ended::Exit(0))), []);
    assert_eq!(plan.wake_at(), Some(seconds(6)));
    assert_eq!(plan.handle(seconds(6), Event::Tick), [Action::TellDraining]);
    assert_eq!(plan.wake_at(), None);
    assert_eq!(
        plan.handle(seconds(60), Event::GroupEmpty),
        [Action::Release]
    );
}

#[test]
fn a_stopped_command_stops_the_job() {
    let mut plan = running();
    assert_eq!(actions(&mut plan, &[Event::Stopped]), [Action::Suspend]);
}
