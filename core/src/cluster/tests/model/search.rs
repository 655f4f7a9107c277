//! Visits every state once, the nearest first.

use super::faults::{Kind, Limits};
use super::rules;
use super::step::Step;
use super::world::World;
use std::collections::{HashSet, VecDeque};
use std::fmt::{self, Write as _};
use std::hash::{BuildHasherDefault, Hasher};

/// What a search has seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) states: usize,
    pub(super) transitions: usize,
    pub(super) depth: u32,
    pub(super) rests: usize,
    /// Transitions of each kind of fault.
    pub(super) by_kind: [usize; Kind::ALL.len()],
    pub(super) longest_way: usize,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} states, {} transitions, depth {}, {} states at rest, at most {} packets on a way",
            self.states, self.transitions, self.depth, self.rests, self.longest_way
        )?;
        let kinds = Kind::ALL.iter().zip(self.by_kind);
        for (kind, count) in kinds.filter(|(_, count)| *count > 0) {
            write!(f, ", {kind:?} {count}")?;
        }
        Ok(())
    }
}

struct Visit {
    parent: u32,
    step: Step,
    depth: u32,
}

type Fingerprints = HashSet<u64, BuildHasherDefault<AsItIs>>;

/// Searches from a state; the error is the shortest way to what is wrong.
pub(super) fn search(root: World, limits: &Limits, most: usize) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut known = Fingerprints::default();
    let mut settles = Fingerprints::default();
    let mut visits: Vec<Visit> = Vec::new();
    let mut front: VecDeque<(u32, World)> = VecDeque::new();
    let with_order = limits.overtakes.is_some();
    known.insert(root.fingerprint(true, with_order));
    visits.push(Visit {
        parent: u32::MAX,
        step: Step::Advance,
        depth: 0,
    });
    front.push_back((0, root.clone()));
    let mut steps = Vec::new();
    let tell = |visits: &[Visit], at: u32, last: Option<Step>, what: &str| {
        let mut way: Vec<Step> = last.into_iter().collect();
        let mut place = at;
        while place != 0 {
            let visit = &visits[place as usize];
            way.push(visit.step);
            place = visit.parent;
        }
        way.reverse();
        story(&root, &way, what)
    };
    while let Some((number, world)) = front.pop_front() {
        let depth = visits[number as usize].depth;
        seen.depth = seen.depth.max(depth);
        if world.at_rest() {
            seen.rests += 1;
            if let Err(what) = comes_to_rest(&world, &mut settles) {
                return Err(tell(&visits, number, None, &what));
            }
        }
        steps.clear();
        world.ordinary_steps(&mut steps);
        if limits.overtakes.is_some_and(|most| world.overtaken >= most) {
            steps.truncate(1);
        }
        let ordinary = steps.len();
        world.faults(limits, &mut steps);
        for (place, step) in steps.iter().copied().enumerate() {
            let mut next = world.clone();
            if (1..ordinary).contains(&place) {
                next.overtaken = next.overtaken.saturating_add(1);
            }
            next.take(step);
            seen.transitions += 1;
            if let Some(kind) = step.kind() {
                seen.by_kind[kind as usize] += 1;
            }
            let wrong = rules::broken_rule(&world, &next)
                .or_else(|| rules::taken_from_the_living(&world, &next))
                .or_else(|| spins(&next, step));
            if let Some(what) = wrong {
                return Err(tell(&visits, number, Some(step), &what));
            }
            next.note_opened();
            if !known.insert(next.fingerprint(true, with_order)) {
                continue;
            }
            let ways = next.ways.iter().flatten();
            let longest = ways.map(|way| way.packets.len()).max().unwrap_or(0);
            seen.longest_way = seen.longest_way.max(longest);
            let place = visits.len() as u32;
            visits.push(Visit {
                parent: number,
                step,
                depth: depth + 1,
            });
            if visits.len() > most {
                return Err(tell(&visits, place, None, "more states than bargained for"));
            }
            front.push_back((place, next));
        }
    }
    seen.states = visits.len();
    Ok(seen)
}

/// A timer that is still due after it was seen to would never let time pass.
fn spins(world: &World, step: Step) -> Option<String> {
    let Step::Tick(index) = step else {
        return None;
    };
    world
        .is_due(index.into())
        .then(|| format!("the timer of node {index} is still due"))
}

/// With no more faults the best node serves, the others copy it, and it stays so.
fn comes_to_rest(world: &World, known: &mut Fingerprints) -> Result<(), String> {
    let mut world = world.clone();
    world.end_of_faults();
    let end = world.now + world.longest_unrest();
    let mut met = Vec::new();
    let mut steps = Vec::new();
    let mut moves = 0;
    while !world.is_settled() {
        let fingerprint = world.fingerprint(false, false);
        if known.contains(&fingerprint) {
            break;
        }
        met.push(fingerprint);
        moves += 1;
        steps.clear();
        world.ordinary_steps(&mut steps);
        let Some(step) = steps.first().copied() else {
            return Err(format!("nothing can happen any more\n{}", picture(&world)));
        };
        if world.now > end || moves > 5000 {
            return Err(format!(
                "the best node does not serve alone however long it is quiet\n{}",
                picture(&world)
            ));
        }
        world.take(step);
        world.note_opened();
    }
    known.extend(met);
    Ok(())
}

/// The events on the way to what is wrong, and what each node made of them.
fn story(root: &World, way: &[Step], what: &str) -> String {
    let mut text = format!("{what}\nfrom\n{}", picture(root));
    let mut world = root.clone();
    for (number, step) in way.iter().enumerate() {
        let packet = match *step {
            Step::Deliver(from, to) | Step::Lose(from, to) => {
                let way = &world.ways[usize::from(from)][usize::from(to)];
                way.packets.first().map(|(_, packet)| *packet)
            }
            _ => None,
        };
        let before = picture(&world);
        world.take(*step);
        let _ = write!(text, "{:3} {step:?}", number + 1);
        if let Some(packet) = packet {
            let _ = write!(text, " {packet:?}");
        }
        text.push('\n');
        let after = picture(&world);
        for (old, new) in before.lines().zip(after.lines()) {
            if old != new {
                let _ = writeln!(text, "       {}", new.trim_start());
            }
        }
    }
    text
}

fn picture(world: &World) -> String {
    let mut text = format!("    at {} ms\n", world.now / 1000);
    for index in 0..super::world::NODES {
        let disk = world.disks[index];
        let _ = match world.node(index) {
            None => writeln!(text, "    node {index}: down, term {disk} on disk"),
            Some(node) => writeln!(
                text,
                "    node {index}: {:?}, {:?}, {}{} term {:?}, {disk} on disk",
                node.roles.stage(),
                node.roles.stance(),
                if node.copy.complete {
                    "complete"
                } else {
                    "incomplete"
                },
                if node.awake() { "," } else { ", asleep," },
                node.roles.serving_term(),
            ),
        };
    }
    text
}

/// Mixes words; good enough for fingerprints of states, where nobody chooses the input.
pub(super) struct Mix(u64);

impl Default for Mix {
    fn default() -> Mix {
        Mix(0x243F_6A88_85A3_08D3)
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let wide = u128::from(self.0) * u128::from(0xA409_3822_299F_31D1_u64);
        (wide >> 64) as u64 ^ wide as u64
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        self.0 = ((wide >> 64) as u64 ^ wide as u64).wrapping_add(word.rotate_left(32) | 1);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}
