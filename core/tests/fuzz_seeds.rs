//! Goal: what fuzzing found stays found. Method: the kept inputs of each fuzz target run through the
//! same body as in the fuzzer, on every machine and without nightly.

use std::path::Path;

#[cfg(feature = "server")]
#[path = "../../fuzz/bodies/engine.rs"]
mod engine;
#[cfg(feature = "server")]
#[path = "../../fuzz/bodies/journal.rs"]
mod journal;
#[path = "../../fuzz/bodies/line.rs"]
mod line;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the kept inputs are part of the sources") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("a readable file"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn line_parsers_hold_over_the_kept_inputs() {
    replay("line", line::check);
}

#[cfg(feature = "server")]
#[test]
fn the_engine_agrees_with_its_model_over_the_kept_inputs() {
    replay("engine", |data| {
        engine::check(data);
    });
}

#[cfg(feature = "server")]
#[test]
fn the_reader_of_journals_holds_over_the_kept_inputs() {
    replay("journal", journal::check);
}

/// Goal: a journal that is cut short, or of which a bit is another one, is seen to be so: what is believed is a part of
/// it from its beginning on. Method: that, at random, to the kept ones.
#[cfg(feature = "server")]
#[test]
fn a_journal_that_is_cut_or_altered_is_refused_or_believed_up_to_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/journal/whole");
    let whole = std::fs::read(path).expect("the kept inputs are part of the sources");
    assert_eq!(journal::check_file(&whole), Some(whole.len() as u64));
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005);
        random = random.wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    for _ in 0..2000 {
        let cut = below(whole.len() + 1);
        let mut damaged = whole[..cut].to_vec();
        let good = journal::check_file(&damaged);
        assert!(
            good.is_none_or(|length| length <= cut as u64),
            "cut at {cut}"
        );
        let (byte, bit) = (below(whole.len()), below(8));
        if byte < cut {
            damaged[byte] ^= 1 << bit;
            let good = journal::check_file(&damaged);
            let what = format!("cut at {cut}, bit {bit} of byte {byte}");
            assert!(good.is_none_or(|length| length <= byte as u64), "{what}");
        }
    }
}
