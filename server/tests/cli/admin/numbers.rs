//! What the admin page says after a known course of things, and of keys that mean harm.

use super::{Client, Watched};
use crate::support::eventually;
use serde_json::{Value, json};

/// Goal: every number is right. Method: one of everything by hand, then the metrics and the status.
#[test]
fn numbers_are_those_of_what_has_happened() {
    let watched = Watched::alone();
    let before = watched.scrape();
    let (mut one, mut two) = (watched.client(), watched.client());
    assert!(
        one.says("H 1 id=00000000000000000000000000000001 name=worker")
            .starts_with("H 1 ")
    );
    let token = one.takes(b"k");
    assert_eq!(two.says("A k 30 -"), "T k");
    assert_eq!(two.says("A k 30 0.05"), "T k");
    two.send("A k 30 60");
    eventually("it waits", || watched.json("/status.json")["waiting"] == 1);
    assert_eq!(one.says(&format!("R k {token}")), "R k ok");
    let next = two.hear();
    let next = next
        .strip_prefix("A k ")
        .expect("it is its turn")
        .to_owned();
    assert_eq!(one.says(&format!("R k {token}")), "R k stale");
    assert_eq!(two.says(&format!("K k {next} 60")), "K k ok");
    assert_eq!(two.says(&format!("K k {token} 60")), "K k stale");
    assert_eq!(one.says("C k #77"), "C k none #77");
    assert!(one.says("I k").starts_with("I k held"));
    assert!(one.says("W k 5").starts_with("W k 0"));
    one.send("L - 5");
    assert!(one.hear().starts_with("l ") && one.hear().starts_with("L "));
    assert_eq!(one.says("P"), "P");
    assert!(one.says("S").starts_with("S "));
    assert!(one.says("X").starts_with("E ? - syntax"));
    assert!(one.says("A k 999999999 -").starts_with("E A k lease"));
    let short = one.says("A short 0.05 -");
    assert!(short.starts_with("A short "));
    eventually("the lease has ended", || {
        watched.json("/status.json")["totals"]["expired"] == 1
    });

    let after = watched.scrape();
    after.follows(&before);
    // An alert on restarts counts its changes.
    let started = "process_start_time_seconds";
    assert_eq!(after.value(started), before.value(started));
    let requests = |operation: &str, result: &str| {
        format!("fairlock_requests_total{{operation=\"{operation}\",result=\"{result}\"}}")
    };
    for (series, value) in [
        (requests("acquire", "ok"), 3.0),
        (requests("acquire", "timeout"), 2.0),
        (requests("acquire", "refused"), 1.0),
        (requests("release", "ok"), 1.0),
        (requests("release", "stale"), 1.0),
        (requests("keep", "ok"), 1.0),
        (requests("keep", "stale"), 1.0),
        (requests("cancel", "none"), 1.0),
        (requests("inspect", "ok"), 1.0),
        (requests("waiters", "ok"), 1.0),
        (requests("list", "ok"), 1.0),
        (requests("hello", "ok"), 1.0),
        (requests("ping", "ok"), 1.0),
        (requests("status", "ok"), 1.0),
        (requests("unknown", "refused"), 1.0),
        ("fairlock_refusals_total{code=\"syntax\"}".into(), 1.0),
        ("fairlock_refusals_total{code=\"lease\"}".into(), 1.0),
        ("fairlock_refusals_total{code=\"busy\"}".into(), 0.0),
        (
            "fairlock_limits_reached_total{limit=\"max_keys\"}".into(),
            0.0,
        ),
        ("fairlock_grants_total".into(), 3.0),
        ("fairlock_hand_overs_total".into(), 1.0),
        ("fairlock_releases_total".into(), 1.0),
        ("fairlock_leases_expired_total".into(), 1.0),
        ("fairlock_keys_held".into(), 1.0),
        ("fairlock_requests_waiting".into(), 0.0),
        ("fairlock_connections_open".into(), 2.0),
        ("fairlock_connections_accepted_total".into(), 2.0),
        ("fairlock_wait_seconds_count".into(), 3.0),
        ("fairlock_hold_seconds_count".into(), 2.0),
        ("fairlock_hand_over_seconds_count".into(), 1.0),
        ("fairlock_role{role=\"active\"}".into(), 1.0),
        ("fairlock_role{role=\"standby\"}".into(), 0.0),
        ("fairlock_ready".into(), 1.0),
        ("fairlock_state_kept".into(), 0.0),
        ("fairlock_journal_failures_total".into(), 0.0),
    ] {
        assert_eq!(after.value(&series), value, "{series}");
    }
    // A lease is never shorter than it is: so much has been held.
    assert!(after.value("fairlock_hold_seconds_sum") >= 0.05);
    assert!(after.value("fairlock_hand_over_seconds_sum") < 10.0);
    for series in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        assert!(after.value(series) > 0.0, "{series}");
    }

    let status = watched.json("/status.json");
    assert_eq!(status["node"], watched.address.as_str());
    assert_eq!(status["active"], watched.address.as_str());
    assert_eq!(
        (&status["held"], &status["waiting"], &status["connections"]),
        (&json!(1), &json!(0), &json!(2))
    );
    assert_eq!(
        status["totals"]["requests"]["acquire"],
        json!({"ok": 3, "timeout": 2, "refused": 1})
    );
    assert_eq!(status["nodes"], json!([]), "a lone node");
    assert_eq!(status["times"]["wait"]["count"], 3);
}

/// Goal: what Prometheus does not ask for in its newer format, people and older tools can read. Method: the two formats side
/// by side, but for what changes from one look to the next.
#[test]
fn who_does_not_ask_for_open_metrics_gets_the_same_as_plain_text() {
    let watched = Watched::alone();
    watched.client().takes(b"k");
    let older = watched.get("/metrics");
    assert_eq!(
        older.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let newer = watched.scrape();
    let mut kinds = 0;
    let mut samples = Vec::new();
    for line in older.text().lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => {
                let family = name.strip_suffix("_total").filter(|_| kind == "counter");
                assert_eq!(family.is_some(), kind == "counter", "{line}");
                assert_eq!(newer.families[family.unwrap_or(name)].kind, kind, "{line}");
                kinds += 1;
            }
            ["#", "HELP", name, _] => {
                let next = format!("# TYPE {name} ");
                assert!(older.text().contains(&next), "{line}");
            }
            ["#", ..] => panic!("{line}"),
            _ => samples.push(line.rsplit_once(' ').expect("a value").0),
        }
    }
    assert_eq!(kinds, newer.families.len());
    samples.sort_unstable();
    assert_eq!(samples, newer.samples.keys().collect::<Vec<_>>());
}

/// Goal: whoever looks for what blocks the others finds it. Method: three keys of different age and queues of
/// different length.
#[test]
fn the_longest_queues_and_the_oldest_locks_come_first() {
    let watched = Watched::alone();
    let mut holder = watched.client();
    holder.says("H 1 name=holder%20one");
    let tokens: Vec<String> = [&b"old"[..], b"middle", b"young"]
        .iter()
        .map(|key| holder.takes(key))
        .collect();
    let mut waiter = watched.client();
    for key in ["middle", "young", "middle"] {
        waiter.send(&format!("A {key} 30 60"));
    }
    let keys = |list: &Value| -> Vec<String> {
        list.as_array()
            .expect("a list")
            .iter()
            .map(|row| row["key"].as_str().expect("text").to_owned())
            .collect()
    };
    let mut status = Value::Null;
    eventually("both lists are right", || {
        status = watched.json("/status.json");
        keys(&status["longest_queues"]) == ["middle", "young"]
            && keys(&status["oldest_locks"]) == ["old", "middle", "young"]
    });
    assert_eq!(status["all_seen"], true);
    assert_eq!(
        status["longest_queues"],
        json!([{"key": "middle", "waiters": 2}, {"key": "young", "waiters": 1}])
    );
    let oldest = &status["oldest_locks"][0];
    assert_eq!(
        (&oldest["token"], &oldest["name"]),
        (&json!(tokens[0]), &json!("holder one"))
    );
    assert!(oldest["held"].as_f64().is_some_and(|held| held > 0.0));
    assert!(
        oldest["remaining"]
            .as_f64()
            .is_some_and(|left| left > 500.0 && left <= 600.0)
    );

    let queue = watched.json("/waiters.json?key=middle");
    assert_eq!(
        (&queue["key"], &queue["count"]),
        (&json!("middle"), &json!(2))
    );
    let rows = queue["waiters"].as_array().expect("rows");
    assert_eq!(
        rows.iter().map(|row| &row["position"]).collect::<Vec<_>>(),
        [&json!(1), &json!(2)]
    );
    assert!(rows[0]["waited"].as_f64() >= rows[1]["waited"].as_f64());
    let first = watched.json("/waiters.json?key=middle&limit=1");
    assert_eq!(
        (&first["count"], first["waiters"].as_array().map(Vec::len)),
        (&json!(2), Some(1))
    );
    assert_eq!(
        watched.json("/waiters.json?key=nobody")["waiters"],
        json!([])
    );

    let scrape = watched.scrape();
    assert_eq!(scrape.value("fairlock_longest_queue_requests"), 2.0);
    let oldest = scrape.value("fairlock_oldest_hold_seconds");
    assert!(oldest > 0.0 && oldest < 600.0, "{oldest}");

    // What has ended is named no longer, also within the second for which the lists are kept.
    holder.says(&format!("R old {}", tokens[0]));
    eventually("it is gone", || {
        keys(&watched.json("/status.json")["oldest_locks"])[0] != "old"
    });
}

#[test]
fn pages_of_locks_cover_every_key_once() {
    let watched = Watched::alone();
    let mut client = watched.client();
    for number in 0..250 {
        client.takes(format!("a:{number}").as_bytes());
        client.takes(format!("b:{number}").as_bytes());
    }
    let mut seen: Vec<String> = Vec::new();
    let mut path = "/locks.json?prefix=a:&limit=100".to_owned();
    loop {
        let page = watched.json(&path);
        let rows = page["locks"].as_array().expect("rows");
        assert!(rows.len() <= 100);
        seen.extend(
            rows.iter()
                .map(|row| row["key"].as_str().expect("text").to_owned()),
        );
        let Some(next) = page["next"]["key"].as_str() else {
            break;
        };
        path = format!("/locks.json?prefix=a:&limit=100&after={next}");
    }
    assert_eq!(seen.len(), 250);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 250);
    assert!(seen.iter().all(|key| key.starts_with("a:")));
    assert_eq!(
        watched.json("/locks.json")["locks"]
            .as_array()
            .map(Vec::len),
        Some(100),
        "unless asked otherwise"
    );
}

/// Keys that would like to be something else than keys.
fn hostile() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.push((0..=255).collect());
    keys.extend([
        b"</script><script>alert(1)</script>".to_vec(),
        b"\"><img src=x onerror=alert(1)>".to_vec(),
        b"'; DROP TABLE locks; --".to_vec(),
        b"{{nonce}}".to_vec(),
        "\u{202e}gnp.exe\u{2066}".as_bytes().to_vec(),
        "a\u{0}b\r\nX-Header: y".as_bytes().to_vec(),
        "\u{feff}\u{2028}\u{2029}".as_bytes().to_vec(),
        "🔒".repeat(63).as_bytes().to_vec(),
        vec![b'x'; 255],
        vec![0xff; 512],
        b"?key=a&key_hex=61#%2e%2e/..".to_vec(),
    ]);
    keys
}

/// The bytes that a row names.
fn bytes_of(row: &Value) -> Vec<u8> {
    match (row["key"].as_str(), row["key_hex"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(hex)) => (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
            .collect(),
        both => panic!("{both:?}"),
    }
}

#[test]
fn keys_and_names_of_any_bytes_go_through_unharmed() {
    let watched = Watched::alone();
    let mut client = watched.client();
    assert!(
        client
            .says("H 1 name=</script>\"'<b>%0A")
            .starts_with("H 1 ")
    );
    let mut tokens: Vec<(Vec<u8>, String)> = hostile()
        .into_iter()
        .map(|key| (key.clone(), client.takes(&key)))
        .collect();
    let page = watched.json("/locks.json?limit=1000");
    let rows = page["locks"].as_array().expect("rows");
    let mut listed: Vec<(Vec<u8>, String)> = rows
        .iter()
        .map(|row| {
            (
                bytes_of(row),
                row["token"].as_str().expect("text").to_owned(),
            )
        })
        .collect();
    tokens.sort();
    listed.sort();
    assert_eq!(listed, tokens);
    assert!(rows.iter().all(|row| row["name"] == "</script>\"'<b>\n"));
    let mut waiter = Client::new(&watched.address);
    for (key, _) in &tokens {
        let spelled = fairlock::protocol::Key::encode(key).expect("a key");
        let mut line = b"A ".to_vec();
        line.extend_from_slice(spelled.spelling());
        line.extend_from_slice(b" 30 0");
        waiter.send_bytes(&line);
    }
    eventually("all wait", || {
        watched.json("/status.json")["waiting"] == tokens.len()
    });
    for (key, _) in &tokens {
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = key.iter().map(|byte| format!("%{byte:02X}")).collect();
        for query in [format!("key_hex={hex}"), format!("key={percent}")] {
            let queue = watched.json(&format!("/waiters.json?{query}"));
            assert_eq!(
                (bytes_of(&queue), &queue["count"]),
                (key.clone(), &json!(1)),
                "{query}"
            );
            let found = watched.json(&format!(
                "/locks.json?{}&limit=1000",
                query.replacen("key", "prefix", 1)
            ));
            let found = found["locks"].as_array().expect("rows");
            assert!(found.iter().any(|row| bytes_of(row) == *key), "{query}");
            assert!(
                found.iter().all(|row| bytes_of(row).starts_with(key)),
                "{query}"
            );
        }
    }
}
