//! `M` and `N`: 4.4.

use super::*;

/// Three nodes, the first of which has become active after the hellos; the client does not know yet.
fn cluster() -> World {
    let mut world = World::new(&["a:1", "b:1", "c:1"]);
    let peers = "a:1,b:1,c:1";
    world.accept_as(0, "starting", "-", peers);
    world.accept_as(1, "standby", "a:1", peers);
    world.accept_as(2, "standby", "a:1", peers);
    world
}

#[test]
fn rule_4_4_the_hello_says_who_is_active() {
    let mut world = World::new(&["a:1", "b:1", "c:1"]);
    let peers = "a:1,b:1,c:1";
    world.accept_as(0, "standby", "b:1", peers);
    world.accept_as(1, "active", "b:1", peers);
    world.accept_as(2, "standby", "b:1", peers);
    for _ in 0..4 {
        world.acquire("k", Wait::Forever);
        world.line(1);
    }
    world.cut(1);
    let all = world.all_lines();
    assert_eq!(all.len(), 4, "the others know the next one: {all:?}");
}

#[test]
fn rule_4_4_a_move_is_followed_with_the_same_attempt_and_remembered() {
    let mut world = cluster();
    let (face, _) = world.acquire("k", wait_ms(5000));
    assert_eq!(world.line(1), "A k 30 5 #1");
    world.pass(100 * MS);
    world.say(1, "M A k a:1 #1");
    assert_eq!(world.line(0), "A k 30 4.9 #1");
    world.say(0, "A k 100 #1");
    world.grant(face);
    for _ in 0..5 {
        world.acquire("x", Wait::Forever);
        world.line(0);
    }
}

#[test]
fn rule_4_4_an_address_that_is_none_of_its_own_gets_an_additional_connection() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(5000));
    let (index, _) = world.all_lines().pop().expect("sent");
    world.say(index, "M A k z:9 #1");
    assert_eq!(world.pipes[&2].address, "z:9");
    world.pass(50 * MS);
    world.accept(2);
    assert_eq!(world.line(2), "A k 30 4.95 #1");
    world.say(2, "A k 100 #1");
    world.grant(face);
}

#[test]
fn rule_4_4_nodes_are_known_by_the_name_they_give_themselves() {
    let mut world = World::new(&["localhost:1"]);
    world.accept_as(0, "standby", "-", "10.0.0.1:1");
    world.connect(1);
    world.say(
        1,
        "H 1 role=active node=10.0.0.1:1 active=10.0.0.1:1 peers=10.0.0.1:1 server=0",
    );
    world.acquire("k", Wait::Forever);
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("M A k 10.0.0.1:1 {}", tag(&line)));
    assert_eq!(world.pipes.len(), 2, "no third connection to the same node");
    assert_eq!(world.line(1), line);
}

#[test]
fn rule_4_4_listed_follows_only_its_own_list() {
    let mut world = World::with(&["a:1", "b:1"], |settings| settings.listed_only = true);
    world.accept_all();
    let (face, _) = world.acquire("k", Wait::Forever);
    let begin = world.now;
    let mut asked = 0;
    loop {
        for (index, line) in world.all_lines() {
            if line.starts_with('A') {
                asked += 1;
                world.say(index, &format!("M A k z:9 {}", tag(&line)));
            } else {
                world.say(index, &line);
            }
        }
        assert_eq!(world.pipes.len(), 2, "never goes there");
        if let Some(result) = world.result(face) {
            let error = result.expect_err("nobody else can serve it");
            assert_eq!(error.kind(), &ErrorKind::ConnectionFailed);
            assert!(error.to_string().contains("z:9"), "{error}");
            break;
        }
        world.pass(MS);
        assert!(world.now < begin + 10 * S);
    }
    assert_eq!(asked, 18, "nine for each of two tries");
}

#[test]
fn rule_4_4_who_moves_a_request_is_not_active_also_where_the_move_is_not_followed() {
    let mut world = World::with(&["a:1", "b:1"], |settings| settings.listed_only = true);
    world.accept_as(0, "active", "a:1", "a:1");
    world.accept_as(1, "standby", "a:1", "a:1");
    world.acquire("k", Wait::Forever);
    let line = world.line(0);
    world.say(0, &format!("M A k z:9 {}", tag(&line)));
    world.pass(20 * MS);
    assert!(
        world.line(1).starts_with('A'),
        "the other one is asked, too"
    );
}

#[test]
fn rule_4_4_moves_in_a_circle_are_bounded_and_slow_down() {
    let mut world = World::up(&["a:1", "b:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let begin = world.now;
    let mut times = Vec::new();
    while world.result(face).is_none() {
        while let Some((index, line)) = world.all_lines().pop() {
            times.push((world.now - begin) / MS);
            let other = ["b:1", "a:1"][index as usize];
            world.say(index, &format!("M A k {other} {}", tag(&line)));
        }
        world.pass(MS);
        assert!(world.now < begin + 10 * S);
    }
    assert_eq!(times[..4], [0, 0, 0, 20], "{times:?}");
    assert_eq!(times.len(), 18);
}

#[test]
fn rule_4_4_a_move_to_a_node_out_of_reach_is_asked_again_for_3_s() {
    let mut world = cluster();
    world.say(1, "N a:1");
    let (face, _) = world.acquire("k", Wait::Forever);
    world.line(0);
    world.cut(0);
    world.refuse(0);
    let begin = world.now;
    let mut times = Vec::new();
    while world.now < begin + 2_900 * MS {
        for (index, line) in world.all_lines() {
            if line.starts_with('A') {
                assert_eq!(line, "A k 30 0 #1.1");
                times.push((world.now - begin) / MS);
                world.say(index, &format!("M A k a:1 {}", tag(&line)));
            }
        }
        if world.pipes.contains_key(&0) {
            world.refuse(0);
        }
        world.pass(MS);
        assert_eq!(world.result(face), None, "it does not count");
    }
    assert_eq!(times[0], 0);
    assert!(
        times
            .windows(2)
            .all(|pair| (18..=205).contains(&(pair[1] - pair[0]))),
        "{times:?}"
    );
    // The standby takes over.
    world.pass(250 * MS);
    let (index, line) = world
        .all_lines()
        .into_iter()
        .rfind(|(_, line)| line.starts_with('A'))
        .expect("asked");
    world.say(index, &format!("A k 100 {}", tag(&line)));
    world.grant(face);
}

#[test]
fn rule_4_4_moves_to_a_node_out_of_reach_do_not_count() {
    // The client was told by its first hello that a is active, and is not told that this is over.
    let mut world = World::up(&["a:1", "b:1"]);
    world.cut(1);
    world.refuse(1);
    let (face, _) = world.acquire("k", Wait::Forever);
    let begin = world.now;
    while world.result(face).is_none() {
        for (index, line) in world.all_lines() {
            if line.starts_with('A') {
                world.say(index, &format!("M A k b:1 {}", tag(&line)));
            } else {
                world.say(index, &line);
            }
        }
        if world.pipes.contains_key(&1) {
            world.refuse(1);
        }
        world.pass(MS);
        assert!(world.now < begin + 10 * S, "but it ends");
    }
    assert!(world.now >= begin + 6 * S, "two tries of 3 s each");
}

#[test]
fn rule_4_4_moves_with_a_wait_between_them_are_not_in_a_row() {
    let mut world = World::up(&["a:1", "b:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let (mut index, mut line) = world.all_lines().pop().expect("an acquire");
    for _ in 0..40 {
        world.say(
            index,
            &format!("M A k {} {}", ["b:1", "a:1"][index as usize], tag(&line)),
        );
        (index, line) = world.all_lines().pop().expect("it follows at once");
        assert!(line.starts_with('A'), "{line}");
        let until = world.now + 7 * S;
        while world.now < until {
            world.pass(MS);
            for (index, probe) in world.all_lines() {
                world.say(index, &probe);
            }
        }
        assert_eq!(world.result(face), None);
    }
    world.say(index, &format!("A k 100 {}", tag(&line)));
    world.grant(face);
}

#[test]
fn rule_4_4_n_for_a_node_that_was_just_out_of_reach_tries_it_soon() {
    let mut world = cluster();
    world.cut(0);
    world.refuse(0);
    world.say(1, "N a:1");
    world.pass(150 * MS);
    assert!(world.pipes.contains_key(&0), "tried again long before 3 s");
}

#[test]
fn rule_4_4_n_asks_again_there_for_all_that_is_under_way_elsewhere() {
    let mut world = cluster();
    world.say(2, "N a:1");
    let (waiting, _) = world.acquire("k", Wait::Forever);
    let grant = world.hold_on("h");
    let (releasing, _) = world.ask(Ask::ReleaseLock { lock: grant.lock });
    let lines = world.lines(0);
    assert_eq!(lines.len(), 2, "{lines:?}");
    // The old node is frozen; a standby tells of the new one.
    world.say(2, "N b:1");
    let lines = world.lines(1);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "A k 30 0 #1.1");
    assert!(lines[1].starts_with("R h 100 #"), "{lines:?}");
    world.say(1, "A k 200 #1.1");
    assert_eq!(world.grant(waiting).token, token(200));
    world.say(1, &format!("R h stale {}", tag(&lines[1])));
    assert_eq!(world.result(releasing), Some(Ok(Outcome::Confirmed(true))));
    // The old node wakes: what it grants now is given back, unless it is in hand.
    world.say(0, "A k 150 #1");
    let (_, line) = world.all_lines().pop().expect("a release");
    assert!(line.starts_with("R k 150 #"), "{line}");
    world.say(0, "A k 200 #1");
    let all = world.all_lines();
    assert!(all.is_empty(), "{all:?}");
}

/// Goal: a grant that is said twice is one lock, and one that nobody waits for is given back, whatever locks have come and
/// gone since the last such grant. Method: rounds of many locks, after each of which every token is granted again.
#[test]
fn what_is_granted_again_is_in_hand_while_its_lock_is() {
    let mut world = World::up(&["a:1"]);
    let mut held: Vec<Grant> = Vec::new();
    let mut gone: Vec<Token> = Vec::new();
    let mut last = 0;
    for round in 0..41_usize {
        for _ in 0..round {
            let (face, _) = world.acquire("k", Wait::Forever);
            let (index, line) = world.all_lines().pop().expect("sent");
            last += 1;
            world.say(index, &format!("A k {last} {}", tag(&line)));
            held.push(world.grant(face));
        }
        let changes_are_noted = world.session.in_hand.is_kept();
        assert!(!changes_are_noted || round > 1, "nobody has asked");
        while held.len() > 40 * (round % 3) {
            let lock = held.swap_remove(held.len() / 2);
            gone.push(lock.token);
            world.session.drop_lock(lock.lock, world.now);
            world.settle();
            let (index, line) = world.all_lines().pop().expect("a release");
            world.say(index, &format!("R k ok {}", tag(&line)));
        }
        if round % 2 == 0 {
            continue;
        }
        for lock in &held {
            world.say(0, &format!("A k {} #1", lock.token));
            assert_eq!(world.all_lines(), [], "in hand");
        }
        for token in &gone {
            world.say(0, &format!("A k {token} #1"));
            let (index, line) = world.all_lines().pop().expect("given back");
            assert!(line.starts_with(&format!("R k {token} #")), "{line}");
            world.say(index, &format!("R k stale {}", tag(&line)));
        }
    }
    assert!(held.len() > 10 && gone.len() > 100);
}

#[test]
fn a_grant_of_the_old_attempt_is_given_back_and_never_taken_for_the_new_one() {
    let mut world = cluster();
    world.say(2, "N a:1");
    let (face, _) = world.acquire("k", Wait::Forever);
    world.line(0);
    world.say(2, "N b:1");
    assert_eq!(world.line(1), "A k 30 0 #1.1");
    world.say(0, "A k 150 #1");
    let (_, line) = world.all_lines().pop().expect("a release");
    assert!(line.starts_with("R k 150 #"), "{line}");
    // The new node had the grant in its copy and answers with it.
    world.say(1, "A k 150 #1.1");
    assert_eq!(world.result(face), None);
    let (index, line) = world.all_lines().pop().expect("a new request");
    assert!(
        line.starts_with("A k 30 0 #") && !line.ends_with("#1.2"),
        "{line}"
    );
    world.say(index, &format!("A k 160 {}", tag(&line)));
    assert_eq!(world.grant(face).token, token(160));
}

#[test]
fn rule_4_4_n_for_a_node_that_is_not_up_yet_counts_when_it_is() {
    let mut world = cluster();
    world.say(2, "N a:1");
    world.acquire("k", Wait::Forever);
    world.line(0);
    world.cut(1);
    world.say(2, "N b:1");
    assert!(
        world.all_lines().is_empty(),
        "the old copy may still be answered"
    );
    world.accept_as(1, "active", "b:1", "a:1,b:1,c:1");
    assert_eq!(world.line(1), "A k 30 0 #1.1");
}

#[test]
fn rule_4_4_the_nodes_of_the_hello_are_tried_when_the_own_are_all_down() {
    let mut world = World::new(&["a:1"]);
    world.accept_as(0, "active", "a:1", "a:1,y:1,z:1");
    world.accept_as(1, "active", "a:1", "a:1,y:1,z:1");
    let (face, _) = world.acquire("k", Wait::Forever);
    world.all_lines();
    world.cut(0);
    world.cut(1);
    world.refuse(0);
    world.refuse(1);
    let addresses: Vec<String> = world
        .pipes
        .values()
        .map(|pipe| pipe.address.clone())
        .collect();
    assert_eq!(addresses, ["y:1", "z:1"]);
    assert_eq!(world.result(face), None, "one of two tries");
    world.accept_as(2, "active", "y:1", "a:1,y:1,z:1");
    assert_eq!(world.line(2), "A k 30 0 #1.1");
    world.say(2, "A k 100 #1.1");
    world.grant(face);
}

#[test]
fn an_additional_connection_of_no_more_use_is_closed() {
    let mut world = World::up(&["a:1"]);
    world.acquire("k", Wait::No);
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("M A k z:9 {}", tag(&line)));
    world.accept(2);
    let line = world.line(2);
    world.say(2, &format!("M A k a:1 {}", tag(&line)));
    world.pass(S);
    let (index, line) = world.all_lines().pop().expect("asked again");
    world.say(index, &format!("T k {}", tag(&line)));
    for _ in 0..20 {
        world.pass(S);
        for (index, line) in world.all_lines() {
            world.say(index, &line);
        }
    }
    assert!(!world.pipes.contains_key(&2));
    assert_eq!(world.pipes.len(), 2);
}

impl World {
    /// As `hold`, on the connection to the active node, where something else may be under way.
    fn hold_on(&mut self, key: &str) -> Grant {
        let before = self.lines(0);
        let grant = self.hold(key, 60_000, false);
        if let Some(pipe) = self.pipes.get_mut(&0) {
            let mut lines = before;
            lines.append(&mut pipe.lines);
            pipe.lines = lines;
        }
        grant
    }
}
