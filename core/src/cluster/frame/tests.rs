//! Goal: frames mean the same on both sides, and bytes that are none do no harm.
//! Method: each kind there and back, and each cut short, made longer and altered.

use super::*;
use crate::cluster::members::Slot;
use crate::cluster::message::{Beat, Copy, Handoff, Stage};
use crate::engine::{ClaimId, Owner};
use crate::protocol::{ClientId, Key, Millis, NameRef, Tag};
use std::sync::Arc;

const NOW: Time = Time(5_000_000_000);

fn owner() -> Arc<Owner> {
    let name = NameRef::parse(b"worker%201").expect("a name");
    Arc::new(Owner::new(Some(ClientId([7; 16])), name, "10.0.0.1:4711"))
}

fn every_change() -> Vec<Change> {
    let claim = ClaimId::from_number(12).expect("a claim");
    let key = Key::encode(b"order 42").expect("a key");
    let token = Token::new(77).expect("a token");
    let tag = Some(Tag {
        number: 3,
        attempt: 2,
    });
    let (lease, ends) = (Millis(30_000), NOW.after(Millis(29_000)));
    vec![
        Change::Granted {
            claim,
            key: key.clone(),
            token,
            owner: owner(),
            tag,
            lease,
            ends,
        },
        Change::Released { claim, token },
        Change::Expired { claim, token },
        Change::Kept { claim, lease, ends },
        Change::Enqueued {
            claim,
            key,
            owner: Arc::new(Owner::new(None, NameRef::NONE, "a:1")),
            tag: None,
            lease,
            since: Time(NOW.0 - 9),
            ends: Time::NEVER,
        },
        Change::Left { claim },
        Change::Resent {
            claim,
            owner: owner(),
            attempt: 4,
            lease,
            ends,
        },
        Change::AttemptRemembered {
            client: ClientId([9; 16]),
            number: 1,
            attempt: 2,
            at: Time(NOW.0 - 100),
        },
        Change::TermOpened { term: 5 },
    ]
}

fn every_frame() -> Vec<Frame> {
    let stream = Stream { term: 9, slot: 2 };
    let copy = Copy {
        stream,
        sequence: 100,
        oldest: 50,
        complete: true,
    };
    let mut frames: Vec<Frame> = STAGES
        .into_iter()
        .zip([None, Some((Slot(3), 8))].into_iter().cycle())
        .map(|(stage, active)| {
            Frame::Roles(Message::Beat(Beat {
                incarnation: 1,
                stage,
                term: 9,
                active,
                copy,
                can_lead: stage != Stage::Leaving,
            }))
        })
        .collect();
    let steps = [
        Handoff::Offer,
        Handoff::Ready,
        Handoff::Withdraw,
        Handoff::Final { sequence: 6 },
        Handoff::Taken,
    ];
    frames.extend(steps.map(|step| Frame::Roles(Message::Handoff { round: 4, step })));
    frames.extend([
        Frame::Roles(Message::Fetch { round: 4, copy }),
        Frame::Roles(Message::Fetched { round: 4 }),
        Frame::Join,
        Frame::Begin {
            stream,
            sequence: 7,
        },
        Frame::Dump {
            changes: every_change(),
        },
        Frame::Whole,
        Frame::Changes {
            stream,
            first: 8,
            changes: every_change(),
        },
        Frame::Applied {
            stream,
            sequence: 9,
        },
        Frame::Given {
            grants: every_change(),
        },
        Frame::Ended {
            tokens: vec![Token::new(1).expect("a token")],
        },
    ]);
    frames
}

#[test]
fn every_frame_comes_back_as_it_was() {
    for frame in every_frame() {
        let mut bytes = Vec::new();
        frame.encode(NOW, &mut bytes);
        let unit = split_frame(&bytes).expect("short enough");
        let Unit::Whole { body, used } = unit else {
            panic!("{frame:?} is whole");
        };
        assert_eq!(used, bytes.len());
        assert_eq!(Frame::decode(body, NOW), Ok(frame));
    }
}

#[test]
fn moments_travel_as_what_is_left_and_what_has_passed() {
    let frame = Frame::Dump {
        changes: every_change(),
    };
    let mut bytes = Vec::new();
    frame.encode(NOW, &mut bytes);
    let there = Time(77);
    let Ok(Frame::Dump { changes }) = Frame::decode(&bytes[4..], there) else {
        panic!("it is whole");
    };
    let Change::Granted { ends, .. } = &changes[0] else {
        panic!("the first is a grant");
    };
    assert_eq!(*ends, there.after(Millis(29_000)));
    let Change::Enqueued { since, ends, .. } = &changes[4] else {
        panic!("the fifth waits");
    };
    assert_eq!((*since, *ends), (Time(68), Time::NEVER));
}

#[test]
fn a_frame_that_is_cut_longer_or_turned_is_an_error_or_another_frame() {
    for frame in every_frame() {
        let mut bytes = Vec::new();
        frame.encode(NOW, &mut bytes);
        let body = &bytes[4..];
        for end in 0..body.len() {
            assert!(Frame::decode(&body[..end], NOW).is_err(), "{frame:?}");
        }
        let longer = [body, b"x"].concat();
        assert_eq!(Frame::decode(&longer, NOW), Err(FrameError::LeftOver));
        for place in 0..body.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut turned = body.to_vec();
                turned[place] = value;
                // Whatever it is now, nobody panics, and nothing is allocated for what is not there.
                let _ = Frame::decode(&turned, NOW);
            }
        }
    }
}

#[test]
fn a_length_that_no_frame_has_is_refused_before_anything_is_kept() {
    let length = (FRAME_BYTES as u32 + 1).to_le_bytes();
    let refused = Err(FrameError::TooLong(FRAME_BYTES as u32 + 1));
    assert_eq!(split_frame(&length), refused);
    assert_eq!(split_frame(&length[..3]), Ok(Unit::Partial));
}

#[test]
fn a_change_is_never_longer_than_it_is_counted() {
    for change in every_change() {
        let mut bytes = Vec::new();
        let counted = change_bytes(&change);
        Frame::Dump {
            changes: vec![change],
        }
        .encode(NOW, &mut bytes);
        assert!(
            bytes.len() - 9 <= counted,
            "{} > {counted}",
            bytes.len() - 9
        );
    }
}

/// Goal: what is told shortly is told completely. Method: grants and ends that differ from those before them in one
/// thing each, in every order of two.
#[test]
fn news_of_a_journal_mean_the_same_as_changes_told_at_length() {
    let claim = |number| ClaimId::from_number(number).expect("a claim");
    let token = |number| Token::new(number).expect("a token");
    let (one, other) = (owner(), owner());
    let long = "k".repeat(300);
    let tag = |number, attempt| Some(Tag { number, attempt });
    let ends = NOW.after(Millis(30_000));
    let mut all = every_change();
    for (owner, key, ahead, tag, lease, ends) in [
        (&one, "k", 1, None, 30_000, ends),
        (&one, "k", 1, None, 30_000, ends),
        (&one, "k", 1, tag(7, 0), 30_000, ends),
        (&one, "k", 1, tag(7, 1), 30_000, ends),
        (&one, "k", 1, tag(1 << 32, 0), 30_000, ends),
        (&one, "k", 255, None, 30_000, ends),
        (&one, "k", 256, None, 30_000, ends),
        (&one, "k", 1 << 32, None, 30_000, ends),
        (&one, &long, 1, None, 30_000, ends),
        (&other, "k", 1, None, 30_000, ends),
        (&other, "k", 1, None, 1000, ends),
        (&other, "k", 1, None, 1000, Time::NEVER),
    ] {
        let before = all.iter().rev().find_map(|change| match change {
            Change::Granted { token, .. } => Some(token.get()),
            _ => None,
        });
        let granted = before.expect("there is one among all") + ahead;
        all.push(Change::Granted {
            claim: claim(granted as u32 % 1000),
            key: Key::encode(key.as_bytes()).expect("a key"),
            token: token(granted),
            owner: Arc::clone(owner),
            tag,
            lease: Millis(lease),
            ends,
        });
        for number in [granted, granted ^ 1 << 40] {
            let (claim, token) = (claim(3), token(number));
            all.push(Change::Released { claim, token });
        }
    }
    for one in &all {
        for other in &all {
            let changes = [one.clone(), other.clone(), one.clone()];
            let stream = Stream { term: 3, slot: 1 };
            let mut body = Vec::new();
            let mut news = NewsWriter::begin(NOW, (stream, 9), &mut body);
            for change in &changes {
                news.news(crate::engine::News::Change(change));
            }
            assert_eq!(news.end(), 3);
            let frame = Frame::decode(&body, NOW).expect("it is one");
            let expected = Frame::Changes {
                stream,
                first: 9,
                changes: changes.to_vec(),
            };
            assert_eq!(frame, expected);
        }
    }
}

/// Goal: nobody makes a frame that no peer and no later start would read.
#[test]
fn as_many_changes_as_are_put_into_a_frame_fit_however_long_they_are() {
    let key = Key::encode(&[1; limits::KEY_BYTES]).expect("a key");
    let name = b"%01".repeat(limits::NAME_BYTES);
    let name = NameRef::parse(&name).expect("a name");
    // Each is told at length, because it has another owner than the one before.
    let owners = ["a", "b"].map(|letter| {
        let address = letter.repeat(limits::ADDRESS_BYTES);
        Arc::new(Owner::new(Some(ClientId([7; 16])), name, &address))
    });
    let granted = |number: usize| Change::Granted {
        claim: ClaimId::from_number(number as u32).expect("a claim"),
        key: key.clone(),
        token: Token::new(number as u64 + 1).expect("a token"),
        owner: Arc::clone(&owners[number % 2]),
        tag: Some(Tag::first(u64::MAX)),
        lease: Millis(1000),
        ends: NOW,
    };
    let changes: Vec<Change> = (0..SURELY_FIT).map(granted).collect();
    let (mut told, mut part) = (Vec::new(), Vec::new());
    let stream = Stream { term: 3, slot: 1 };
    let mut news = NewsWriter::begin(NOW, (stream, 9), &mut told);
    for change in &changes {
        news.news(crate::engine::News::Change(change));
    }
    assert_eq!(news.end() as usize, SURELY_FIT);
    encode_part(NOW, &changes, &mut part);
    for body in [told, part] {
        assert!(body.len() <= FRAME_BYTES, "{} bytes", body.len());
        Frame::decode(&body, NOW).expect("it is one");
    }
    assert!(change_bytes(&changes[0]) <= REST_BYTES + LONGEST_TEXTS);
}
