//! Connections: 4.1 and 4.2.

use super::*;

#[test]
fn rule_4_2_news_with_an_older_time_than_the_last_is_no_fault() {
    let mut world = World::up(&["a:1", "b:1"]);
    world.now -= MS;
    world.cut(0);
    assert!(world.pipes.contains_key(&0), "tried again at once");
}

#[test]
fn rule_4_2_a_node_that_says_it_is_leaving_is_called_again_after_3_s_and_not_at_once() {
    let mut world = World::up(&["a:1", "b:1"]);
    world.cut(0);
    world.accept_as(0, "leaving", "b:1", "a:1,b:1");
    world.cut(0);
    assert!(!world.pipes.contains_key(&0), "it would be ended again");
    world.pass(2_700 * MS - 1);
    assert!(!world.pipes.contains_key(&0));
    world.pass(600 * MS + 1);
    assert!(world.pipes.contains_key(&0), "it may be another process");
}

#[test]
fn rule_4_1_two_connections_to_a_single_address_and_one_to_each_of_several() {
    assert_eq!(World::new(&["a:1"]).pipes.len(), 2);
    let world = World::new(&["a:1", "b:1", "c:1"]);
    let addresses: Vec<&str> = world
        .pipes
        .values()
        .map(|pipe| pipe.address.as_str())
        .collect();
    assert_eq!(addresses, ["a:1", "b:1", "c:1"]);
}

#[test]
fn rule_4_1_the_hello_says_id_name_secret_and_the_highest_token() {
    let mut world = World::with(&["a:1"], |settings| {
        settings.secret = Some(b"x%20y".to_vec())
    });
    let id = "07".repeat(16);
    assert_eq!(world.accept(0), format!("H 1 id={id} name=me auth=x%20y"));
    let (face, _) = world.acquire("k", Wait::Forever);
    let line = world.line(0);
    world.say(0, &format!("A k 77 {}", tag(&line)));
    world.grant(face);
    assert_eq!(
        world.accept(1),
        format!("H 1 id={id} name=me seen=77 auth=x%20y")
    );
}

#[test]
fn rule_4_1_a_quiet_connection_is_probed_after_5_s_and_given_up_5_s_later() {
    let mut world = World::up(&["a:1"]);
    world.pass(5 * S - 1);
    assert!(world.all_lines().is_empty());
    world.pass(1);
    let probe = world.line(0);
    assert!(probe.starts_with("P #"), "{probe}");
    // Any byte is life, be it half a line.
    let id = world.pipes[&0].id;
    world.pass(2 * S);
    world.session.handle_bytes(id, b"P", world.now);
    world.pass(3 * S);
    let again = world.line(0);
    assert_eq!(world.pipes[&0].id, id, "still the same connection");
    assert!(again.starts_with("P #") && again != probe, "{again}");
    world.pass(5 * S);
    assert_ne!(world.pipes[&0].id, id, "given up, and tried again at once");
    assert!(world.resets >= 1);
}

#[test]
fn rule_4_1_after_1_s_and_1_s_while_something_that_does_not_wait_is_under_way() {
    for urgent in [true, false] {
        let mut world = World::up(&["a:1"]);
        world.pass(S / 2);
        let wait = if urgent { Wait::No } else { Wait::Forever };
        world.acquire("k", wait);
        let (index, _) = world.all_lines().pop().expect("sent");
        let id = world.pipes[&index].id;
        world.pass(S);
        let probed = world.lines(index).iter().any(|line| line.starts_with('P'));
        assert_eq!(probed, urgent);
        world.pass(S);
        assert_eq!(world.pipes[&index].id != id, urgent);
    }
}

#[test]
fn rule_4_1_who_sends_and_hears_nothing_is_found_out() {
    let mut world = World::up(&["a:1"]);
    // Requests that may wait go out all the time, and nothing comes back.
    for _ in 0..9 {
        world.acquire("k", Wait::Forever);
        world.pass(S);
    }
    let all = world.all_lines();
    assert!(
        all.iter().any(|(_, line)| line.starts_with("P #")),
        "{all:?}"
    );
}

#[test]
fn rule_4_2_requests_go_round_the_connections_that_are_up() {
    let mut world = World::new(&["a:1", "b:1", "c:1"]);
    world.accept(0);
    world.accept(2);
    world.refuse(1);
    let mut sent = Vec::new();
    for _ in 0..4 {
        world.acquire("k", Wait::Forever);
        sent.extend(world.all_lines().into_iter().map(|(index, _)| index));
    }
    assert_eq!(sent, [2, 0, 2, 0]);
}

#[test]
fn rule_4_2_tried_again_at_once_and_then_every_3_s_give_or_take_a_tenth() {
    let mut world = World::up(&["a:1"]);
    world.pass(2 * S);
    world.tries.clear();
    let start = world.now;
    world.cut(0);
    for _ in 0..4 {
        world.refuse(0);
        while !world.pipes.contains_key(&0) {
            world.pass(MS);
        }
    }
    let of_it = world.tries.iter().filter(|(_, index)| *index == 0);
    let times: Vec<Micros> = of_it.map(|(at, _)| at - start).collect();
    assert_eq!(times[0], 0);
    for pair in times.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((2_700 * MS..=3_300 * MS).contains(&gap), "{gap}");
    }
}

#[test]
fn a_connection_that_breaks_as_soon_as_it_is_up_is_not_tried_without_end() {
    let mut world = World::up(&["a:1"]);
    world.tries.clear();
    let start = world.now;
    while world.now < start + 10 * S {
        if world.pipes.get(&0).is_some_and(|pipe| !pipe.connected) {
            world.accept(0);
            world.cut(0);
        }
        world.pass(MS);
    }
    assert!(world.tries.len() < 20, "{}", world.tries.len());
}

#[test]
fn a_try_takes_no_longer_than_the_connect_timeout() {
    let mut world = World::new(&["a:1"]);
    let id = world.pipes[&0].id;
    world.connect(0);
    world.pass(3 * S);
    assert_ne!(world.pipes[&0].id, id);
}

#[test]
fn a_server_that_talks_garbage_is_left() {
    for garbage in ["hello", "A k", "K k ok", "A k x #1", "A other 5 #1"] {
        let mut world = World::up(&["a:1"]);
        let (face, _) = world.acquire("k", Wait::Forever);
        let (index, line) = world.all_lines().pop().expect("sent");
        assert_eq!(line, "A k 30 0 #1");
        let id = world.pipes[&index].id;
        world.say(index, garbage);
        assert_ne!(world.pipes[&index].id, id, "{garbage}");
        assert_eq!(
            world.result(face),
            None,
            "the other connection is asked: {garbage}"
        );
        let (_, line) = world.all_lines().pop().expect("sent again");
        assert_eq!(line, "A k 30 0 #1.1");
    }
    // A line without end.
    let mut world = World::up(&["a:1"]);
    let id = world.pipes[&0].id;
    world.session.handle_bytes(id, &[b'x'; 5000], world.now);
    world.settle();
    assert_ne!(world.pipes[&0].id, id);
    // Instead of a hello.
    let mut world = World::new(&["a:1"]);
    world.connect(0);
    world.say(0, "HTTP/1.1 400 Bad Request");
    assert!(!world.pipes.contains_key(&0));
}

#[test]
fn replies_in_pieces_and_together_are_the_same() {
    let mut world = World::up(&["a:1", "b:1"]);
    let asks: Vec<FaceId> = (0..4)
        .map(|_| world.acquire("k", Wait::Forever).0)
        .collect();
    let mut replies = BTreeMap::<u32, String>::new();
    for (index, line) in world.all_lines() {
        let reply = format!("A k 5{} {}\r\n", tag(&line).len(), tag(&line));
        replies.entry(index).or_default().push_str(&reply);
    }
    for (index, bytes) in replies {
        let id = world.pipes[&index].id;
        for byte in bytes.as_bytes() {
            world.session.handle_bytes(id, &[*byte], world.now);
        }
    }
    world.settle();
    for face in asks {
        world.grant(face);
    }
}

/// Goal: nobody is sent to look for a server that was there, whatever words its failure is told in. Method: the same words with and without TLS as
/// their cause.
#[test]
fn advice_to_look_for_the_server_follows_the_cause_of_a_failure_and_not_its_words() {
    let words = "no TLS certificate";
    for (failure, is_advised) in [
        (Failure::from(words.to_owned()), true),
        (Failure::of_tls(words), false),
        (
            Failure::of_all(vec![Failure::of_tls(words), words.to_owned().into()]),
            false,
        ),
    ] {
        let mut world = World::new(&["a:1", "b:1"]);
        let (face, _) = world.acquire("k", Wait::Forever);
        world.refuse(0);
        let id = world.pipes[&1].id;
        world.session.handle_connect_failed(id, failure, world.now);
        world.settle();
        world.pass(3 * S);
        let Some(Err(error)) = world.result(face) else {
            panic!("there is no server");
        };
        let text = error.to_string();
        assert!(text.contains(words), "{text}");
        assert_eq!(
            text.contains("is a server running there"),
            is_advised,
            "{text}"
        );
    }
}
